"""Training steps per second against Stable-Baselines3, sb3-contrib, SBX, and PPO as a JAX program.

Interleaved full updates (rollout and gradient steps) in one process, one thread, with the same
hyperparameters, each library in its own way on the same sync environments; ours in its fastest
mode. Pin it: `taskset -c 0 python benchmarks/against_peers.py [GROUP...]`. Prints steps/s and
ratios of medians beside the ratios we are after.
"""

import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from interleaved import Arm, in_turns, sessions, show, update
from jax_end_to_end import make_update, one_thread
from rlbench.spec.config import load_yaml
from rlbench.spec.job import Job

ROUNDS = 7
CONFIG = Path(__file__).parents[1] / "config" / "peers.yaml"


@dataclass(frozen=True)
class Group:
    """Arms that are compared with the first of them."""

    title: str
    algorithms: tuple[str, ...]
    goals: str
    run: dict[str, Any]
    hyperparameters: dict[str, Any] = field(default_factory=dict)
    ours: dict[str, Any] = field(default_factory=dict)
    """Run settings of the first arm alone."""
    jax: bool = False


PENDULUM = {"environment": "Pendulum-v1", "num_envs": 8, "batch_size": 2000}
GROUPS = {
    "ppo": Group(
        "PPO, Pendulum-v1, 8 environments, 2,000 steps per update, minibatch 64, 10 epochs",
        ("ppo", "sb3-ppo", "sbx-ppo"),
        "8 x SB3, 3.5 x SBX, 0.6 x JAX",
        PENDULUM,
        jax=True,
    ),
    "ppo-64": Group(
        "PPO, Pendulum-v1, 64 environments, 8,192 steps per update, minibatch 512",
        ("ppo", "sb3-ppo"),
        "3 x SB3",
        PENDULUM | {"num_envs": 64, "batch_size": 8192},
        {"minibatch_size": 512},
        jax=True,
    ),
    "trpo": Group(
        "TRPO, Pendulum-v1, 8 environments, 2,000 steps per update, 15 CG steps, 10 epochs",
        ("trpo", "sb3-trpo"),
        "5 x sb3-contrib",
        PENDULUM,
    ),
    "cheetah": Group(
        "PPO, HalfCheetah-v5, 8 environments (ours in envpool), 16,384 steps per update, 2 x 64",
        ("ppo", "sb3-ppo"),
        "4 x SB3",
        {"environment": "HalfCheetah-v5", "num_envs": 8, "batch_size": 16384},
        {"hidden_sizes": (64, 64), "reward_scale": 1.0, "actor_learning_rate": 3e-4},
        ours={"vector_mode": "envpool"},
    ),
}


def jobs(group: Group) -> dict[str, Job]:
    """One job per algorithm, with the hyperparameters of the published comparison."""
    published = load_yaml(CONFIG)["hyperparameters"]
    shared = {"device": "cpu", "seed": 0, "total_steps": 1_000_000, "cpu_threads": 1}
    found = {}
    for i, name in enumerate(group.algorithms):
        algorithm = {"name": name} | published[name] | group.hyperparameters
        own = {"compile": "always"} | group.ours if i == 0 else {}
        found[name] = Job.model_validate(shared | group.run | own | {"algorithm": algorithm})
    return found


def compare(group: Group) -> None:
    """Print a table of one group."""
    chosen = jobs(group)
    first = group.algorithms[0]
    job = chosen[first]
    with sessions(chosen) as opened:
        arms: dict[str, Arm] = {name: update(session) for name, session in opened.items()}
        if group.jax:
            size = job.algorithm.model_dump()["minibatch_size"]
            units = job.algorithm.hidden_sizes[0]
            arms["JAX, environment included"] = make_update(
                job.num_envs, job.actual_batch, size, units
            )
        seconds = in_turns(arms, ROUNDS, warmup=2)
    show(f"{group.title} (we are after {group.goals})", seconds, job.actual_batch, first)


def main() -> None:
    """Print the tables of the groups named, or of all."""
    one_thread()
    for name in sys.argv[1:] or GROUPS:
        compare(GROUPS[name])


if __name__ == "__main__":
    main()
