"""The image under a Docker engine of its own, and under Apptainer: `make test-docker`.

It needs root and Debian or Ubuntu, installs what it lacks with apt-get, and starts an engine in a
temporary folder. These variables save time:

DOCKER_HOST          an engine that runs already is used as it is
RLBENCH_WHEELHOUSE   a folder of wheels to take packages from, before the index
RLBENCH_BASE_IMAGE   a base image that the engine has, or can pull
APPTAINER_ROOT       a Debian tree with Apptainer in it
"""

import json
import os
import pty
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml
from support import (
    ROOT,
    assert_same_numbers,
    covered,
    done,
    require_packages,
    run,
    wait_until,
)

USER = 1234
"""A uid that neither this machine nor the image knows."""
SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""The Debian whose Python is the one that the wheels here are for."""
TINY = {
    "name": "tiny",
    "algorithms": ["ppo"],
    "environments": ["Pendulum-v1"],
    "num_envs": [2],
    "devices": ["auto"],
    "seeds": [0],
    "total_steps": 1600,
    "batch_size": 400,
    "eval_every_steps": 800,
    "eval_episodes": 2,
    "throughput": {"measure": "never"},
}
MINUTE = TINY | {"name": "minute", "total_steps": 500_000, "batch_size": 2000, "compile": "never"}
CELL = "algorithm~{}/environment~Pendulum-v1/num_envs~{}/device~cpu/seed~{}"
TINY_CELL = "tiny/runs/" + CELL.format("ppo", 2, 0)
APPTAINER = r"""#!/bin/sh
# Apptainer of another Debian, entered by a mount namespace of its own: it refuses a plain chroot.
R=${APPTAINER_ROOT:?}; export R
exec unshare -m --propagation private sh -c '
  set -e; cwd=$(pwd); mount --bind "$R" "$R"; cd "$R"; mkdir -p work root .old
  mount -t proc proc proc; mount --rbind /sys sys; mount --rbind /dev dev
  for d in /tmp "$HOME" "/$(echo "$cwd" | cut -d/ -f2)"; do
    mkdir -p "$R$d"; mount --rbind "$d" "$R$d"
  done
  pivot_root . .old; cd /; umount -l /.old; cd "$cwd"; exec /usr/bin/apptainer "$@"' sh "$@"
