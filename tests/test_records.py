import json
import os
import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from rlbench import records
from rlbench.errors import InputError
from rlbench.records import (
    SCHEMA_VERSION,
    EpisodeRow,
    EvaluationRow,
    Metrics,
    TimingRow,
    UpdateRow,
    read_facts,
    read_rows,
    write_rows,
    write_whole,
)

ROWS = [
    EpisodeRow(episode=i, env_steps=10 * i, env=0, episode_return=-0.1 * i, length=10)
    for i in range(3)
]


def test_rows_come_back_as_they_were(tmp_path: Path) -> None:
    write_rows(ROWS, EpisodeRow, tmp_path)
    table = read_rows(EpisodeRow, tmp_path)
    assert [EpisodeRow(**row) for row in table.to_dict("records")] == ROWS  # type: ignore[arg-type]
    assert [path.name for path in tmp_path.iterdir()] == ["episodes.parquet"]


@pytest.mark.parametrize("kind", [UpdateRow, EpisodeRow, EvaluationRow, TimingRow])
def test_no_rows_still_have_columns(kind: type[records.Row], tmp_path: Path) -> None:
    write_rows([], kind, tmp_path)
    table = read_rows(kind, tmp_path)
    assert list(table.columns) == [field.name for field in fields(kind)]
    assert len(table) == 0


def test_an_update_row_has_every_metric() -> None:
    assert {f.name for f in fields(Metrics)} < {f.name for f in fields(UpdateRow)}


def test_a_failing_write_leaves_the_old_file_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_whole(tmp_path / "a", b"old")

    def full(_: int) -> None:
        raise OSError("no space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"


def test_a_kill_while_writing_leaves_no_file(tmp_path: Path) -> None:
    code = (
        "import os, sys, pathlib\n"
        "from rlbench import records\n"
        "os.fsync = lambda _: os._exit(9)\n"
        "records.write_whole(pathlib.Path(sys.argv[1]) / 'run.json', b'{}')\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], check=False)
    assert done.returncode == 9
    assert not (tmp_path / "run.json").exists()


@pytest.mark.parametrize(
    ("version", "advice"), [(SCHEMA_VERSION + 1, "update rlbench"), (0, "run the cell again")]
)
def test_another_schema_is_refused(version: int, advice: str, tmp_path: Path) -> None:
    path = write_rows(ROWS, EpisodeRow, tmp_path)
    table = pq.read_table(path)
    pq.write_table(table.replace_schema_metadata({"schema_version": str(version)}), path)
    with pytest.raises(InputError, match=f"schema {version}.*{advice}"):
        read_rows(EpisodeRow, tmp_path)
    (tmp_path / "run.json").write_text(json.dumps({"schema_version": version}))
    with pytest.raises(InputError, match=f"schema {version}.*{advice}"):
        read_facts(tmp_path)


def test_missing_and_damaged_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"episodes.parquet: not there"):
        read_rows(EpisodeRow, tmp_path)
    (tmp_path / "run.json").write_text('{"schema_ver')
    with pytest.raises(InputError, match=r"run.json: not valid JSON"):
        read_facts(tmp_path)
