"""The workflow: what runs, what runs again, what a failure leaves."""

import os
import subprocess
from pathlib import Path

import pandas as pd
import pytest
import yaml

ROOT = Path(__file__).parents[1]
TINY = {
    "name": "tiny",
    "algorithms": ["ppo", "trpo"],
    "environments": ["Pendulum-v1"],
    "num_envs": [2],
    "devices": ["cpu"],
    "seeds": [0, 1],
    "total_steps": 800,
    "batch_size": 400,
    "eval_every_steps": 400,
    "eval_episodes": 2,
    "thresholds": {"Pendulum-v1": -2000},
    "hyperparameters": {"ppo": {"hidden_sizes": [8]}, "trpo": {"hidden_sizes": [8]}},
    "throughput": {"updates": 1, "warmup_updates": 1, "repeats": 1},
}
OTHER_TRPO = {"ppo": {"hidden_sizes": [8]}, "trpo": {"hidden_sizes": [8], "max_kl": 0.0123}}
pytestmark = pytest.mark.workflow


def snakemake(folder: Path, *arguments: str, **changes: object) -> subprocess.CompletedProcess[str]:
    """Run the workflow on a tiny grid with all its files in a folder."""
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(TINY | changes))
    return subprocess.run(
        ["snakemake", "--snakefile", ROOT / "Snakefile", "--workflow-profile",
         ROOT / "profiles" / "default", "--directory", folder, "--cores", "2", *arguments,
         "--configfile", config],
        capture_output=True, text=True, check=False, cwd=folder,
        env=os.environ | {"PYTHONPATH": str(ROOT / "tests")},
    )  # fmt: skip


