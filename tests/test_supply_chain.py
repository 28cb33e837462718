"""The lists of what is installed agree with the lock file."""

import re
from importlib import metadata
from pathlib import Path

ROOT = Path(__file__).parents[1]


def rows() -> list[tuple[str, str, str]]:
    """Name, version and licence of each package in docs/licences.md."""
    lines = (ROOT / "docs" / "licences.md").read_text().splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:4]] for line in lines if line[:1] == "|"]
    return [(name, version, licence) for name, version, licence in cells[2:]]


def plain(name: str) -> str:
    """The name as PyPI compares it, PEP 503."""
    return re.sub(r"[-_.]+", "-", name).lower()


def test_the_licences_are_those_of_the_locked_versions() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    locked = {plain(n): v for n, v in re.findall(r"^([^#=\s]+)==(\S+)$", lock, re.MULTILINE)}
    listed = {plain(name): version for name, version, _ in rows()}
    assert listed == locked, "run `make licences`"


def test_a_package_without_a_declared_licence_has_mits() -> None:
    undeclared = [name for name, _, licence in rows() if licence == "UNKNOWN"]
    for name in undeclared:
        files = metadata.files(name) or []
        texts = [f.read_text() for f in files if f.name.upper().startswith("LICENSE")]
        assert any("MIT License" in text for text in texts), name
