"""Arms of a comparison in turns, in one process, so that whatever the machine does meets them all.

In:      per arm, a call that does some work and gives the seconds it took.
Out:     seconds of each turn, and a table of rates and ratios of medians.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from statistics import median

from rlbench.spec.job import Job
from rlbench.training.session import Session, opened

Arm = Callable[[], float]
"""Does the work once; seconds."""


def in_turns(arms: Mapping[str, Arm], rounds: int, warmup: int = 1) -> dict[str, list[float]]:
    """Seconds of each arm in each round, without the first rounds."""
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    for turn in range(rounds + warmup):
        for name, arm in arms.items():
            taken = arm()
            if turn >= warmup:
                seconds[name].append(taken)
    return seconds


def show(title: str, seconds: Mapping[str, list[float]], steps: int, first: str) -> None:
    """Print steps/s of each arm, and how many times as fast the first is, medians over rounds."""
    rounds = len(seconds[first])
    print(f"\n{title}; medians of {rounds}, interleaved")
    for name, values in seconds.items():
        ratio = "" if name == first else f"{median(values) / median(seconds[first]):6.2f} x"
        print(
            f"  {name:<28} {steps / median(values):9,.0f} steps/s "
            f"({steps / max(values):,.0f} to {steps / min(values):,.0f}) {ratio}"
        )


def update(session: Session) -> Arm:
    """One full update: rollout and gradient steps."""

    def arm() -> float:
        start = session.stopwatch.now()
        rollout, _ = session.collector.collect(session.job.rollout_steps, None, session.stopwatch)
        session.learner.update(rollout, remaining=1.0)
        return session.stopwatch.now() - start

    return arm


@contextmanager
def sessions(jobs: Mapping[str, Job]) -> Iterator[dict[str, Session]]:
    """Every job opened, all in this process."""
    with ExitStack() as stack:
        yield {name: stack.enter_context(opened(job)) for name, job in jobs.items()}
