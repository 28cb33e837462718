"""Config, grid and paths: what the rules share. All of it is checked before the first job."""

import os
import shlex
import subprocess
import sys
from contextlib import chdir, redirect_stderr
from io import StringIO
from pathlib import Path

import pandas as pd
from snakemake.cli import parse_args
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import Paramspace, min_version
from snakemake_interface_executor_plugins.registry import ExecutorPluginRegistry

from rlbench.errors import InputError
from rlbench.spec import grid, requests
from rlbench.spec.config import load_benchmark
from rlbench.spec.plan import make_plan, named_devices
from rlbench.spec.settings import parsed

min_version("9.13")


ROOT = Path(workflow.basedir)
OWN_CONTAINER = os.environ.get("APPTAINER_CONTAINER", "")
# Jobs find the rlbench beside this Python; those in another container than Snakemake have their own.
shell.prefix(
    f'[ "${{{{APPTAINER_CONTAINER-}}}}" != {shlex.quote(OWN_CONTAINER)} ] '
    f"|| PATH={shlex.quote(str(Path(sys.executable).parent))}:$PATH; "
)


def config_file():
    """The last --configfile, or config/config.yaml."""
    given = workflow.overwrite_configfiles
    return Path(given[-1]) if given else ROOT / "config" / "config.yaml"


def jobs_run_elsewhere():
    """Whether an executor sends the jobs to other machines, or this is one of them, arrived there.

    Snakemake chooses its executor after it has read the Snakefile, so the command line and the
    profiles are asked; every executor that sends jobs away needs --jobs, which is `nodes` here.
    """
    if workflow.remote_exec:
        return True
    if workflow.nodes is None:
        return False
    # Profiles are looked for from there, and named on stderr, a second time.
    with chdir(workflow.rundir), redirect_stderr(StringIO()):
        _, given = parse_args(None)
    plugin = ExecutorPluginRegistry().get_plugin(given.executor or "local")
    return plugin.common_settings.non_local_exec


def devices_here(environments):
    """What a run can use; each environment is made once to see that it can be had.

    Asked in a process of its own: neither torch nor Gymnasium is imported here.
    """
    command = [
        sys.executable,
        "-m",
        "rlbench.cli",
        "info",
        "--devices",
        "--json",
        "--environments",
    ]
    asked = subprocess.run([*command, *environments], capture_output=True, text=True)
    if asked.returncode:
        raise InputError(
            f"{SOURCE}: {asked.stderr.removeprefix('rlbench: error: ').strip()}"
        )
    return parsed(grid.Devices, asked.stdout, "rlbench info")


def total_cores():
    """The cores of --cores; None on a cluster, where each job has its own."""
    try:
        return None if ELSEWHERE else workflow.cores
    except WorkflowError:
        return None


def plan_devices(benchmark):
    """What is on this machine; of jobs that run elsewhere, what the config names.

    The environments are made once where the workflow starts, not again in each of its jobs.
    """
    if not ELSEWHERE:
        return devices_here(benchmark.environments)
    named = named_devices(benchmark, SOURCE)
    if not workflow.remote_exec:
        devices_here(benchmark.environments)
    return named


def in_containers():
    """Whether jobs run in the image."""
    methods = workflow.deployment_settings.deployment_method
    return DeploymentMethod.APPTAINER in methods


def image_of(benchmark):
    """The image: a URL, or a file, from the repository's root if its path is relative."""
    given = benchmark.container
    image = given if "://" in given else str(ROOT / given)
    if in_containers() and image.startswith("/") and not Path(image).exists():
        raise InputError(
            f"{SOURCE}: container: got '{given}', but there is no {image}; "
            "docs/apptainer.md says how to make it, or give a path, docker-archive:// or docker://"
        )
    return image


CONFIG = config_file()
SOURCE = str(CONFIG.relative_to(ROOT) if CONFIG.is_relative_to(ROOT) else CONFIG)
ELSEWHERE = jobs_run_elsewhere()


