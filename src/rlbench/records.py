"""The contract between training and analysis: what a row is, what a run fact is.

In:      typed rows and facts.
Out:     files that appear whole or not at all, and the same rows back as a table.

Columns that end in `_s` are clock readings and vary between repeats of a run; all other columns
of `updates`, `episodes` and `evaluations` must not. What never repeats lives in `resources`.
"""

import io
import json
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, ClassVar, Literal, get_args

from rlbench.errors import InputError
from rlbench.spec.job import Job
from rlbench.spec.settings import Settings, validated

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

SCHEMA_VERSION = 3
"""Raised whenever a column or a fact changes its name, unit or meaning."""
RUN_FACTS = "run.json"
FAILURE = "failure.json"
PolicyName = Literal["last", "best"]
POLICIES: dict[PolicyName, str] = {"last": "policy.pt", "best": "best_policy.pt"}
"""The policy at the end of a run, and the one of its best evaluation."""
CURVES = "tensorboard"
"""Folder of event files, where they were asked for."""
NAN = math.nan


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """What one update did: the step that was taken. NaN where an algorithm has no such quantity."""

    surrogate: float
    """Objective of the policy, to be maximised: mean over minibatches (first order), gain of the
    step that was taken (natural gradient)."""
    critic_loss: float
    """Mean squared error of the critic, mean over its minibatches."""
    explained_variance: float
    """1 - Var(target - value) / Var(target) before the update, no unit."""
    entropy_nats: float
    """Entropy of the policy after the update, mean over the batch."""
    kl_nats: float
    """KL divergence from the old policy to the new, mean over the batch."""
    actor_grad_norm: float
    """Euclidean norm of the policy gradient before clipping, mean over minibatches."""
    critic_grad_norm: float
    """The same of the critic."""
    steps_taken: float = NAN
    """Share of the planned minibatch steps that were taken; below 1 if the KL limit ended them."""
    clip_fraction: float = NAN
    """Share of samples whose ratio was outside the clip range, mean over minibatches."""
    kl_coefficient: float = NAN
    """Weight of the KL penalty in this update."""
    line_search_success: float = NAN
    """1 if a step was accepted, 0 if the parameters were left as they were."""
    step_scale: float = NAN
    """Accepted multiple of the full natural step; 0 if rejected."""
    cg_residual: float = NAN
    """Euclidean norm of the conjugate-gradient residual."""
    skipped: float = NAN
    """1 if gradient or curvature was not usable, so that no step was tried."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpdateRow(Metrics):
    """One update of one run: its metrics, and when and how long."""

    file: ClassVar[str] = "updates.parquet"

    update: int
    env_steps: int
    """Transitions seen so far, over all environments."""
    episodes: int
    """Episodes that ended in this rollout."""
    return_mean: float
    """Mean undiscounted return of those episodes; NaN if none ended."""
    env_s: float
    """Stepping the environments; 0 where they are part of the policy's program (mode `fused`)."""
    policy_s: float
    """Choosing actions, values of the states, moving observations."""
    update_s: float
    """Advantages and gradient steps."""
    evaluate_s: float
    """Evaluation after this update."""
    elapsed_s: float
    """Wall time since the run's first step, evaluations included."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EpisodeRow:
    """One training episode that ended."""

    file: ClassVar[str] = "episodes.parquet"

    episode: int
    env_steps: int
    """Transitions seen when it ended, over all environments."""
    env: int
    """Which environment, from 0."""
    episode_return: float
    """Undiscounted sum of the raw rewards."""
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRow:
    """One evaluation episode: separate environment, action without noise."""

    file: ClassVar[str] = "evaluations.parquet"

    env_steps: int
    """Training transitions before this evaluation."""
    due_steps: int
    """The multiple of eval_every_steps that it answers to."""
    episode: int
    episode_return: float
    length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ResourceRow:
    """What one run used in all."""

    file: ClassVar[str] = "resources.parquet"

    peak_memory_mib: float
    user_cpu_s: float
    system_cpu_s: float
    involuntary_switches: int
    load_1min: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TimingRow:
    """One full update of a throughput run."""

    file: ClassVar[str] = "timings.parquet"

    repeat: int
    update: int
    """From 0 in each repeat; the first `warmup_updates` are left out by the analysis."""
    steps: int
    """Transitions of this update, over all environments."""
    env_s: float
    policy_s: float
    update_s: float
    wall_s: float


Row = UpdateRow | EpisodeRow | EvaluationRow | ResourceRow | TimingRow


class Gpu(Settings):
    """One GPU, as the NVIDIA driver describes it; None where it does not say."""

    name: str
    memory_mib: int | None
    max_sm_clock_mhz: int | None
    max_memory_clock_mhz: int | None
    power_limit_w: int | None
    driver: str
    driver_cuda: str
    """Newest CUDA version that the driver runs."""


class Machine(Settings):
    """Hardware and operating system; no user name, and no host name unless asked for."""

    cpu_model: str
    cpu_cores: int
    """Logical cores that the run may use."""
    cpu_physical_cores: int | None
    """Of the whole machine."""
    cpu_governor: str | None
    """None where the kernel does not say, as in most virtual machines."""
    memory_mib: int
    gpus: tuple[Gpu, ...]
    os: str
    kernel: str
    libc: str
    host: str | None = None
    """Its name, if RLBENCH_RECORD_HOST is 1."""


class Software(Settings):
    """Code and versions that a run used."""

    rlbench: str
    python: str
    packages: dict[str, str]
    """Version of every installed package."""
    environment_variables: dict[str, str]
    """Those that can change a number or a speed, as far as they are set."""
    git_commit: str
    git_dirty: bool | None
    """Whether tracked files differ from the commit; None outside a checkout."""
    git_diff_digest: str | None
    """SHA-256 of that difference (`git diff --binary HEAD`)."""
    code_digest: str
    """Digest of the source files that decide a run's rows."""
    lock_digest: str | None
    """SHA-256 of requirements.lock."""
    image_digest: str | None
    """Of the container image: RLBENCH_IMAGE_DIGEST, else SHA-256 of its bill of materials."""


