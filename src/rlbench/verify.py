"""Finished runs, run again here: are they equal to the last bit, and if not, what else differs?

In:      a results folder, or the folder of one run.
Out:     a verdict per run. Each is run again in a process of its own, by the job and under the
         environment variables that its record has.
"""

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pyarrow as pa

from rlbench.analysis.aggregate import read_plan
from rlbench.errors import InputError
from rlbench.provenance import differences, fact_differences
from rlbench.records import (
    RUN_FACTS,
    EpisodeRow,
    EvaluationRow,
    Row,
    RunFacts,
    UpdateRow,
    read_columns,
    read_facts,
)
from rlbench.software import VARIABLES
from rlbench.spec.grid import Cell, job
from rlbench.spec.plan import Plan

REPEATED: tuple[type[Row], ...] = (UpdateRow, EpisodeRow, EvaluationRow)
"""Rows that a second run must repeat, clock readings aside."""
OF_THE_MACHINE = {"CUDA_VISIBLE_DEVICES", "LD_PRELOAD", "CXX"}
"""Variables that name things of one machine: not taken over from a record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """What came of running one run again."""

    name: str
    failure: str = ""
    """Why it could not be run here; nothing was compared then."""
    rows: int = 0
    """Rows that were compared."""
    unequal: list[str] = field(default_factory=list)
    """Columns that are not equal bit by bit, with the first place where."""
    against_plan: list[str] = field(default_factory=list)
    """How the recorded job differs from the one that plan and presets give now."""
    against_record: list[str] = field(default_factory=list)
    """How this machine, its software and what was really used differ from the record."""

    @property
    def text(self) -> str:
        """The verdict for a person."""
        unequal = [f"  {line}" for line in self.unequal]
        says = f"{'NOT equal' if unequal else 'equal to the last bit'} ({self.rows:,} rows)"
        if self.failure:
            says = f"could not be repeated here: {self.failure}"
        plan = ["  the job is not the plan's:", *_indented(self.against_plan)]
        record = ["  differs from the record:", *_indented(self.against_record)]
        nothing = ["  nothing differs from the record that run.json knows of"]
        return "\n".join(
            [
                f"{self.name}: {says}",
                *unequal,
                *(plan if self.against_plan else []),
                *(record if self.against_record else nothing if unequal else []),
            ]
        )

    @property
    def passed(self) -> bool:
        """Whether the numbers are these, and are those of the plan."""
        return not (self.failure or self.unequal or self.against_plan)


def verdicts(results: Path, names: Sequence[str], workplace: Path) -> Iterator[Verdict]:
    """Run the chosen runs of a folder again, one after the other.

    Raises:
        InputError: there is nothing to verify, or a name is not of the grid.
    """
    if (results / RUN_FACTS).is_file() and not names:
        yield verify_run(results, workplace)
        return
    plan = read_plan(results)
    for cell in chosen_cells(plan, results, names):
        yield verify_cell(plan, results, cell, workplace)


def chosen_cells(plan: Plan, folder: Path, names: Sequence[str]) -> list[Cell]:
    """The cells that are named; by default the first finished seed of each arm.

    Raises:
        InputError: a cell is not of the plan, or none has finished.
    """
    if names:
        cells = [Cell.from_path(name) for name in names]
        for name, cell in zip(names, cells, strict=True):
            if cell not in plan.cells:
                raise InputError(f"got cell '{name}', which is not in the grid of {folder}")
        return cells
    finished = [cell for cell in plan.cells if (folder / "runs" / cell.path / RUN_FACTS).is_file()]
    if not finished:
        raise InputError(f"{folder}: no finished run; run the workflow, then verify it")
    return list({cell.arm: cell for cell in reversed(finished)}.values())[::-1]


def verify_cell(plan: Plan, folder: Path, cell: Cell, workplace: Path) -> Verdict:
    """Run a cell of a results folder again and compare it, with the plan too.

    Raises:
        InputError: the cell has not finished.
    """
    run = folder / "runs" / cell.path
    recorded = read_facts(run).job
    sides = ("in run.json", "by plan and presets")
    against_plan = differences(recorded, job(plan.benchmark, cell), sides, "job")
    return verify_run(run, workplace / cell.path, cell.short, against_plan)


def verify_run(
    run: Path, workplace: Path, name: str = "", against_plan: Sequence[str] = ()
) -> Verdict:
    """Run the run of a folder again, in a workplace that keeps the new files, and compare.

    Raises:
        InputError: there is no finished learning run.
    """
    facts = read_facts(run)
    if facts.kind != "learning":
        raise InputError(f"{run}: a {facts.kind} run: its numbers are clock readings")
    named, plan = name or str(run), list(against_plan)
    if failure := _run_again(facts, workplace):
        return Verdict(named, failure=failure, against_plan=plan)
    tables = [(read_columns(kind, run), read_columns(kind, workplace)) for kind in REPEATED]
    return Verdict(
        named,
        rows=sum(len(recorded) for recorded, _ in tables),
        unequal=[
            f"{kind.file.removesuffix('.parquet')}.{line}"
            for kind, pair in zip(REPEATED, tables, strict=True)
            for line in unequal_columns(*pair)
        ],
        against_plan=plan,
        against_record=fact_differences(facts, read_facts(workplace)),
    )


def unequal_columns(recorded: pa.Table, here: pa.Table) -> Iterator[str]:
    """Columns, clock readings aside, that differ in any bit, and where they do first."""
    if len(recorded) != len(here):
        yield f"rows: {len(recorded)} recorded, {len(here)} here"
        return
    for name in recorded.column_names:
        if name.endswith("_s"):
            continue
        then, now = (table[name].to_numpy() for table in (recorded, here))
        apart = np.flatnonzero(then.view(np.int64) != now.view(np.int64))
        if len(apart):
            row = int(apart[0])
            yield (
                f"{name}: {len(apart)} of {len(then)} rows, first row {row}: "
                f"{then[row].item()!r} recorded, {now[row].item()!r} here"
            )


def _indented(lines: Sequence[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def _run_again(facts: RunFacts, workplace: Path) -> str:
    """Put the new run's files into the workplace; the reason if there are none."""
    recorded = facts.software.environment_variables
    environment = {k: v for k, v in os.environ.items() if k not in set(VARIABLES) - OF_THE_MACHINE}
    environment |= {k: v for k, v in recorded.items() if k not in OF_THE_MACHINE}
    command = [
        sys.executable, "-m", "rlbench.cli", "train",
        "--job", facts.job.model_dump_json(), "--output-dir", str(workplace),
    ]  # fmt: skip
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().removeprefix("rlbench: error: ")
    return said or f"exit code {done.returncode}"
