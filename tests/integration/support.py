"""What the integration tests share: commands, waiting, and runs compared bit by bit."""

import subprocess
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import pandas as pd

from rlbench.records import EpisodeRow, EvaluationRow, Row, UpdateRow, read_rows

ROOT = Path(__file__).parents[2]
REPEATED: tuple[type[Row], ...] = (UpdateRow, EpisodeRow, EvaluationRow)
"""Rows of a learning run whose columns, clock readings aside, must repeat."""


def run(
    *command: str | Path,
    cwd: Path = ROOT,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 900,
) -> subprocess.CompletedProcess[str]:
    """A command's exit code and its output, both streams in one; the caller judges them."""
    return subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=env,
        timeout=timeout_s,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )


def done(finished: subprocess.CompletedProcess[str]) -> str:
    """The output of a command that must have succeeded."""
    assert finished.returncode == 0, f"{finished.args}\n{finished.stdout}"
    return finished.stdout


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return once the condition holds; fail with `what` if it does not in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s:.0f} s in vain: {what}"
        time.sleep(0.2)


def numbers(folder: Path) -> dict[str, pd.DataFrame]:
    """Everything of a learning run that must repeat bit by bit, by file."""
    tables = {kind.file: read_rows(kind, folder) for kind in REPEATED}
    return {
        name: table[[column for column in table if not str(column).endswith("_s")]]
        for name, table in tables.items()
    }


def assert_same_numbers(one: Path, other: Path) -> None:
    """Two runs agree bit by bit in every column that is not a clock reading."""
    ones, others = numbers(one), numbers(other)
    for name, table in ones.items():
        pd.testing.assert_frame_equal(table, others[name], check_exact=True)
