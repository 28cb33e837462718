"""Provenance of the code, against git, pip and sha256 themselves."""

import hashlib
import platform
import subprocess
from importlib import metadata
from pathlib import Path

import pytest
import torch

from rlbench import software
from rlbench.software import code_digest, describe_software

ROOT = Path(__file__).parents[1]


def sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def test_the_description_agrees_with_what_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    found = describe_software()
    assert found.python == platform.python_version()
    assert found.packages["torch"] == torch.__version__
    assert {d.name.lower().replace("_", "-") for d in metadata.distributions()} == set(
        found.packages
    )
    assert found.environment_variables["MKL_CBWR"] == "COMPATIBLE"
    assert found.lock_digest == sha256((ROOT / "requirements.lock").read_bytes())


def test_the_digest_follows_the_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = code_digest()
    assert before == code_digest()
    package = tmp_path / "rlbench"
    (package / "training").mkdir(parents=True)
    for name in ("records.py", "machine.py"):
        (package / name).write_text("1")
    (package / "training" / "a.py").write_text("1")
    monkeypatch.setattr(software, "__file__", str(package / "software.py"))
    first = code_digest()
    (package / "training" / "a.py").write_text("2")
    assert len({before, first, code_digest()}) == 3


def test_commit_and_difference_are_gits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repository of our own: clean, then changed in a tracked file, then outside of one."""

    def git(*arguments: str) -> bytes:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        command = ["git", *identity, *arguments]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, check=True).stdout

    source = tmp_path / "software.py"
    for name in ("records.py", "machine.py", "software.py"):
        (tmp_path / name).write_text("1\n")
    monkeypatch.setattr(software, "__file__", str(source))
    monkeypatch.setenv("RLBENCH_GIT_COMMIT", "built-from")
    outside = describe_software()
    assert (outside.git_commit, outside.git_dirty) == ("built-from", None)
    git("init", "--quiet")
    git("add", ".")
    git("commit", "--quiet", "--message", "first")
    clean = describe_software()
    assert clean.git_commit == git("rev-parse", "HEAD").decode().strip()
    assert (clean.git_dirty, clean.git_diff_digest) == (False, None)
    source.write_text("2\n")
    changed = describe_software()
    assert changed.git_dirty
    assert changed.git_diff_digest == sha256(git("diff", "--binary", "HEAD"))


def test_the_image_is_known_by_its_bill_or_by_its_registry(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(software, "BILL_OF_MATERIALS", tmp_path / "image.txt")
    assert describe_software().image_digest is None
    (tmp_path / "image.txt").write_text("base debian\n")
    assert describe_software().image_digest == sha256(b"base debian\n")
    monkeypatch.setenv("RLBENCH_IMAGE_DIGEST", "sha256:0123")
    assert describe_software().image_digest == "sha256:0123"
