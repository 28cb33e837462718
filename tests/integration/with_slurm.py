"""The workflow under a real SLURM of one node: `make test-slurm`, as root on Debian or Ubuntu.

Each test prints one line that says what it covered.
"""

import os
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from subprocess import STDOUT
from typing import Any

import pytest
import yaml
from slurm_node import Node, one_node
from support import ROOT, assert_same_numbers, covered, done, run, wait_until

from rlbench.records import UpdateRow, read_rows

BIN = ROOT / ".venv" / "bin"
SMOKE = ROOT / "config" / "smoke.yaml"
PROFILES = ("--profile", ROOT / "profiles" / "slurm")
QUICK = ("--slurm-init-seconds-before-status-checks", "5", "--latency-wait", "5")
"""Seconds between looks at the queue, and of patience with the disk, which here is local; the
profile's are longer, for a cluster that others use too."""
ENVIRONMENT = os.environ | {
    "PATH": os.pathsep.join([str(BIN), os.environ["PATH"]]),
    "PYTHONPATH": str(ROOT / "tests"),
}
CELL = "algorithm~{}/environment~Pendulum-v1/num_envs~8/device~cpu/seed~0"
"""A cell of the smoke grid."""

NO_SPEED: dict[str, Any] = {"throughput": {"measure": "never"}, "thresholds": {}}
"""Changes to the smoke grid: learning runs only, of any environment."""


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """The cluster of all tests here."""
    with one_node(tmp_path_factory.mktemp("slurm")) as started:
        yield started


def written(folder: Path, **changes: object) -> Path:
    """The smoke grid with one seed and one number of environments, and some changes, as a file."""
    grid = yaml.safe_load(SMOKE.read_text()) | {"num_envs": [8], "seeds": [0], "devices": ["cpu"]}
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(grid | changes))
    return config


def snakemake(folder: Path, config: Path, *arguments: str | Path) -> list[str | Path]:
    """The command that runs a config with all its files in a folder."""
    return ["snakemake", *arguments, "--directory", folder, "--configfile", config]


