"""The image's recipe, without Docker; `make test-docker` builds and runs it."""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

from rlbench.cli import COMMANDS

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "Dockerfile").read_text()
ENTRYPOINT = ROOT / "container" / "entrypoint"


def install_lines(text: str) -> list[str]:
    """What is said to `pip install`, in order."""
    return re.findall(r"pip (install [^&\n]*?)(?: *\\| *&&)?$", text, re.MULTILINE)


def test_the_image_installs_what_ci_installs() -> None:
    """`.ci/run` runs `make`, whose environment is made by these lines."""
    setup = (ROOT / "Makefile").read_text().partition("\nreport:")[0]
    assert len(install_lines(setup)) == 2
    assert install_lines(DOCKERFILE) == install_lines(setup)


def test_the_version_and_the_licence_are_the_packages() -> None:
    project = (ROOT / "pyproject.toml").read_text()
    for pattern, here in (
        (r'^version = "(.+)"', r"^ARG VERSION=(.+)"),
        (r'^license = "(.+)"', r'image\.licenses="(.+?)"'),
    ):
        there = re.search(pattern, project, re.MULTILINE)
        found = re.search(here, DOCKERFILE, re.MULTILINE)
        assert there is not None
        assert found is not None
        assert found[1] == there[1]


@pytest.mark.parametrize(
    "command", [["hadolint", "Dockerfile"], ["shellcheck", "container/entrypoint"]], ids=" ".join
)
def test_a_linter_has_no_complaint(command: list[str]) -> None:
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_engine_gets_what_the_image_holds_and_nothing_else() -> None:
    """Every source of a COPY is let through by name; all else is kept out by the first line."""
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    first, *rest = [line for line in lines if line and not line.startswith("#")]
    assert first == "*"
    let_through = {line[1:] for line in rest if line.startswith("!")}
    copied = set()
    for line in re.findall(r"^COPY (?!--from)(.+)$", DOCKERFILE, re.MULTILINE):
        words = [word for word in line.split() if not word.startswith("--")]
        copied |= {word.partition("/")[0] for word in words[:-1]}
    assert copied == let_through
    assert {"**/__pycache__", "**/.*"} <= set(rest)
    assert all((ROOT / name).exists() for name in let_through)


def test_the_conda_environment_installs_the_lock_file() -> None:
    """Its versions are the lock's because it installs the lock; its Python is one that CI has."""
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    plain = [entry for entry in environment["dependencies"] if isinstance(entry, str)]
    (by_pip,) = [entry["pip"] for entry in environment["dependencies"] if isinstance(entry, dict)]
    assert by_pip == ["-r requirements.lock", "-e ."]
    names = {re.split("[=<>]", entry)[0] for entry in plain}
    assert names == {"python", "pip", "make"}  # none that the lock file has a version for
    (version,) = [entry.partition("=")[2] for entry in plain if entry.startswith("python=")]
    project = (ROOT / "pyproject.toml").read_text()
    least = re.search(r'requires-python = ">=(\d+)\.(\d+)"', project)
    assert least is not None
    assert tuple(map(int, version.split("."))) >= tuple(map(int, least.groups()))


@pytest.fixture
def container(tmp_path: Path) -> dict[str, str]:
    """What the entrypoint finds: programs that print how they were called, and a mounted folder."""
    programs, results = tmp_path / "bin", tmp_path / "results"
    programs.mkdir()
    results.mkdir()
    for name in ("snakemake", "rlbench", "python", "figures"):
        program = programs / name
        program.write_text('#!/bin/sh\necho "$(basename "$0") $*; HOME=$HOME USER=$USER"\n')
        program.chmod(0o755)
    mounts = tmp_path / "mountinfo"
    mounts.write_text(f"37 27 0:34 / {results} rw,relatime - ext4 /dev/sda1 rw\n")
    return {
        "PATH": f"{programs}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "USER": "me",
        "RLBENCH_RESULTS": str(results),
        "RLBENCH_MOUNTINFO": str(mounts),
    }


