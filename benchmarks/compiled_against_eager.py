"""PPO's compiled program against its eager steps, and native environments against sync ones.

Interleaved full updates of the same job in one process, one thread, pinned by whoever calls it
(`taskset -c 0 python benchmarks/compiled_against_eager.py`). Prints steps/s and ratios of medians.
"""

from contextlib import ExitStack
from statistics import median

from rlbench.spec.job import Job
from rlbench.training.session import Session, opened

ROUNDS = 9
SETTINGS = {"name": "ppo", "minibatch_size": 64, "epochs": 10, "hidden_sizes": (128, 128)}
MODES = {
    "eager, sync": {"compile": "never", "vector_mode": "sync"},
    "eager, native": {"compile": "never", "vector_mode": "native"},
    "compiled, native": {"compile": "always", "vector_mode": "native"},
}


def seconds_of_update(session: Session) -> float:
    """One full update: rollout and gradient steps."""
    start = session.stopwatch.now()
    rollout, _ = session.collector.collect(session.job.rollout_steps, None, session.stopwatch)
    session.learner.update(rollout, remaining=1.0)
    return session.stopwatch.now() - start


def main() -> None:
    """Print a row per mode."""
    base = {
        "environment": "Pendulum-v1",
        "num_envs": 8,
        "batch_size": 2000,
        "device": "cpu",
        "seed": 0,
        "total_steps": 100_000,
        "algorithm": SETTINGS,
    }
    with ExitStack() as stack:
        sessions = {
            name: stack.enter_context(opened(Job.model_validate(base | mode)))
            for name, mode in MODES.items()
        }
        seconds: dict[str, list[float]] = {name: [] for name in sessions}
        for turn in range(ROUNDS + 1):
            for name, session in sessions.items():
                taken = seconds_of_update(session)
                if turn:  # the first is warm-up
                    seconds[name].append(taken)
    slowest = median(seconds["eager, sync"])
    print(f"Pendulum-v1, 8 environments, 2,000 steps per update; medians of {ROUNDS}, interleaved")
    for name, values in seconds.items():
        middle = median(values)
        print(
            f"{name:<18} {2000 / middle:7,.0f} steps/s "
            f"({2000 / max(values):,.0f} to {2000 / min(values):,.0f}), {slowest / middle:.2f} x"
        )


if __name__ == "__main__":
    main()