class Numerics(Settings):
    """The libraries that do the arithmetic."""

    torch: tuple[str, ...]
    """What PyTorch says of its build: BLAS, oneDNN, instruction set, CUDA, cuDNN."""
    numpy_blas: str
    numpy_simd: tuple[str, ...]
    """Instruction sets that NumPy uses here."""
    cpp_compiler: str | None
    """What compiled the gradient steps; None in eager mode."""


class StreamSeeds(Settings):
    """The number that each stream of randomness was started with."""

    environments: tuple[int, ...]
    evaluation: tuple[int, ...]
    initialisation: int
    noise: int
    shuffling: int
    global_generators: int
    foreign: int
    """Of an algorithm of another library."""


class RunFacts(Settings):
    """Everything about a run that is not a row."""

    schema_version: int = SCHEMA_VERSION
    status: Literal["ok"] = "ok"
    kind: Literal["learning", "throughput"]
    job: Job
    device: str
    """The device really used."""
    vector_mode: str
    """The vector mode really used."""
    actual_batch: int
    """Environment steps per full update, over all environments."""
    actual_steps: int
    episodes: int
    updates: int
    warmup_updates: int = 0
    torch_threads: int
    torch_interop_threads: int
    compiled: bool
    """Whether gradient steps were taken by a compiled program."""
    compile_s: float
    """Seconds to make that program, part of setup_s."""
    setup_s: float
    """From the start of the run to its first training step, the first evaluation included."""
    wall_s: float
    """From the first environment step to the last update, evaluations included."""
    started: str
    ended: str
    command: str
    seeds: StreamSeeds
    machine: Machine
    software: Software
    numerics: Numerics


class Failure(Settings):
    """Why a run has no rows."""

    schema_version: int = SCHEMA_VERSION
    status: Literal["failed"] = "failed"
    reason: str
    ended: str


