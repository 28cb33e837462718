"""An exported folder: checked by unzip's own library and by sha256sum."""

import shutil
import subprocess
import zipfile
from pathlib import Path

import pytest

from results_folder import handmade
from rlbench.archive import export
from rlbench.errors import InputError


@pytest.fixture
def results(tmp_path: Path) -> Path:
    folder = tmp_path / "handmade"
    handmade(folder)
    for left_out in ("logs/train.log", "partial/report.html", "state/failure.json", "a.1.partial"):
        (folder / left_out).parent.mkdir(parents=True, exist_ok=True)
        (folder / left_out).write_text("not a result")
    return folder


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None
        opened.extractall(folder)
    return folder / "handmade"


def checked(folder: Path) -> subprocess.CompletedProcess[str]:
    command = ["sha256sum", "--check", "--strict", "SHA256SUMS"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_what_is_unpacked_is_what_was_there(results: Path, tmp_path: Path) -> None:
    packed = export(results, tmp_path / "a.zip")
    copy = unpacked(tmp_path / "a.zip", tmp_path / "copy")
    files = {path.relative_to(copy) for path in copy.rglob("*") if path.is_file()}
    assert len(files) == packed.files + 1  # the manifest
    assert not [p for p in files if p.parts[0] in {"logs", "partial", "state"}]
    for path in files - {Path("SHA256SUMS")}:
        assert (copy / path).read_bytes() == (results / path).read_bytes()
    assert packed.runs == len(list((results / "runs").rglob("run.json")))
    told = subprocess.run(
        ["sha256sum", tmp_path / "a.zip"], capture_output=True, text=True, check=True
    )
    assert told.stdout.split()[0] == packed.sha256


def test_a_changed_file_is_found(results: Path, tmp_path: Path) -> None:
    export(results, tmp_path / "a.zip")
    copy = unpacked(tmp_path / "a.zip", tmp_path / "copy")
    assert checked(copy).returncode == 0
    (copy / "benchmark.json").write_text("{}")
    assert "benchmark.json: FAILED" in checked(copy).stdout


def test_the_same_files_give_the_same_bytes(results: Path, tmp_path: Path) -> None:
    """Copied in another order, at another time."""
    export(results, tmp_path / "a.zip")
    again = tmp_path / "elsewhere" / "handmade"
    for path in sorted((p for p in results.rglob("*") if p.is_file()), reverse=True):
        target = again / path.relative_to(results)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(path, target)
    export(again, tmp_path / "b.zip")
    assert (tmp_path / "a.zip").read_bytes() == (tmp_path / "b.zip").read_bytes()


def test_what_cannot_be_exported_is_refused(results: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="nowhere: no such folder"):
        export(tmp_path / "nowhere", tmp_path / "a.zip")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match="empty: no finished run in it; run the workflow"):
        export(tmp_path / "empty", tmp_path / "a.zip")
    with pytest.raises(InputError, match=r"inside .*handmade; must be outside it"):
        export(results, results / "a.zip")
    assert not list(tmp_path.rglob("*.zip*"))
