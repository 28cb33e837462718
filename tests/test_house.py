"""Rules of the house that no linter knows."""

import re
from pathlib import Path

import pytest

from rlbench.spec.document import page

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "rlbench").rglob("*.py"))


@pytest.mark.parametrize(
    ("word", "allowed"),
    [
        (r"\bperf_counter|\btime\.time|datetime\.now", {"training/stopwatch.py"}),
        (r"manual_seed|SeedSequence\(|random\.seed", {"training/seeding.py"}),
        (r"\bpsutil\b|\bpynvml\b|import platform", {"machine.py", "devices.py", "software.py"}),
        (r"\bpickle\b|weights_only=False", set()),
        (r"\.open\(\"w|write_text|write_bytes", {"records.py"}),
    ],
)
def test_a_thing_is_done_in_one_place(word: str, allowed: set[str]) -> None:
    places = {
        path.relative_to(ROOT / "src" / "rlbench").as_posix()
        for path in SOURCES
        if re.search(word, path.read_text())
    }
    assert places == allowed


def test_functions_and_files_stay_short() -> None:
    """A file fits a person's head, a function a screen."""
    for path in SOURCES:
        assert len(path.read_text().splitlines()) <= 480, path


def test_every_module_says_what_it_is() -> None:
    for path in SOURCES:
        assert path.read_text().startswith('"""'), path


def test_the_page_of_config_keys_is_that_of_the_models() -> None:
    assert (ROOT / "config" / "README.md").read_text() == page()


def test_the_changelog_knows_the_version() -> None:
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert version is not None
    assert f"## {version[1]}" in (ROOT / "CHANGELOG.md").read_text()
    assert f'__version__ = "{version[1]}"' in (ROOT / "src/rlbench/__init__.py").read_text()


def test_the_lock_pins_every_version() -> None:
    lines = (ROOT / "requirements.lock").read_text().splitlines()
    pins = [line for line in lines if line and not line.startswith("#")]
    assert "torch==2.13.0" in pins
    assert all(re.fullmatch(r"[A-Za-z0-9._-]+==[^@ ]+", line) for line in pins)
