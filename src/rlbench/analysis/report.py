"""The report: one self-contained page, generated from tables and figures.

In:      tidy tables, the plan, and the figures of a results folder.
Out:     `report.html`; the same rows give the same bytes.
"""

import base64
import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
import numpy as np
import pandas as pd
import yaml

from rlbench.analysis.aggregate import ARM, CELL, Tables, mixed_code, require_runs
from rlbench.analysis.drawing import read_words
from rlbench.analysis.sentences import answers, cautions, interval
from rlbench.analysis.statistics import Estimate
from rlbench.analysis.tables import TABLES
from rlbench.analysis.words import readable
from rlbench.errors import RlbenchError
from rlbench.records import write_whole
from rlbench.spec.grid import slug
from rlbench.spec.plan import Plan

SECTIONS: dict[str, tuple[str, ...]] = {
    "Learning": ("evaluation_return", "training_return"),
    "Time": ("return_against_seconds", "throughput", "phases", "wall_clock"),
    "Diagnostics": ("diagnostics",),
}
"""Which figures stand in which section, by the beginning of their names."""
TITLES = {
    "final_return": "Final return",
    "time_to_threshold": "Steps and seconds to the threshold",
    "throughput": "Throughput, alone on the machine",
    "wall_clock": "Wall time of the learning runs",
}


@dataclass(frozen=True, slots=True)
class Picture:
    """A figure as the page shows it."""

    name: str
    title: str
    caption: str
    alt: str
    source: str
    """The SVG as a data URI."""


def write_report(
    plan: Plan, tables: Tables, folder: Path, path: Path, *, allow_mixed: bool = False
) -> None:
    """Write the page.

    Raises:
        InputError: no run has finished, or the figures are not there.
        RlbenchError: runs of different versions of the training code, and not allow_mixed.
    """
    require_runs(tables, folder)
    versions = mixed_code(tables)
    if len(versions) > 1 and not allow_mixed:
        listed = ", ".join(f"{digest} ({n} runs)" for digest, n in versions.items())
        raise RlbenchError(
            f"{folder}: runs of different versions of the training code: {listed}. Run the old "
            "ones again (`snakemake --forcerun train throughput`), or pass --allow-mixed"
        )
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rlbench.analysis"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made = {name: TABLES[name](tables, plan) for name in TITLES}
    page = environment.get_template("report.html.j2").render(
        title=f"{plan.benchmark.name}: {', '.join(a.upper() for a in plan.benchmark.algorithms)}",
        summary=_summary(plan, tables),
        answers=answers(tables, plan),
        cautions=cautions(tables, plan),
        headline=_headline(made),
        sections=_sections(_pictures(folder / "figures")),
        tables={TITLES[name]: _cells(table) for name, table in made.items()},
        every_cell=_cells(TABLES["cells"](tables, plan).drop(columns="reason")),
        absent=_cells(_absent(tables)),
        reproduce=_reproduce(plan, tables),
        records={name: _distinct(tables, name) for name in ("machine", "software")},
        config=yaml.safe_dump(plan.benchmark.model_dump(mode="json"), sort_keys=False),
    )
    write_whole(path, page.encode())


def _summary(plan: Plan, tables: Tables) -> str:
    """The title line: date, commit, machine, n of N."""
    done = tables.cells[tables.cells["status"] == "ok"]
    machine, software = (json.loads(done[part].iloc[-1]) for part in ("machine", "software"))
    gpu = ", ".join(g["name"] for g in machine["gpus"]) or "no GPU"
    dirty = " with changes" if software["git_dirty"] else ""
    return (
        f"{str(done['ended'].max())[:10]} · commit {software['git_commit'][:10]}{dirty} · "
        f"{machine['cpu_model']} ({machine['cpu_cores']} cores), {gpu} · "
        f"{len(done)} of {len(tables.cells)} cells · {len(plan.benchmark.seeds)} seeds · "
        f"{plan.benchmark.total_steps:,} steps each"
    )


def _headline(made: Mapping[str, pd.DataFrame]) -> "Cells":
    """One row per arm: return, steps and seconds to the threshold, speed, n of N."""
    final, threshold, rate, _ = (table.set_index(ARM) for table in made.values())
    rows = []
    for arm in final.index:
        low, high, n = final["ci_low"][arm], final["ci_high"][arm], final["n"][arm]
        there = f"{threshold['reached'][arm]} of {n}"
        rows.append(
            dict(zip(ARM, arm, strict=True))
            | {
                "final return, IQM [95 %]": interval(Estimate(final["iqm"][arm], low, high, n)),
                "threshold": threshold["threshold"][arm],
                "median steps to it": threshold["median_steps"][arm],
                "seconds to it": threshold["median_s"][arm],
                "seeds there": "" if np.isnan(threshold["threshold"][arm]) else there,
                "steps/s": rate["steps_per_s"][arm],
                "n": f"{n} of {final['planned'][arm]}",
            }
        )
    return _cells(pd.DataFrame(rows))


@dataclass(frozen=True, slots=True)
class Cells:
    """A table as the page shows it."""

    columns: list[str]
    rows: list[list[tuple[str, bool]]]
    """Text, and whether it is a number."""


def _cells(table: pd.DataFrame) -> Cells:
    numeric = [pd.api.types.is_numeric_dtype(kind) for kind in table.dtypes]
    rows = [
        [(readable(value), number) for value, number in zip(row, numeric, strict=True)]
        for row in table.itertuples(index=False, name=None)
    ]
    return Cells([str(name).replace("_", " ") for name in table.columns], rows)


def _absent(tables: Tables) -> pd.DataFrame:
    """Cells without a result, with the first line of the reason."""
    absent = tables.cells[tables.cells["status"] != "ok"]
    reason = absent["reason"].str.split("\n").str[0]
    return absent[[*ARM, "seed", "status"]].assign(reason=reason)


def _pictures(folder: Path) -> list[Picture]:
    pictures = []
    for words in read_words(folder):
        svg = (folder / f"{words['name']}.svg").read_bytes()
        source = "data:image/svg+xml;base64," + base64.b64encode(svg).decode()
        pictures.append(Picture(**words, source=source))
    return pictures


def _sections(pictures: list[Picture]) -> Mapping[str, list[Picture]]:
    return {
        section: [p for name in names for p in pictures if p.name.startswith(name)]
        for section, names in SECTIONS.items()
    }


def _reproduce(plan: Plan, tables: Tables) -> list[tuple[str, str]]:
    """What to type to have it again."""
    done = tables.cells[tables.cells["status"] == "ok"].iloc[0]
    commit = json.loads(done["software"])["git_commit"]
    cell = "/".join(slug(done[name]) for name in CELL)
    config, name = shlex.quote(plan.config or "config.yaml"), shlex.quote(plan.benchmark.name)
    return [
        ("this code", f"git checkout {commit}"),
        ("the whole grid", f"snakemake --cores all --configfile {config}"),
        ("one cell", f'rlbench train --job "$(rlbench show-job {config} {cell} --json)"'),
        ("a seed of each arm, compared bit by bit", f"rlbench verify results/{name}"),
    ]


def _distinct(tables: Tables, column: str) -> list[dict[str, Any]]:
    """Each machine, or state of the software, that ran a cell, as recorded."""
    return [json.loads(text) for text in tables.cells[column].dropna().unique()]