def entered(env: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """What the entrypoint did with the arguments of `docker run`."""
    return subprocess.run(
        [ENTRYPOINT, *arguments], env=env, capture_output=True, text=True, check=False
    )


@pytest.mark.parametrize(
    ("arguments", "called"),
    [
        ("", "snakemake --cores all"),
        ("-n --configfile config/smoke.yaml", "snakemake --cores all -n --configfile config/smoke"),
        ("smoke/report.html", "snakemake --cores all smoke/report.html"),
        ("snakemake --cores 2", "snakemake --cores 2;"),
        ("rlbench info", "rlbench info;"),
        ("train --algorithm trpo", "rlbench train --algorithm trpo;"),
        ("figures results/smoke", "rlbench figures results/smoke;"),  # though there is a program
        ("python -c 1", "python -c 1;"),
    ],
)
def test_arguments_choose_what_runs(arguments: str, called: str, container: dict[str, str]) -> None:
    done = entered(container, *arguments.split())
    assert done.stdout.startswith(called)
    assert done.stderr == ""
    assert done.returncode == 0


def test_every_command_of_rlbench_is_known_to_the_entrypoint() -> None:
    words = re.findall(r"^    ([a-z| -]+)\)$", ENTRYPOINT.read_text(), re.MULTILINE)
    known = {name.strip() for alternatives in words for name in alternatives.split("|")}
    assert set(COMMANDS) <= known


@pytest.mark.parametrize(
    ("home", "user", "expected"),
    [
        (None, None, "HOME=/tmp USER=rlbench"),
        ("", "", "HOME=/tmp USER=rlbench"),
        ("/proc/nobody", "you", "HOME=/tmp USER=you"),
    ],
)
def test_an_unknown_user_has_a_home_and_a_name(
    home: str | None, user: str | None, expected: str, container: dict[str, str]
) -> None:
    given = {"HOME": home, "USER": user}
    env = {k: v for k, v in (container | given).items() if v is not None}
    assert expected in entered(env, "info").stdout


def test_results_that_are_not_mounted_are_said_to_be(container: dict[str, str]) -> None:
    Path(container["RLBENCH_MOUNTINFO"]).write_text("37 27 0:34 / / rw - overlay overlay rw\n")
    done = entered(container)
    assert done.stdout.startswith("snakemake --cores all")
    host = subprocess.run(["hostname"], capture_output=True, text=True, check=True).stdout.strip()
    assert f"docker cp {host}:{container['RLBENCH_RESULTS']}/. results" in done.stderr
    assert entered(container, "info").stderr == ""


def test_results_that_are_missing_stop_it(container: dict[str, str]) -> None:
    Path(container["RLBENCH_RESULTS"]).rmdir()
    for arguments in ((), ("train",), ("snakemake", "-n")):
        done = entered(container, *arguments)
        assert done.returncode == 2
        assert done.stdout == ""
        assert f"user {os.getuid()}:{os.getgid()} cannot write to" in done.stderr


APPTAINER = """#!/bin/sh
# In place of Apptainer: the command runs here, with the image's programs first on the PATH.
if [ "$1" = --version ]; then echo apptainer version 1.4.5; exit; fi
echo "$@" >> {calls}
while [ "$1" != -c ]; do shift; done
APPTAINER_CONTAINER=image.sif PATH={programs}:$PATH exec bash -c "$2"
"""
WITH_GPU = """
from rlbench import devices
from rlbench.spec.grid import Devices
devices.devices_here = Devices.both
"""


@dataclass(frozen=True)
class Contained:
    """A workflow whose jobs run in a stand-in for a container, and what is called there."""

    folder: Path
    image: Path
    calls: Path

    def run(self, device: str) -> subprocess.CompletedProcess[str]:
        """One cell and its tables, or the failure of it."""
        config = self.folder / "config.yaml"
        values = {
            "name": "tiny", "algorithms": ["ppo"], "environments": ["Pendulum-v1"],
            "num_envs": [1], "devices": [device], "seeds": [0], "total_steps": 400,
            "batch_size": 400, "eval_episodes": 1, "throughput": {"measure": "never"},
            "container": str(self.image),
        }  # fmt: skip
        config.write_text(yaml.safe_dump(values))
        command: list[str | Path] = [
            "snakemake", "--cores", "1", "--profile", "profiles/apptainer",
            "--directory", str(self.folder), "tiny/tables", "--configfile", str(config),
        ]  # fmt: skip
        env = os.environ | {"PATH": f"{self.folder}/bin:{os.environ['PATH']}"}
        if device == "cuda":
            env["PYTHONPATH"] = str(self.folder)  # sitecustomize.py gives it one
        return subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )

    def called(self, word: str) -> list[str]:
        """Calls that begin with a word, in order."""
        return [line for line in self.calls.read_text().splitlines() if line.startswith(word)]


@pytest.fixture
def contained(tmp_path: Path) -> Contained:
    """An image that isn't one, beside a program that is called like Apptainer."""
    made = Contained(tmp_path, tmp_path / "image.sif", tmp_path / "calls")
    made.image.touch()
    inner, outer = tmp_path / "image" / "rlbench", tmp_path / "bin" / "apptainer"
    real = Path(sys.executable).parent / "rlbench"
    texts = {
        inner: f'#!/bin/sh\necho "inside $1" >> {made.calls}\nexec {real} "$@"\n',
        outer: APPTAINER.format(calls=made.calls, programs=inner.parent),
    }
    for program, text in texts.items():
        program.parent.mkdir()
        program.write_text(text)
        program.chmod(0o755)
    (tmp_path / "sitecustomize.py").write_text(WITH_GPU)
    return made


@pytest.mark.workflow
def test_jobs_in_a_container_use_the_rlbench_of_the_container(contained: Contained) -> None:
    """Each job that is started goes through the image's rlbench, none to the one out here."""
    done = contained.run("cpu")
    assert done.returncode == 0, done.stderr
    assert contained.called("inside") == ["inside train", "inside aggregate", "inside tables"]
    starts = contained.called("exec ")
    assert len(starts) == 3
    assert all(f" {contained.image} " in line and " --nv " not in line for line in starts)
    contained.image.unlink()
    refused = contained.run("cpu")
    assert refused.returncode == 2
    assert f"container: got '{contained.image}', but there is no {contained.image}" in (
        refused.stderr
    )


@pytest.mark.workflow
def test_a_cell_for_cuda_gets_the_flag_for_it(contained: Contained) -> None:
    """Whether or not this machine has a GPU to train on, which is not asked here."""
    contained.run("cuda")
    starts = contained.called("exec ")
    assert starts
    assert all(line.split().count("--nv") == 1 for line in starts)
