"""Many runs as a few tidy tables.

In:      the plan of a benchmark, and the folder with its runs.
Out:     one table per kind of row, each row with its cell; and one row per planned cell that
         says whether it is there. Rates and other derived columns are made here.

A run counts only once its `run.json` is there, which is written last.
"""

from collections.abc import Iterable
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa

from rlbench.errors import InputError
from rlbench.records import (
    RUN_FACTS,
    EpisodeRow,
    EvaluationRow,
    ResourceRow,
    Row,
    RunFacts,
    TimingRow,
    UpdateRow,
    no_rows,
    read_columns,
    read_facts,
    read_failure,
    read_table,
    read_text,
    write_table,
    write_whole,
)
from rlbench.spec.grid import Arm, Cell, arms, job
from rlbench.spec.plan import Plan
from rlbench.spec.settings import parsed

PLAN = "benchmark.json"
ARM = ["algorithm", "environment", "num_envs", "device"]
"""Columns that name what is compared."""
CELL = [*ARM, "seed"]
"""Columns that name one run."""


@dataclass(frozen=True, slots=True)
class Tables:
    """All rows of a benchmark, and the state of every cell."""

    cells: pd.DataFrame
    """One row per planned cell: CELL, status (ok, failed, missing, outdated), reason, facts of the
    run."""
    updates: pd.DataFrame
    """CELL and the columns of UpdateRow."""
    episodes: pd.DataFrame
    """CELL and the columns of EpisodeRow."""
    evaluations: pd.DataFrame
    """CELL and env_steps, due_steps, episode_return (mean over the evaluation's episodes),
    return_std, length, episodes."""
    timings: pd.DataFrame
    """ARM and the columns of TimingRow, and: warmup, code_digest, steps_per_s, updates_per_s."""


def gather(plan: Plan, folder: Path) -> Tables:
    """Read every finished run of a plan.

    Raises:
        InputError: a file is damaged or from another version of the schema.
    """
    planned = plan.cells
    found = {cell: _facts_of(folder / "runs" / cell.path) for cell in planned}
    outdated = {c for c, facts in found.items() if facts and facts.job != job(plan.benchmark, c)}
    done = [cell for cell, facts in found.items() if facts and cell not in outdated]

    labels = _typed(done, Cell)

    def rows(kind: type[Row]) -> pd.DataFrame:
        return _labelled(labels, kind, [folder / "runs" / cell.path for cell in done])

    evaluations = _evaluation_means(rows(EvaluationRow))
    states = [
        _outdated(cell) if cell in outdated else _state(cell, found[cell], folder)
        for cell in planned
    ]
    final = evaluations.sort_values("env_steps").groupby(CELL, sort=False).last().reset_index()
    final = final.rename(columns={"episode_return": "final_return"})
    resources = rows(ResourceRow)
    return Tables(
        cells=pd.DataFrame(states)
        .merge(final[[*CELL, "final_return"]], on=CELL, how="left")
        .merge(resources[[*CELL, "peak_memory_mib"]], on=CELL, how="left"),
        updates=rows(UpdateRow),
        episodes=rows(EpisodeRow),
        evaluations=evaluations,
        timings=_timings(arms(planned), folder),
    )


def read_plan(folder: Path) -> Plan:
    """The plan of a results folder.

    Raises:
        InputError: the folder holds none.
    """
    path = folder / PLAN
    text = read_text(path, "the workflow makes it, or `rlbench aggregate --benchmark JSON`")
    return parsed(Plan, text, str(path))


def write_plan(plan: Plan, folder: Path) -> Path:
    """Put the plan into a results folder."""
    return write_whole(folder / PLAN, (plan.model_dump_json(indent=1) + "\n").encode())


def write_tables(tables: Tables, folder: Path) -> list[Path]:
    """Write each table as `<name>.parquet`."""
    return [
        write_table(getattr(tables, field.name), folder / f"{field.name}.parquet")
        for field in fields(Tables)
    ]


def read_tables(folder: Path) -> Tables:
    """The tables of a results folder.

    Raises:
        InputError: they are not there; `rlbench aggregate` makes them.
    """
    return Tables(**{f.name: read_table(folder / f"{f.name}.parquet") for f in fields(Tables)})


def mixed_code(tables: Tables) -> dict[str, int]:
    """Number of runs, learning and throughput, per version of the training code.

    More than one version should not be compared.
    """
    measured = tables.timings.drop_duplicates(ARM)["code_digest"]
    counts = pd.concat([tables.cells["code_digest"].dropna(), measured]).value_counts()
    return {str(digest): int(count) for digest, count in counts.items()}


