"""Compiled gradient steps against eager ones, and fused and native environments against sync ones.

Interleaved full updates in one process, one thread, pinned by whoever calls it
(`taskset -c 0 python benchmarks/compiled_against_eager.py`). Prints steps/s and ratios of medians.
"""

from interleaved import in_turns, sessions, show, update
from rlbench.spec.job import Job

ROUNDS = 9
ALGORITHMS = {
    "ppo": {"minibatch_size": 64, "epochs": 10},
    "trpo": {"critic_minibatch_size": 64, "critic_epochs": 10},
}
MODES = {
    "compiled, fused": {"compile": "always", "vector_mode": "fused"},
    "compiled, native": {"compile": "always", "vector_mode": "native"},
    "eager, native": {"compile": "never", "vector_mode": "native"},
    "eager, sync": {"compile": "never", "vector_mode": "sync"},
}


def main() -> None:
    """Print a table per algorithm."""
    for algorithm, hyperparameters in ALGORITHMS.items():
        base = {
            "environment": "Pendulum-v1",
            "num_envs": 8,
            "batch_size": 2000,
            "device": "cpu",
            "seed": 0,
            "total_steps": 100_000,
            "algorithm": {"name": algorithm} | hyperparameters,
        }
        jobs = {name: Job.model_validate(base | mode) for name, mode in MODES.items()}
        with sessions(jobs) as opened:
            seconds = in_turns({name: update(s) for name, s in opened.items()}, ROUNDS)
        title = f"{algorithm}, Pendulum-v1, 8 environments, 2,000 steps per update"
        show(title, seconds, 2000, "compiled, fused")


if __name__ == "__main__":
    main()
