"""Config, grid and paths: what the rules share. All of it is checked before the first job."""

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pandas as pd
from snakemake.exceptions import WorkflowError
from snakemake.settings.types import DeploymentMethod
from snakemake.utils import Paramspace, min_version

from rlbench.errors import InputError
from rlbench.spec import grid
from rlbench.spec.config import load_benchmark
from rlbench.spec.plan import make_plan

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


def devices_here(environments):
    """What `devices: auto` may become; each environment is made once to see that it can be had.

    Asked in a process of its own: neither torch nor Gymnasium is imported here.
    """
    command = [
        sys.executable,
        "-m",
        "rlbench.cli",
        "info",
        "--devices",
        "--environments",
    ]
    asked = subprocess.run([*command, *environments], capture_output=True, text=True)
    if asked.returncode:
        raise InputError(
            f"{SOURCE}: {asked.stderr.removeprefix('rlbench: error: ').strip()}"
        )
    return tuple(asked.stdout.split())


def total_cores():
    """The cores of --cores; None on a cluster, where each job has its own."""
    try:
        return workflow.cores
    except WorkflowError:
        return None


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


def load_plan():
    """The plan of the config and the image, or one message and exit code 2."""
    try:
        benchmark = load_benchmark(CONFIG, workflow.config_settings.config)
        plan = make_plan(benchmark, devices_here(benchmark.environments), SOURCE)
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


def job_json(wildcards):
    """The job of a cell: a change of any value in it makes this cell, and no other, run again."""
    return grid.job(PLAN.benchmark, cell_of(wildcards), SOURCE).model_dump_json()


def throughput_json(wildcards):
    """The speed measurement of an arm."""
    return grid.throughput_job(
        PLAN.benchmark, arm_of(wildcards), SOURCE
    ).model_dump_json()


def gpus(wildcards):
    """GPUs that a job needs."""
    return 1 if wildcards.device == "cuda" else 0


def whole_machine(wildcards):
    """All cores, so that nothing runs beside; the job's own threads on a cluster."""
    return total_cores() or PLAN.benchmark.cpu_threads


def cell_threads(wildcards):
    """PyTorch's threads and, if asked for by name, one per environment process."""
    run = PLAN.benchmark
    workers = int(wildcards.num_envs) if run.vector_mode == "async" else 0
    return run.cpu_threads + workers