def load_plan():
    """The plan of the config and the image, or one message and exit code 2."""
    try:
        benchmark = load_benchmark(CONFIG, workflow.config_settings.config)
        plan = make_plan(benchmark, plan_devices(benchmark), SOURCE)
        cores = total_cores()
        if cores is not None and cores < benchmark.cpu_threads:
            raise InputError(
                f"{SOURCE}: cpu_threads: got {benchmark.cpu_threads}, but --cores is {cores}; "
                "raise --cores or lower cpu_threads"
            )
        return plan, image_of(benchmark)
    except InputError as error:
        print(f"rlbench: error: {error}", file=sys.stderr)
        raise SystemExit(2) from None


PLAN, IMAGE = load_plan()
for device, reason in PLAN.left_out.items() if workflow.is_main_process else ():
    print(f"rlbench: {device} is left out: {reason}", file=sys.stderr)
CELLS = {cell.path: cell for cell in PLAN.cells}
ARMS = {arm.path: arm for arm in grid.arms(PLAN.cells)}
RESULTS = Path(
    PLAN.benchmark.name
)  # in the working directory, results/ by the default profile
PARTIAL = RESULTS / "partial"
PLAN_JSON = PLAN.model_dump_json()
if "cuda" in {cell.device for cell in PLAN.cells}:
    arguments = workflow.deployment_settings.apptainer_args
    if "--nv" not in arguments.split():
        workflow.deployment_settings.apptainer_args = f"{arguments} --nv".strip()


def axes(members):
    """The axis values of cells or arms as the wildcards of their paths."""
    rows = [dict(part.split("~") for part in path.split("/")) for path in members]
    return Paramspace(pd.DataFrame(rows, dtype=str))


CELL_SPACE, ARM_SPACE = axes(CELLS), axes(ARMS)
CELL_FILES = [RESULTS / "runs" / path / "run.json" for path in CELLS]
ARM_FILES = (
    [RESULTS / "throughput" / path / "run.json" for path in ARMS]
    if PLAN.benchmark.throughput.measure == "always"
    else []
)


wildcard_constraints:
    **{axis: "[^/]+" for axis in CELL_SPACE.dataframe.columns},


def cell_of(wildcards):
    return CELLS[CELL_SPACE.wildcard_pattern.format(**wildcards)]


def arm_of(wildcards):
    return ARMS[ARM_SPACE.wildcard_pattern.format(**wildcards)]


def train_job(wildcards):
    """The job of a cell."""
    return grid.job(PLAN.benchmark, cell_of(wildcards), SOURCE)


def throughput_job(wildcards):
    """The speed measurement of an arm."""
    return grid.throughput_job(PLAN.benchmark, arm_of(wildcards), SOURCE)


def job_json(wildcards):
    """The job of a cell: a change of any value in it makes this cell, and no other, run again."""
    return train_job(wildcards).model_dump_json()


def throughput_json(wildcards):
    """The speed measurement of an arm."""
    return throughput_job(wildcards).model_dump_json()


def gpus(wildcards):
    """GPUs that a job needs."""
    return 1 if wildcards.device == "cuda" else 0


def train_memory_mb(wildcards, attempt):
    """Memory that a scheduler is asked for; without --resources mem_mb=N it limits nothing here."""
    return requests.memory_mb(train_job(wildcards), attempt)


def train_minutes(wildcards, attempt):
    """Time after which a scheduler may end a learning run; here nothing does."""
    return requests.learning_minutes(train_job(wildcards), attempt)


def throughput_memory_mb(wildcards, attempt):
    """The same for a speed measurement."""
    return requests.memory_mb(throughput_job(wildcards).job, attempt)


def throughput_minutes(wildcards, attempt):
    """The same for a speed measurement."""
    return requests.throughput_minutes(throughput_job(wildcards), attempt)


def whole_machine(wildcards):
    """All cores, so that nothing runs beside; the job's own threads on a cluster."""
    return total_cores() or PLAN.benchmark.cpu_threads


def cell_threads(wildcards):
    """PyTorch's threads and, if asked for by name, one per environment process."""
    run = PLAN.benchmark
    workers = int(wildcards.num_envs) if run.vector_mode == "async" else 0
    return run.cpu_threads + workers
