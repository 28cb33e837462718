"""The only clock: seconds per phase, read when the device is idle.

In:      blocks of work, each under the name of its phase.
Out:     seconds per phase since the last take.
"""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


class Stopwatch:
    """Seconds per phase; waits for the device at both ends of a lap."""

    def __init__(self, device: "torch.device") -> None:
        self._wait: Callable[[], None] | None = None
        if device.type == "cuda":
            import torch

            self._wait = lambda: torch.cuda.synchronize(device)
        self._seconds: dict[str, float] = {}
        self._laps: dict[str, _Lap] = {}
        self._origin = self.now()
        self.setup_s = 0.0
        """Seconds from the watch's making to `start_run`."""

    def lap(self, phase: str) -> "_Lap":
        """Add the time spent inside the block to one phase. Laps must not nest."""
        if phase not in self._laps:
            self._laps[phase] = _Lap(self, phase)
        return self._laps[phase]

    def take(self) -> dict[str, float]:
        """Seconds per phase so far; start again from zero."""
        seconds, self._seconds = self._seconds, {}
        return seconds

    def start_run(self) -> None:
        """The set-up is over: elapsed time and phases count from here."""
        self.setup_s = self.elapsed()
        self._origin += self.setup_s
        self._seconds = {}

    def elapsed(self) -> float:
        """Seconds since the run started, or since the watch was made."""
        return self.now() - self._origin

    def now(self) -> float:
        """Seconds on a monotonic clock, with the device idle."""
        if self._wait is not None:
            self._wait()
        return time.perf_counter()

    def add(self, phase: str, seconds: float) -> None:
        """Count seconds towards a phase."""
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds


class _Lap:
    """One phase as a context; a class, since a generator costs a microsecond more per step."""

    __slots__ = ("_phase", "_start", "_watch")

    def __init__(self, watch: Stopwatch, phase: str) -> None:
        self._watch = watch
        self._phase = phase
        self._start = 0.0

    def __enter__(self) -> None:
        self._start = self._watch.now()

    def __exit__(self, *_: object) -> None:
        self._watch.add(self._phase, self._watch.now() - self._start)


def mean_seconds(work: Callable[[], object], budget_s: float, most: int) -> float:
    """Mean seconds of a call on the CPU, over as many as fit the budget, 1 to `most` of them."""
    start, spent, calls = time.perf_counter(), 0.0, 0
    while calls < most and spent <= budget_s:
        work()
        calls, spent = calls + 1, time.perf_counter() - start
    return spent / calls


def utc_now() -> str:
    """The time of day in UTC, ISO 8601, to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


class Every:
    """True at most once in so many seconds."""

    def __init__(self, interval_s: float) -> None:
        self._interval_s = interval_s
        self._last = time.perf_counter()

    def now(self) -> bool:
        """Whether the interval has passed since it last had, or since the start."""
        if time.perf_counter() - self._last < self._interval_s:
            return False
        self._last = time.perf_counter()
        return True
