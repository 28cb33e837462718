"""The same contract over every learner and every kind of policy."""

import math
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch.nn.utils import parameters_to_vector

from jobs import job, trained
from rlbench.spec.presets import resolve
from rlbench.spec.registry import OWN
from rlbench.training.session import opened

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "gaussian": ("probes:Target-v0", {"action_mean": "free"}),
    "gaussian-state-std": ("probes:Target-v0", {"action_mean": "free", "action_std": "state"}),
    "gaussian-bounded": ("probes:Target-v0", {"action_mean": "bounded"}),
    "categorical": ("probes:Bandit-v0", {}),
    "categorical-state": ("probes:Signal-v0", {}),
    "gaussian-pink-rescaled": (
        "probes:Valve-v0",
        {"action_bounds": "rescale", "action_mean": "free", "noise_colour": 1.0},
    ),
    "multi-categorical": ("probes:Lock-v0", {}),
    "bernoulli": ("probes:Switches-v0", {}),
    "one-hot": ("probes:Rooms-v0", {}),
}
FAST: dict[str, dict[str, Any]] = {
    "ppo": {"actor_learning_rate": 1e-3},
    "ppo-kl": {"actor_learning_rate": 1e-3, "target_kl": 0.05},
    "a2c": {"actor_learning_rate": 0.01},
    "trpo": {"max_kl": 0.1},
    "npg": {"max_kl": 0.1},
}
"""What learns a problem of one step in 6,000 steps."""
each_learner = pytest.mark.parametrize(
    "algorithm", [model.model_fields["name"].default for model in OWN]
)
each_kind = pytest.mark.parametrize("kind", sorted(KINDS))


@each_learner
@each_kind
def test_learns_a_problem_of_one_step(algorithm: str, kind: str, tmp_path: Path) -> None:
    """The best return is 0 for a Gaussian policy, 1 for others; a random one is far from both."""
    environment, hyperparameters = KINDS[kind]
    which = job(
        algorithm,
        hyperparameters | FAST[algorithm],
        environment=environment,
        num_envs=8,
        total_steps=6000,
        batch_size=40 if algorithm == "a2c" else 400,  # one pass each: A2C lives by fresh batches
        eval_every_steps=6000,
        eval_episodes=20,
    )
    log = trained(which, tmp_path).log
    final = np.mean([row.episode_return for row in log.evaluations[-20:]])
    assert final > (-0.01 if kind.startswith("gaussian") else 0.95)


@each_learner
@each_kind
def test_an_update_moves_both_networks_and_reports_finite_numbers(
    algorithm: str, kind: str
) -> None:
    environment, hyperparameters = KINDS[kind]
    with opened(job(algorithm, hyperparameters, environment=environment)) as session:
        networks = (session.actor, session.critic)
        before = [parameters_to_vector(n.parameters()).detach().clone() for n in networks]
        rollout, _ = session.collector.collect(100, None, session.stopwatch)
        metrics = session.learner.update(rollout, remaining=1.0)
        after = [parameters_to_vector(n.parameters()).detach() for n in networks]
    assert all((a - b).norm() > 1e-4 for a, b in zip(before, after, strict=True))
    numbers = [value for value in astuple(metrics) if not math.isnan(value)]
    assert len(numbers) >= 8
    assert all(math.isfinite(value) for value in numbers)
    assert metrics.kl_nats > 0


@pytest.mark.learning
@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_pendulum_is_learned(algorithm: str, seed: int, tmp_path: Path) -> None:
    """50,000 steps with the preset; a random policy is at about -1,200, the optimum at -137."""
    settings, _ = resolve(algorithm, "Pendulum-v1", {}, "test")
    which = job(
        algorithm,
        settings.model_dump(),
        num_envs=8,
        seed=seed,
        total_steps=50_000,
        batch_size=2000,
        eval_every_steps=50_000,
        eval_episodes=20,
    )
    log = trained(which, tmp_path).log
    returns = [row.episode_return for row in log.evaluations]
    assert np.mean(returns[:20]) < -900
    assert np.mean(returns[-20:]) > -600