def under_slurm(folder: Path, config: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a config with the profile; the repository is the working directory, as in the docs."""
    return run(*snakemake(folder, config, *PROFILES, *QUICK, *arguments), env=ENVIRONMENT)


@contextmanager
def started(command: list[str | Path], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A command in the background, ended with the block."""
    with output.open("w") as stream:
        process = subprocess.Popen(command, cwd=ROOT, env=ENVIRONMENT, stdout=stream, stderr=STDOUT)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def fresh(before: Mapping[str, object], node: Node) -> list[dict[str, str]]:
    """The jobs since then, in order: the fields of `scontrol show job`."""
    return [job for number, job in node.jobs().items() if number not in before]


def together(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Whether two jobs ran at one time; SLURM's times are whole seconds that sort as text."""
    return max(one["StartTime"], other["StartTime"]) < min(one["EndTime"], other["EndTime"])


@dataclass(frozen=True)
class Finished:
    """The folder in which the smoke grid ran once, and SLURM's record of its jobs, by comment."""

    folder: Path
    jobs: dict[str, dict[str, str]]


@pytest.fixture(scope="session")
def smoke(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Finished:
    """The smoke grid, run under SLURM."""
    folder = tmp_path_factory.mktemp("results")
    before = node.jobs()
    done(under_slurm(folder, written(folder)))
    return Finished(folder, {job["Comment"]: job for job in fresh(before, node)})


def test_the_smoke_grid_runs_to_its_report(smoke: Finished) -> None:
    """The queue shows rule and cell of a job; what it printed is kept beside the results."""
    results = smoke.folder / "smoke"
    assert "2 of 2 cells" in (results / "report.html").read_text()
    assert not (results / "partial").exists()
    assert set(smoke.jobs) == {
        "rule_train_wildcards_ppo_Pendulum-v1_8_cpu_0",
        "rule_train_wildcards_trpo_Pendulum-v1_8_cpu_0",
        "rule_throughput_wildcards_ppo_Pendulum-v1_8_cpu",
        "rule_throughput_wildcards_trpo_Pendulum-v1_8_cpu",
    }
    for job in smoke.jobs.values():
        assert job["JobState"] == "COMPLETED"
        assert job["JobName"].startswith("rlbench_")
        assert Path(job["StdOut"]).is_relative_to(smoke.folder / "slurm_logs")
        assert "Finished jobid" in Path(job["StdOut"]).read_text()
    for algorithm in ("ppo", "trpo"):
        log = results / "logs" / "train" / CELL.format(algorithm) / "train.log"
        assert "steps" in log.read_text()
    covered("the smoke grid as 4 SLURM jobs to report.html; names, comments, logs")


def test_jobs_ask_for_what_they_need(smoke: Finished) -> None:
    """2,000 MB, 8 environment processes of 128 and 15 of a batch; 10 minutes and 5 estimates."""
    for comment, job in smoke.jobs.items():
        assert job["MinMemoryNode"] == "3039M"
        assert job["TimeLimit"] == ("00:12:00" if "train_wildcards_ppo" in comment else "00:11:00")
        assert job["Requeue"] == "1"
        assert "TresPerJob" not in job
    alone = {c: job for c, job in smoke.jobs.items() if "throughput" in c}
    for comment, job in alone.items():
        assert job["OverSubscribe"] == "NO"
        assert job["NumCPUs"] == str(os.cpu_count())
        others = [other for c, other in smoke.jobs.items() if c != comment]
        assert not any(together(job, other) for other in others)
    shared = [job for c, job in smoke.jobs.items() if c not in alone]
    assert all(job["NumCPUs"] == "1" and job["OverSubscribe"] == "OK" for job in shared)
    covered("memory and time of the jobs; a node of its own for each throughput run")


def test_the_numbers_are_those_of_this_machine_without_slurm(
    smoke: Finished, tmp_path: Path
) -> None:
    """Bit by bit, in all columns that are no clock readings."""
    cells = [CELL.format(algorithm) for algorithm in ("ppo", "trpo")]
    targets = [f"smoke/runs/{cell}/run.json" for cell in cells]
    local = snakemake(tmp_path, written(tmp_path), *targets, "--cores", "2")
    done(run(*local, env=ENVIRONMENT))
    for cell in cells:
        runs = Path("smoke") / "runs" / cell
        assert_same_numbers(smoke.folder / runs, tmp_path / runs)
    covered("rows of both cells bit-equal under SLURM and without it")


def test_a_cuda_cell_gets_a_gpu_and_two_of_them_run_at_once(node: Node, tmp_path: Path) -> None:
    """The GPUs are none, so that the runs fail, with our message."""
    config = written(tmp_path, algorithms=["ppo"], devices=["cuda"], seeds=[0, 1], **NO_SPEED)
    before = node.jobs()
    ended = under_slurm(tmp_path, config, "--retries", "0")
    assert ended.returncode == 1
    one, other = fresh(before, node)
    assert one["TresPerJob"] == other["TresPerJob"] == "gres:gpu:1"
    assert one["MinMemoryNode"] == "5039M"
    assert together(one, other)
    reasons = [path.read_text() for path in (tmp_path / "smoke" / "state").rglob("failure.json")]
    refused = "device: got 'cuda', which cannot be used here: "
    assert [refused in reason for reason in reasons] == [True, True]
    covered("one GPU for each of two cuda jobs, side by side; why they fail is told")


def test_auto_is_refused_before_anything_is_submitted(node: Node, tmp_path: Path) -> None:
    before = node.jobs()
    ended = under_slurm(tmp_path, written(tmp_path, devices=["auto"]))
    assert ended.returncode == 2
    assert "devices: got 'auto', but the jobs run on other machines" in ended.stdout
    assert not fresh(before, node)
    covered("devices: [auto] refused with exit code 2, nothing submitted")


def test_a_job_outlives_its_node(node: Node, tmp_path: Path) -> None:
    """All processes of the node are killed in mid-run; SLURM runs the same job again."""
    steps = 100_000
    config = written(tmp_path, algorithms=["trpo"], total_steps=steps, **NO_SPEED)
    before = node.jobs()
    log = tmp_path / "smoke" / "logs" / "train" / CELL.format("trpo") / "train.log"
    with started(snakemake(tmp_path, config, *PROFILES, *QUICK), tmp_path / "output") as workflow:
        wait_until(log.exists, 60, "the job's log")
        time.sleep(5)
        (job,) = fresh(before, node)
        assert job["JobState"] == "RUNNING"
        node.crash(job["JobId"])
        cell = tmp_path / "smoke" / "runs" / CELL.format("trpo")
        assert not list(cell.glob("*"))
        wait_until(lambda: fresh(before, node)[0]["Restarts"] == "1", 180, "the job is requeued")
        node.start("slurmd")
        assert workflow.wait(300) == 0, (tmp_path / "output").read_text()
    (again,) = fresh(before, node)
    assert (again["JobId"], again["Restarts"]) == (job["JobId"], "1")
    assert again["JobState"] == "COMPLETED"
    assert read_rows(UpdateRow, cell)["env_steps"].iloc[-1] == steps
    covered("a node killed in mid-run: the job requeued by SLURM, the run whole")


def test_a_job_out_of_time_fails_alone(node: Node, tmp_path: Path) -> None:
    """One environment hangs; its second attempt asks for more memory, as for more time."""
    environments = ["Pendulum-v1", "probes:Hang50-v0"]
    config = written(tmp_path, algorithms=["ppo"], environments=environments, **NO_SPEED)
    before = node.jobs()
    ended = under_slurm(tmp_path, config, "--set-resources", "train:runtime=1")
    assert ended.returncode == 1
    first, second = (job for job in fresh(before, node) if "Hang50" in job["Comment"])
    assert first["JobState"] == second["JobState"] == "TIMEOUT"
    assert (first["MinMemoryNode"], second["MinMemoryNode"]) == ("3039M", "6078M")
    results = tmp_path / "smoke"
    page = (results / "partial" / "report.html").read_text()
    assert "1 of 2 cells" in page
    assert "not run, or stopped before its end" in page
    assert not (results / "report.html").exists()
    runs = results / "runs" / "algorithm~ppo"
    assert not list((runs / "environment~probes+3AHang50-v0").rglob("*.*"))
    assert (tmp_path / "smoke" / "runs" / CELL.format("ppo") / "run.json").exists()
    assert not list(tmp_path.rglob("*.partial"))
    covered("a time limit twice exceeded: nothing half-written, the other cell in the report")
