import io
import math

import pytest

from rlbench.training.progress import Progress

STATE = {"episodes": 12.0, "return(20)": -150.25, "clipped": math.nan, "steps/s": 2345.0}


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_is_a_line_every_30_s(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    stream = io.StringIO()
    progress = Progress(stream)
    progress.begin("header", 100_000, "steps")
    for now[0] in (5.0, 31.0, 40.0, 62.0):
        progress.show(int(1000 * now[0]), STATE)
    progress.end()
    assert stream.getvalue() == (
        "header\n"
        "31,000 of 100,000 steps | episodes 12, return(20) -150, steps/s 2,345\n"
        "62,000 of 100,000 steps | episodes 12, return(20) -150, steps/s 2,345\n"
    )


def test_on_a_terminal_there_is_a_bar_that_ends_full() -> None:
    stream = Terminal()
    progress = Progress(stream)
    progress.begin("header", 500, "episodes")
    progress.show(250, STATE)
    progress.show(501, STATE)
    progress.end()
    assert "\r" in stream.getvalue()
    assert "100%" in stream.getvalue()
    assert "500/500" in stream.getvalue()
    assert "return(20) -150" in stream.getvalue()
