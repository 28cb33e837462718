"""What the integration tests share: commands, waiting, and runs compared bit by bit."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from rlbench.records import read_columns
from rlbench.verify import REPEATED, unequal_columns

ROOT = Path(__file__).parents[2]


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


def covered(what: str) -> None:
    """Say in one line, among pytest's own, what a test that passed has seen."""
    sys.stdout.write(f"\n  covered: {what}\n")


def require_packages(programs: Mapping[str, str]) -> None:
    """Install the Debian packages whose program, the mapping's value, is missing."""
    missing = [package for package, program in programs.items() if not shutil.which(program)]
    if missing:
        assert os.geteuid() == 0, f"{', '.join(missing)} missing: run as root, or install them"
        quiet = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
        install = ("apt-get", "install", "-y", "-qq", "--no-install-recommends")
        done(run("apt-get", "update", "-qq", env=quiet))
        done(run(*install, *missing, env=quiet))


def wait_until(condition: Callable[[], bool], timeout_s: float, what: str) -> None:
    """Return once the condition holds; fail with `what` if it does not in time."""
    end = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < end, f"waited {timeout_s:.0f} s in vain: {what}"
        time.sleep(0.2)


def assert_same_numbers(one: Path, other: Path) -> None:
    """Two runs agree bit by bit in every column that is not a clock reading."""
    for kind in REPEATED:
        unequal = list(unequal_columns(read_columns(kind, one), read_columns(kind, other)))
        assert not unequal, f"{kind.file} of {one} and {other}: {unequal}"