def _facts_of(folder: Path) -> RunFacts | None:
    return read_facts(folder) if (folder / RUN_FACTS).is_file() else None


def _state(cell: Cell, facts: RunFacts | None, folder: Path) -> dict[str, object]:
    """One row of the table of cells."""
    if facts is None:
        failure = read_failure(folder / "state" / cell.path)
        if failure:
            return asdict(cell) | _absent("failed", failure.reason)
        return asdict(cell) | _absent("missing", "not run, or stopped before its end")
    return asdict(cell) | {
        "status": "ok",
        "reason": "",
        "actual_steps": facts.actual_steps,
        "actual_batch": facts.actual_batch,
        "episodes": facts.episodes,
        "updates": facts.updates,
        "wall_s": facts.wall_s,
        "setup_s": facts.setup_s,
        "device_used": facts.device,
        "vector_mode": facts.vector_mode,
        "compiled": "yes" if facts.compiled else "no",
        "torch_threads": facts.torch_threads,
        "code_digest": facts.software.code_digest,
        "ended": facts.ended,
        "job": facts.job.model_dump_json(),
        "machine": facts.machine.model_dump_json(),
        "software": facts.software.model_dump_json(),
    }


def _outdated(cell: Cell) -> dict[str, object]:
    reason = "run with another job than the plan's: run the workflow again"
    return asdict(cell) | _absent("outdated", reason)


def _absent(status: str, reason: str) -> dict[str, object]:
    numbers = (
        "actual_steps", "actual_batch", "episodes", "updates", "wall_s", "setup_s", "torch_threads",
    )  # fmt: skip
    words = (
        "device_used", "vector_mode", "compiled", "code_digest", "ended", "job", "machine",
        "software",
    )  # fmt: skip
    return (
        {"status": status, "reason": reason}
        | dict.fromkeys(numbers, float("nan"))
        | dict.fromkeys(words, None)
    )


def _typed(values: Iterable[Arm], kind: type[Arm]) -> pd.DataFrame:
    """A row per value, with the columns and the types of its kind, also without any row."""
    types = {field.name: field.type for field in fields(kind)}
    return pd.DataFrame([astuple(value) for value in values], columns=list(types)).astype(types)


def _labelled(labels: pd.DataFrame, kind: type[Row], folders: Iterable[Path]) -> pd.DataFrame:
    """All rows of some folders, behind the label of each folder."""
    parts = [read_columns(kind, folder) for folder in folders]
    rows: pd.DataFrame = pa.concat_tables([no_rows(kind), *parts]).to_pandas()
    repeated = labels.take(np.repeat(np.arange(len(parts)), [len(part) for part in parts]))
    return pd.concat([repeated.reset_index(drop=True), rows], axis="columns")


def _evaluation_means(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per evaluation: an evaluation's episodes are one observation of one run."""
    evaluations = rows.groupby([*CELL, "env_steps", "due_steps"], sort=False)
    returns = evaluations["episode_return"]
    return pd.DataFrame(
        {
            "return_std": returns.std(ddof=0),
            "episode_return": returns.mean(),
            "length": evaluations["length"].mean(),
            "episodes": returns.size(),
        }
    ).reset_index()


@dataclass(frozen=True, slots=True)
class _Timed(Arm):
    """An arm whose speed was measured, and how."""

    warmup_updates: int
    code_digest: str


def _timings(planned: list[Arm], folder: Path) -> pd.DataFrame:
    places = {arm: folder / "throughput" / arm.path for arm in planned}
    found = {arm: facts for arm, place in places.items() if (facts := _facts_of(place))}
    timed = [
        _Timed(
            **asdict(arm),
            warmup_updates=facts.warmup_updates,
            code_digest=facts.software.code_digest,
        )
        for arm, facts in found.items()
    ]
    rows = _labelled(_typed(timed, _Timed), TimingRow, [places[arm] for arm in found])
    warmup_updates, code_digest = rows.pop("warmup_updates"), rows.pop("code_digest")
    return rows.assign(
        warmup=rows["update"] < warmup_updates,
        code_digest=code_digest,
        steps_per_s=rows["steps"] / rows["wall_s"],
        updates_per_s=1 / rows["wall_s"],
    )


def require_runs(tables: Tables, folder: Path) -> None:
    """Refuse to describe a benchmark without a single finished run.

    Raises:
        InputError: no cell has finished.
    """
    if not (tables.cells["status"] == "ok").any():
        raise InputError(f"{folder}: no finished run among {len(tables.cells)} cells")