def write_rows(rows: Sequence[Row], kind: type[Row], folder: Path) -> Path:
    """Write all rows of one kind to its file in the folder, or leave no file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.Table.from_pylist([asdict(row) for row in rows], schema=_schema(kind))
    sink = pa.BufferOutputStream()
    pq.write_table(table, sink)
    return write_whole(folder / kind.file, sink.getvalue().to_pybytes())


def clear_run(folder: Path) -> None:
    """Remove the files of an earlier run, the one that makes it complete first."""
    for name in (RUN_FACTS, *POLICIES.values(), *(kind.file for kind in get_args(Row))):
        (folder / name).unlink(missing_ok=True)
    for events in (folder / CURVES).glob("events.out.tfevents.*"):
        events.unlink()


def no_rows(kind: type[Row]) -> "pa.Table":
    """A table with the columns of a kind."""
    return _schema(kind).empty_table()


def read_rows(kind: type[Row], folder: Path) -> "pd.DataFrame":
    """The rows of one kind in a folder, as `read_columns` finds them."""
    rows: pd.DataFrame = read_columns(kind, folder).to_pandas()
    return rows


def read_columns(kind: type[Row], folder: Path) -> "pa.Table":
    """The rows of one kind in a folder, as a table with the kind's columns.

    Raises:
        InputError: the file is missing, from a newer rlbench, or has other columns.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = folder / kind.file
    if not path.is_file():
        raise InputError(f"{path}: not there; a finished run has it. Run the cell again")
    try:
        table = pq.ParquetFile(path).read(use_threads=False)  # many small files: no thread pays
    except pa.ArrowInvalid as error:
        raise InputError(f"{path}: not a parquet file ({error}); run the cell again") from None
    check_version(int((table.schema.metadata or {}).get(b"schema_version", b"0")), path)
    if table.schema.names != _schema(kind).names:
        raise InputError(f"{path}: columns are {table.schema.names}; run the cell again")
    return table


def write_facts(facts: RunFacts | Failure, path: Path) -> Path:
    """Write run facts, or leave no file. A run is complete once this file is there."""
    return write_whole(path, (facts.model_dump_json(indent=1) + "\n").encode())


def read_facts(folder: Path) -> RunFacts:
    """The facts of the run in a folder.

    Raises:
        InputError: the file is missing, from a newer rlbench, or not a run's facts.
    """
    return validated(RunFacts, _read_versioned(folder / RUN_FACTS), str(folder / RUN_FACTS))


def read_failure(folder: Path) -> Failure | None:
    """Why the run in a folder failed; None if it did not."""
    path = folder / FAILURE
    return validated(Failure, _read_versioned(path), str(path)) if path.is_file() else None


def check_version(found: int, path: Path) -> None:
    """Refuse a file that this rlbench cannot read.

    Raises:
        InputError: with both versions and the way out.
    """
    if found > SCHEMA_VERSION:
        raise InputError(
            f"{path}: written with schema {found}, this rlbench reads up to {SCHEMA_VERSION}; "
            "update rlbench"
        )
    if found < SCHEMA_VERSION:
        raise InputError(
            f"{path}: written with schema {found}, this rlbench reads {SCHEMA_VERSION}; "
            "run the cell again"
        )


def write_whole(path: Path, content: bytes) -> Path:
    """Put the content at a path so that a reader, even after a crash, sees all of it or nothing."""
    with replaced_whole(path) as stream:
        stream.write(content)
    return path


@contextmanager
def replaced_whole(path: Path) -> Iterator[BinaryIO]:
    """A stream whose content is at the path once the block has ended, and not at all before."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def write_table(table: "pd.DataFrame", path: Path) -> Path:
    """Write a derived table as parquet, or leave no file."""
    sink = io.BytesIO()
    table.to_parquet(sink, index=False)
    return write_whole(path, sink.getvalue())


def read_table(path: Path) -> "pd.DataFrame":
    """A derived table.

    Raises:
        InputError: the file is missing.
    """
    import pandas as pd

    if not path.is_file():
        raise InputError(f"{path}: not there; `rlbench aggregate {path.parent}` makes it")
    return pd.read_parquet(path)


def read_text(path: Path, maker: str) -> str:
    """The text of a file.

    Raises:
        InputError: the file is missing; `maker` says what makes it.
    """
    if not path.is_file():
        raise InputError(f"{path}: not there; {maker}")
    return path.read_text(encoding="utf-8")


def _read_versioned(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path}: not there; a finished run has it. Run the cell again") from None
    except ValueError as error:
        raise InputError(f"{path}: not valid JSON ({error}); run the cell again") from None
    check_version(int(values.get("schema_version", 0)), path)
    return dict(values)


def _schema(kind: type[Row]) -> "pa.Schema":
    import pyarrow as pa

    types: dict[Any, pa.DataType] = {int: pa.int64(), float: pa.float64()}
    columns = [pa.field(f.name, types[f.type], nullable=False) for f in fields(kind)]
    return pa.schema(columns, metadata={"schema_version": str(SCHEMA_VERSION)})