def jobs_of(dry_run: subprocess.CompletedProcess[str]) -> dict[str, int]:
    """Number of jobs per rule in a dry run."""
    assert dry_run.returncode == 0, dry_run.stderr
    lines = (line.split() for line in dry_run.stdout.splitlines())
    known = {"train", "throughput", "aggregate", "tables", "figures", "page"}
    return {
        line[0]: int(line[1])
        for line in lines
        if len(line) == 2 and line[0] in known and line[1].isdigit()
    }


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the tiny grid has run once."""
    folder = tmp_path_factory.mktemp("workflow")
    assert jobs_of(snakemake(folder, "--dry-run")) == {
        "train": 4, "throughput": 2, "aggregate": 1, "tables": 1, "figures": 1, "page": 1,
    }  # fmt: skip
    done = snakemake(folder)
    assert done.returncode == 0, done.stderr
    return folder


def test_one_command_makes_the_report(finished: Path) -> None:
    results = finished / "tiny"
    page = (results / "report.html").read_text()
    assert "4 of 4 cells" in page
    cells = pd.read_csv(results / "tables" / "cells.csv")
    assert list(cells["status"]) == ["ok"] * 4
    assert (cells["actual_steps"] == 800).all()
    assert pd.read_csv(results / "tables" / "throughput.csv")["steps_per_s"].gt(0).all()
    names = {path.suffix for path in (results / "figures").iterdir()}
    assert {".svg", ".png", ".pdf"} <= names
    assert not (results / "partial").exists()
    assert not list(results.rglob("*.partial"))


def test_a_second_run_does_nothing(finished: Path) -> None:
    again = snakemake(finished)
    assert again.returncode == 0
    assert "Nothing to be done" in again.stderr + again.stdout


def test_more_cores_and_other_text_around_change_nothing(finished: Path) -> None:
    (finished / "README.md").write_text("changed")
    assert jobs_of(snakemake(finished, "--dry-run", "--cores", "16")) == {}


@pytest.mark.parametrize(
    ("changes", "again"),
    [
        ({"hyperparameters": OTHER_TRPO}, {"train": 2, "throughput": 1}),
        ({"seeds": [0, 1, 2]}, {"train": 2}),
        ({"num_envs": [2, 4]}, {"train": 4, "throughput": 2}),
        ({"thresholds": {"Pendulum-v1": -100}}, {}),
        ({"total_steps": 1200}, {"train": 4, "throughput": 2}),
        ({"container": "docker://other:1"}, {}),
    ],
)  # fmt: skip
def test_only_what_changed_runs_again(
    changes: dict[str, object], again: dict[str, int], finished: Path
) -> None:
    analysis = {"aggregate": 1, "tables": 1, "figures": 1, "page": 1}
    assert jobs_of(snakemake(finished, "--dry-run", **changes)) == again | analysis


def test_a_failed_cell_is_seen_and_only_it_runs_again(tmp_path: Path) -> None:
    """One environment of two raises: the others finish, the report says so, the exit code too."""
    grid = {"environments": ["Pendulum-v1", "probes:Raise50-v0"], "seeds": [0], "thresholds": {}}
    throughput = {"throughput": {"measure": "never"}}
    done = snakemake(tmp_path, algorithms=["ppo"], **grid, **throughput)
    assert done.returncode != 0
    results = tmp_path / "tiny"
    assert not (results / "report.html").exists()
    page = (results / "partial" / "report.html").read_text()
    assert "1 of 2 cells" in page
    assert "raised ValueError at step 50: the probe&#39;s own words" in page
    broken = results / "runs" / "algorithm~ppo" / "environment~probes+3ARaise50-v0"
    assert not list(broken.rglob("*.parquet"))
    again = snakemake(tmp_path, "--dry-run", algorithms=["ppo"], **grid, **throughput)
    assert jobs_of(again)["train"] == 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seedz": [1]}, "seedz: unknown key; did you mean 'seeds'?"),
        ({"num_envs": [0]}, "num_envs.0: got 0; input should be greater than 0"),
        ({"num_envs": [800]}, "num_envs 800 is more than batch_size 400"),
        ({"environments": ["Pendulumm-v1"], "thresholds": {}}, "environment 'Pendulumm-v1': "),
        ({"cpu_threads": 3}, "cpu_threads: got 3, but --cores is 2"),
        ({"devices": ["cuda"]}, "devices: got 'cuda', which cannot be used here: "),
    ],
)
def test_a_wrong_config_stops_everything_with_one_message(
    changes: dict[str, object], message: str, tmp_path: Path
) -> None:
    done = snakemake(tmp_path, **changes)
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("rlbench: error: ")]
    assert len(errors) == 1
    assert message in errors[0]
    assert str(tmp_path / "config.yaml") in errors[0]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "tiny").exists()


SLURM = ("--dry-run", "--jobs", "2", "--profile", str(ROOT / "profiles" / "slurm"))


def test_named_devices_are_taken_as_they_are_if_jobs_run_elsewhere(tmp_path: Path) -> None:
    """No GPU is needed where a workflow starts; its jobs ask for one.

    Memory is 2,000 + 2,000, two environment processes of 128, and 400 transitions of 8 KiB.
    """
    planned = snakemake(tmp_path, *SLURM, devices=["cuda"])
    assert jobs_of(planned)["train"] == 4
    cells = [line for line in planned.stdout.splitlines() if "gpu=1" in line]
    assert len(cells) == 4 + 2
    assert all("mem_mb=4259" in line and "runtime=11" in line for line in cells)
    assert sum("slurm_extra=--exclusive" in line for line in cells) == 2


def test_auto_is_refused_if_jobs_run_elsewhere(tmp_path: Path) -> None:
    done = snakemake(tmp_path, *SLURM, devices=["auto"])
    assert done.returncode == 2
    errors = [line for line in done.stderr.splitlines() if line.startswith("rlbench: error: ")]
    assert len(errors) == 1
    assert "devices: got 'auto', but the jobs run on other machines" in errors[0]
    assert "--config devices=cpu" in errors[0]
    assert jobs_of(snakemake(tmp_path, "--dry-run", "--jobs", "2", devices=["auto"]))["train"] == 4


def test_a_cell_repeats_outside_the_workflow(finished: Path, tmp_path: Path) -> None:
    """The command that the page gives for one cell makes the same rows."""
    config = finished / "config.yaml"
    config.write_text(yaml.safe_dump(TINY))
    shown = subprocess.run(
        ["rlbench", "show-job", config, "trpo/Pendulum-v1/2/cpu/1", "--json"],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    subprocess.run(
        ["rlbench", "train", "--job", shown.stdout, "--output-dir", tmp_path],
        capture_output=True, check=True,
    )  # fmt: skip
    cell = "algorithm~trpo/environment~Pendulum-v1/num_envs~2/device~cpu/seed~1"
    before = pd.read_parquet(finished / "tiny" / "runs" / cell / "evaluations.parquet")
    pd.testing.assert_frame_equal(before, pd.read_parquet(tmp_path / "evaluations.parquet"))


def test_snakemakes_own_report_has_captions(finished: Path) -> None:
    done = snakemake(finished, "--report", str(finished / "own.html"))
    assert done.returncode == 0, done.stderr
    text = (finished / "own.html").read_text()
    assert "evaluation_return" in text
    assert "a row per arm" in text
