"""What a person sees of a run: a bar on a terminal, a plain line now and then elsewhere.

In:      the state after each update, and the rows so far.
Out:     text on a stream; without a terminal no carriage returns, at most one line every 30 s.
         The rows go to a tracker, if there is one.
"""

import math
import sys
from collections.abc import Mapping, Sequence
from typing import NoReturn, Protocol, TextIO

from tqdm import tqdm

from rlbench.records import EpisodeRow, EvaluationRow, UpdateRow
from rlbench.training.stopwatch import Every

PLAIN_LINES_EVERY_S = 30.0


class Tracker(Protocol):
    """Where the rows of a run are shown while it is under way."""

    def write(
        self,
        updates: Sequence[UpdateRow],
        episodes: Sequence[EpisodeRow],
        evaluations: Sequence[EvaluationRow],
    ) -> None:
        """Take all rows so far."""
        ...


class Progress:
    """Progress towards a budget of steps or episodes."""

    def __init__(self, stream: TextIO | None = None, tracker: Tracker | None = None) -> None:
        self._stream = stream if stream is not None else sys.stderr
        self.tracker = tracker
        self._bar: tqdm[NoReturn] | None = None
        self._total, self._unit = 0, ""
        self._due = Every(PLAIN_LINES_EVERY_S)

    def begin(self, header: str, total: int, unit: str) -> None:
        """Show the first line and an empty bar."""
        self.say(header)
        self._total, self._unit = total, unit
        if self._stream.isatty():
            self._bar = tqdm(total=total, unit=f" {unit}", file=self._stream, dynamic_ncols=True)

    def show(self, done: int, state: Mapping[str, float]) -> None:
        """Show how much of the budget is used, and some numbers; NaN ones are left out."""
        text = ", ".join(f"{k} {_short(v)}" for k, v in state.items() if not math.isnan(v))
        if self._bar is not None:
            self._bar.set_postfix_str(text, refresh=False)
            self._bar.update(min(done, self._total) - self._bar.n)
        elif self._due.now():
            self.say(f"{done:,} of {self._total:,} {self._unit} | {text}")

    def end(self) -> None:
        """Leave the bar as it is; later text starts on a line of its own."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None

    def say(self, line: str) -> None:
        """A line of text."""
        self._stream.write(line + "\n")
        self._stream.flush()


def _short(value: float) -> str:
    whole = math.isfinite(value) and (value == int(value) or abs(value) >= 1000)
    return f"{value:,.0f}" if whole else f"{value:.3g}"