"""


@dataclass(frozen=True)
class Engine:
    """A Docker engine, and the commands that talk to it."""

    env: dict[str, str]
    gpus: bool  # whether --gpus is understood

    def docker(self, *command: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
        """One docker command."""
        return run("docker", *command, cwd=cwd, env=self.env)

    def rlbench(self, *command: str | Path) -> subprocess.CompletedProcess[str]:
        """One container of the image, removed afterwards: options, `rlbench`, arguments."""
        return self.docker("run", "--rm", *command)


@pytest.fixture(scope="session")
def place() -> Iterator[Path]:
    """A folder for everything, gone at the end."""
    folder = Path(tempfile.mkdtemp(prefix="rlbench-docker-"))
    folder.chmod(0o755)
    yield folder
    done(run("rm", "-rf", folder))  # many small files: faster than Python


@pytest.fixture(scope="session")
def engine(place: Path) -> Iterator[Engine]:
    """An engine of our own, with a stand-in for NVIDIA's hook so that it understands --gpus."""
    env = os.environ | {
        "PATH": f"{place / 'bin'}:/usr/bin:{os.environ['PATH']}",
        "DOCKER_BUILDKIT": "1",
    }
    if "DOCKER_HOST" in os.environ:
        yield Engine(env, gpus=False)
        return
    require_packages({"docker.io": "dockerd", "iptables": "iptables"})
    write_program(place / "bin" / "nvidia-container-runtime-hook", "#!/bin/sh\nexit 0\n")
    env["DOCKER_HOST"] = f"unix://{place}/docker.sock"
    with (place / "dockerd.log").open("w") as log:
        daemon = subprocess.Popen(
            ["dockerd", "--data-root", place / "data", "--exec-root", place / "exec",
             "--pidfile", place / "dockerd.pid", "--host", env["DOCKER_HOST"]],
            env=env, stdout=log, stderr=log, stdin=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
    started = Engine(env, gpus=True)
    try:
        wait_until(lambda: started.docker("info").returncode == 0, 60, "the engine to answer")
        yield started
    finally:
        daemon.terminate()
        daemon.wait(60)


def write_program(path: Path, text: str) -> None:
    """An executable file."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)


def base_image(engine: Engine) -> str:
    """A base with the Python that the wheels are for, made without a registry."""
    if given := os.environ.get("RLBENCH_BASE_IMAGE"):
        return given
    require_packages({"mmdebstrap": "mmdebstrap"})
    suite = SUITES.get(sys.version_info[:2])
    assert suite, f"got Python {sys.version_info[:2]}; set RLBENCH_BASE_IMAGE, or use {SUITES}"
    name = f"localbase:{suite}"
    make = f"mmdebstrap --variant=apt --quiet {suite} - | docker import - {name}"
    done(run("bash", "-o", "pipefail", "-c", make, env=engine.env))
    return name


@pytest.fixture(scope="session")
def engine_with_image(engine: Engine, place: Path) -> Engine:
    """The image built by `make image` without an index, from a copy of this checkout."""
    base, context = base_image(engine), place / "context"
    files = done(run("git", "ls-files", "--cached", "--others", "--exclude-standard")).split("\n")
    for name in filter(None, files):
        (context / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, context / name)
    wheels = os.environ.get("RLBENCH_WHEELHOUSE", "")
    find = {"PIP_FIND_LINKS": f"{wheels} {os.environ.get('PIP_FIND_LINKS', '')}"} if wheels else {}
    (context / ".venv").mkdir()
    (context / ".venv" / ".ready").touch()
    here = f"BIN={Path(sys.executable).parent}"
    done(run("make", "wheelhouse", here, cwd=context, env=engine.env | find))
    start = time.monotonic()
    build = f"BUILD=--build-arg BASE_IMAGE={base} --build-arg PIP_NO_INDEX=1"
    done(run("make", "image", "COMMIT=0123abc", build, cwd=context, env=engine.env))
    size = int(done(engine.docker("image", "inspect", "rlbench", "--format", "{{.Size}}")))
    seconds = time.monotonic() - start
    covered(f"image of {size / 1e9:.2f} GB built on {base}, offline, in {seconds:.0f} s")
    return engine


def config_file(folder: Path, values: dict[str, object]) -> Path:
    """A config that any user can read."""
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(values))
    path.chmod(0o644)
    return path


def results_of(folder: Path, user: int = USER) -> Path:
    """An empty results folder that belongs to a user."""
    results = folder / "results"
    results.mkdir()
    os.chown(results, user, user)
    folder.chmod(0o755)
    return results


def as_user(results: Path, config: Path) -> list[str]:
    """Options of `docker run` for a user with a results folder and a config."""
    mounts = ["--volume", f"{results}:/results", "--volume", f"{config}:/config.yaml:ro"]
    return ["--user", f"{USER}:{USER}", *mounts]


@pytest.fixture(scope="session")
def on_host(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of the tiny grid on this machine, without a container."""
    folder = tmp_path_factory.mktemp("host")
    config = config_file(folder, TINY)
    snakemake = ("snakemake", "--cores", "2", "--directory", folder, "--configfile", config)
    done(run(*snakemake))
    return folder


def test_the_image_says_what_it_is(engine_with_image: Engine) -> None:
    """Labels, user, and a bill of materials in which every pin of the lock file is."""
    docker = engine_with_image
    facts = json.loads(done(docker.docker("image", "inspect", "rlbench")))[0]["Config"]
    assert facts["User"] == "10001:10001"
    labels = {key.rpartition(".")[2]: value for key, value in facts["Labels"].items()}
    assert labels["revision"] == "0123abc"
    assert labels["licenses"] == "MIT"
    assert f"RLBENCH_GIT_COMMIT={labels['revision']}" in facts["Env"]
    bill = done(docker.rlbench("rlbench", "cat", "/etc/rlbench/image.txt")).splitlines()
    assert bill[1:3] == [f"version {labels['version']}", "commit 0123abc"]
    pins = [p for p in (ROOT / "requirements.lock").read_text().splitlines() if p[0] != "#"]
    inside = {line.partition("+")[0] for line in bill}  # torch 2.13.0+cpu is 2.13.0
    assert {f"pip {pin}" for pin in pins} <= inside
    assert any(line.startswith("deb g++:") for line in bill)
    shell = done(docker.rlbench("rlbench", "bash", "-c", "id -u; type -P make git || echo none"))
    assert shell.split() == ["10001", "none"]
    covered("user 10001, OCI labels, a bill of materials with every pin of the lock file")


def test_arguments_reach_snakemake_rlbench_or_a_program(engine_with_image: Engine) -> None:
    docker = engine_with_image
    dry_run = done(docker.rlbench("rlbench", "--configfile", "config/smoke.yaml", "-n"))
    assert any(line.split() == ["train", "8"] for line in dry_run.splitlines())
    default = done(docker.rlbench("rlbench", "snakemake", "--cores", "1", "-n"))
    assert any(line.split()[:1] == ["train"] for line in default.splitlines())
    facts = json.loads(done(docker.rlbench("rlbench", "rlbench", "info")))
    assert facts["software"]["git_commit"] == "0123abc"
    assert facts["software"]["image_digest"].startswith("sha256:")
    assert "8 cells" in done(docker.rlbench("rlbench", "check", "config/smoke.yaml"))
    assert done(docker.rlbench("rlbench", "python", "-c", "print(6 * 7)")) == "42\n"
    covered("arguments of snakemake (default grid, config in the image), rlbench, python")


def test_the_smoke_grid_belongs_to_the_caller_and_has_the_hosts_numbers(
    engine_with_image: Engine, tmp_path: Path
) -> None:
    results = results_of(tmp_path)
    start = time.monotonic()
    smoke = ("rlbench", "--configfile", "config/smoke.yaml")
    volume = f"{results}:/results"
    said = done(engine_with_image.rlbench("--user", f"{USER}:{USER}", "--volume", volume, *smoke))
    seconds = time.monotonic() - start
    assert "rlbench: cuda is left out: the host of this container has no NVIDIA driver" in said
    assert "8 of 8 cells" in (results / "smoke" / "report.html").read_text()
    assert {path.stat().st_uid for path in results.rglob("*")} == {USER}
    for algorithm, num_envs, seed in (("ppo", 8, 1), ("trpo", 1, 0)):
        cell = f"{algorithm}/Pendulum-v1/{num_envs}/cpu/{seed}"
        here = tmp_path / "here"
        told = done(run("rlbench", "verify", results / "smoke", cell, "--output-dir", here))
        assert f"{cell}: equal to the last bit" in told
        assert re.search(r"software.image_digest: sha256:\w{64} then, not there now", told)
        path = CELL.format(algorithm, num_envs, seed)
        assert_same_numbers(here / path, results / "smoke" / "runs" / path)
    read_only = ("--volume", f"{results}:/results:ro")
    again = done(engine_with_image.rlbench(*read_only, "rlbench", "verify", "/results/smoke", cell))
    assert again.startswith(f"{cell}: equal to the last bit")
    assert "differs from the record" not in again
    covered(
        f"smoke grid in {seconds:.0f} s as uid {USER}; PPO and TRPO cells bit-equal to the host's, "
        "by rlbench verify there and by the test itself"
    )


@pytest.mark.parametrize(
    ("options", "changes"),
    [
        (["--read-only", "--tmpfs", "/tmp"], {}),  # noqa: S108 (the container's)
        (["--network", "none"], {}),
        (["--env", "HOME=", "--env", "USER="], {}),
        (["--shm-size", "64m"], {"vector_mode": "async"}),
        (["--gpus", "all"], {}),
    ],
    ids=["read-only", "no-network", "no-home", "async-64m-shm", "gpus-without-one"],
)
def test_a_grid_runs_under(
    options: list[str],
    changes: dict[str, object],
    engine_with_image: Engine,
    on_host: Path,
    tmp_path: Path,
) -> None:
    """The same numbers as on the host each time, whatever the container lacks."""
    if "--gpus" in options and not engine_with_image.gpus:
        pytest.skip("this engine may not know --gpus")
    results = results_of(tmp_path)
    arguments = as_user(results, config_file(tmp_path, TINY | changes))
    grid = ("rlbench", "--cores", "2", "--configfile", "/config.yaml")
    done(engine_with_image.rlbench(*options, *arguments, *grid))
    assert (results / "tiny" / "report.html").is_file()
    assert_same_numbers(on_host / TINY_CELL, results / TINY_CELL)
    covered(f"a grid with {' '.join(options)} {changes or ''}")


def test_without_a_gpu_only_cpu_cells_are_there(engine_with_image: Engine, tmp_path: Path) -> None:
    docker = engine_with_image
    cuda = config_file(tmp_path, TINY | {"devices": ["cuda"]})
    refused = docker.rlbench("--volume", f"{cuda}:/c.yaml:ro", "rlbench", "--configfile", "/c.yaml")
    assert refused.returncode == 2
    no_driver = "the host of this container has no NVIDIA driver"
    assert f"devices: got 'cuda', which cannot be used here: {no_driver}" in refused.stdout
    driver = ("--device", "/dev/null:/dev/dxg")  # as of a host with WSL's driver
    forgotten = done(docker.rlbench(*driver, "rlbench", "info", "--devices"))
    assert "this container was started without it: use `docker run --gpus all`" in forgotten
    if docker.gpus:
        look = "echo $NVIDIA_VISIBLE_DEVICES; rlbench info --devices 2>/dev/null"
        seen = done(docker.rlbench("--gpus", "all", "rlbench", "bash", "-c", look))
        assert seen.split() == ["all", "cpu"]
        said = done(docker.rlbench("--gpus", "all", "rlbench", "info", "--devices"))
        covered(f"--gpus all reaches the container, which says: {' '.join(said.split())}")
    covered("cuda asked for without one: exit code 2; no driver and no --gpus are told apart")


def test_results_that_nobody_mounted_can_be_fetched_as_it_says(
    engine_with_image: Engine, tmp_path: Path
) -> None:
    docker, config = engine_with_image, config_file(tmp_path, TINY)
    name = f"unmounted-{os.getpid()}"
    mount = f"{config}:/config.yaml:ro"
    grid = ("rlbench", "--cores", "2", "--configfile", "/config.yaml")
    said = done(docker.docker("run", "--name", name, "--volume", mount, *grid))
    lines = [line.strip() for line in said.splitlines() if "docker cp" in line]
    assert len(lines) == 1, said
    done(run("bash", "-c", lines[0], cwd=tmp_path, env=docker.env))
    done(docker.docker("rm", name))
    assert "1 of 1 cells" in (tmp_path / "results" / "tiny" / "report.html").read_text()
    covered(f"no /results: says so; `{lines[0]}` fetches them")


def test_results_that_cannot_be_written_stop_it_at_once(
    engine_with_image: Engine, tmp_path: Path
) -> None:
    results = results_of(tmp_path, user=0)
    refused = engine_with_image.rlbench("--volume", f"{results}:/results", "rlbench")
    assert refused.returncode == 2
    assert "/results: got a folder (0:0, mode 755) that user 10001:10001 cannot" in refused.stdout
    assert "--user $(id -u):$(id -g)" in refused.stdout
    assert not list(results.iterdir())
    covered("an unwritable /results: exit code 2 and the way out")


def test_compiled_programs_need_a_folder_that_may_run_code(
    engine_with_image: Engine, tmp_path: Path
) -> None:
    """10,000 minibatches of one step each, from which `auto` compiles."""
    docker, results = engine_with_image, results_of(tmp_path)
    few = ("--epochs", "1", "--minibatch-size", "1", "--eval-episodes", "1")
    train = ("rlbench", "train", *few, "--total-steps", "10000", "--output-dir")
    options = as_user(results, config_file(tmp_path, TINY))
    noexec = ("--read-only", "--tmpfs", "/tmp")  # noqa: S108
    always = ("--total-steps", "2000", "--compile", "always")
    done(docker.rlbench(*options, *train, "/results/exec", *always))
    done(docker.rlbench(*options, *noexec, *train, "/results/noexec"))
    refused = docker.rlbench(*options, *noexec, *train, "/results/no", *always)
    assert refused.returncode == 2
    assert "its folder /tmp/.cache/rlbench/inductor is on a file system mounted noexec" in (
        refused.stdout
    )
    compiled = {
        name: json.loads((results / name / "run.json").read_text())["compiled"]
        for name in ("exec", "noexec")
    }
    assert compiled == {"exec": True, "noexec": False}
    covered(
        "compile: always with the image's g++; with a noexec /tmp auto is eager, always exits 2"
    )


def test_stop_and_control_c_end_the_jobs_cleanly(engine_with_image: Engine, tmp_path: Path) -> None:
    """A job of a minute, cut by `docker stop`, begun again and cut by Ctrl-C, then left to end."""
    docker, results = engine_with_image, results_of(tmp_path)
    name = f"minute-{os.getpid()}"
    options = ["--name", name, *as_user(results, config_file(tmp_path, MINUTE))]
    grid = ["rlbench", "--cores", "2", "--configfile", "/config.yaml"]

    done(docker.docker("run", "--detach", *options, *grid))
    wait_for_training(docker, name, results)
    start = time.monotonic()
    done(docker.docker("stop", "--time", "60", name))
    stopped_s = time.monotonic() - start
    code = int(done(docker.docker("inspect", name, "--format", "{{.State.ExitCode}}")))
    assert code not in {0, 137}, done(docker.docker("logs", name))
    done(docker.docker("rm", name))
    assert_nothing_half_written(results)

    terminal, end = pty.openpty()
    with subprocess.Popen(
        ["docker", "run", "--rm", "--interactive", "--tty", *options, *grid],
        env=docker.env, stdin=end, stdout=end, stderr=end,
    ) as client:  # fmt: skip
        os.close(end)
        wait_for_training(docker, name, results)
        start = time.monotonic()
        os.write(terminal, b"\x03")
        assert client.wait(60) not in {0, 128 + signal.SIGKILL}
        interrupted_s = time.monotonic() - start
    os.close(terminal)
    assert_nothing_half_written(results)

    done(docker.docker("run", "--rm", *options, *grid))
    assert "1 of 1 cells" in (results / "minute" / "report.html").read_text()
    covered(f"docker stop took {stopped_s:.0f} s, Ctrl-C {interrupted_s:.0f} s; a rerun completes")


def wait_for_training(docker: Engine, name: str, results: Path) -> None:
    """Return once a container's training is under way, and not merely importing."""
    folder = results / "minute" / "logs" / "train"
    started = time.time()

    def trains() -> bool:
        logs = [path.stat() for path in folder.rglob("*.log")]
        return any(log.st_size > 0 and log.st_mtime > started for log in logs)

    wait_until(trains, 90, f"a line in the log of the job in {name}")
    time.sleep(3)
    assert "rlbench train" in done(docker.docker("top", name))


def assert_nothing_half_written(results: Path) -> None:
    """No lock, no partial file, no fact of the run that was cut."""
    assert not list(results.glob(".snakemake/locks/*"))
    assert not list(results.rglob("*.partial*"))
    runs = [path.name for path in (results / "minute" / "runs").rglob("*") if path.is_file()]
    assert not runs, runs
    assert not (results / "minute" / "report.html").exists()


@pytest.fixture(scope="session")
def apptainer(engine_with_image: Engine, place: Path) -> tuple[dict[str, str], Path]:
    """An environment that has `apptainer`, and the image as it wants it."""
    env = dict(engine_with_image.env)
    if not shutil.which("apptainer"):
        tree = Path(env.get("APPTAINER_ROOT", place / "sid"))
        if not tree.exists():
            require_packages({"debootstrap": "debootstrap"})
            include = "--include=apptainer,ca-certificates,squashfs-tools,fuse3"
            done(run("debootstrap", "--variant=minbase", include, "sid", tree))
        for name in ("hosts", "resolv.conf"):
            shutil.copy(f"/etc/{name}", tree / "etc" / name)
        write_program(place / "bin" / "apptainer", APPTAINER)
        env["APPTAINER_ROOT"] = str(tree)
    archive, image = place / "rlbench.tar", place / "rlbench.sif"
    done(engine_with_image.docker("save", "rlbench", "--output", archive))
    fast = ("--mksquashfs-args", "-comp gzip -Xcompression-level 1")
    build = ("apptainer", "build", *fast, image, f"docker-archive://{archive}")
    start = time.monotonic()
    done(run(*build, env=env, cwd=place))
    archive.unlink()
    seconds = time.monotonic() - start
    covered(
        f"{image.name} of {image.stat().st_size / 1e9:.2f} GB from docker save in {seconds:.0f} s"
    )
    return env, image


def test_apptainer_runs_every_job_in_the_image(
    apptainer: tuple[dict[str, str], Path], on_host: Path, tmp_path: Path
) -> None:
    env, image = apptainer
    config = config_file(tmp_path, TINY | {"container": str(image)})
    here = ("--directory", tmp_path, "--configfile", config)
    command = ("snakemake", "--cores", "2", "--profile", "profiles/apptainer", *here)
    done(run(*command, "--apptainer-args=--no-privs", env=env))
    facts = json.loads((tmp_path / TINY_CELL / "run.json").read_text())
    assert facts["software"]["git_commit"] == "0123abc"  # the image's, not the checkout's
    assert (tmp_path / "tiny" / "report.html").is_file()
    assert_same_numbers(on_host / TINY_CELL, tmp_path / TINY_CELL)
    covered("profiles/apptainer: jobs in the image, bit-equal to the host's")


def test_apptainer_runs_the_whole_grid_in_the_image(
    apptainer: tuple[dict[str, str], Path], on_host: Path, tmp_path: Path
) -> None:
    env, image = apptainer
    results = tmp_path / "results"
    results.mkdir()
    config = config_file(tmp_path, TINY)
    binds = ("--pwd", "/opt/rlbench/app", "--bind", f"{results}:/results")
    grid = ("--cores", "2", "--configfile", config)
    done(run("apptainer", "run", "--no-privs", *binds, image, *grid, env=env, cwd=tmp_path))
    assert_same_numbers(on_host / TINY_CELL, results / TINY_CELL)
    covered("apptainer run: the whole grid in the image, bit-equal to the host's")
