"""The tables of a report: a point and an interval per arm, each with n of N.

In:      tidy tables and the plan.
Out:     one DataFrame per table, numbers unrounded. A new table is one function and one line in
         `TABLES`.
"""

from collections.abc import Callable, Hashable, Mapping
from typing import Any

import numpy as np
import pandas as pd

from rlbench.analysis.aggregate import ARM, Tables
from rlbench.analysis.statistics import estimate, speed, steps_to
from rlbench.analysis.words import readable
from rlbench.spec.grid import arms
from rlbench.spec.plan import Plan

Maker = Callable[[Tables, Plan], pd.DataFrame]


def final_return(tables: Tables, plan: Plan) -> pd.DataFrame:
    """Return of the final policy: mean over seeds of the last evaluation."""
    rows = []
    for place, cells in _by_arm(tables.cells, plan):
        values = cells["final_return"].dropna().to_numpy()
        found = estimate(values)
        rows.append(
            place
            | {
                "mean": values.mean() if len(values) else np.nan,
                "iqm": found.point,
                "ci_low": found.low,
                "ci_high": found.high,
                "worst": values.min() if len(values) else np.nan,
                "best": values.max() if len(values) else np.nan,
                "n": found.n,
                "planned": len(cells),
            }
        )
    return pd.DataFrame(rows)


def time_to_threshold(tables: Tables, plan: Plan) -> pd.DataFrame:
    """Steps, and seconds alone on the machine, until an evaluation reaches the threshold.

    A run that never does counts as infinite, so the median is infinite (empty) if half do not.
    An environment without a threshold has empty numbers too. Seconds are steps over the arm's
    measured steps/s.
    """
    rates = speed(tables.timings).set_index(ARM)["steps_per_s"]
    steps = _steps_by_arm(tables.evaluations, plan.benchmark.thresholds)
    rows = []
    for place, cells in _by_arm(tables.cells, plan):
        threshold = plan.benchmark.thresholds.get(place["environment"], np.nan)
        key = tuple(place.values())
        per_seed = steps.get(key, [])
        finite = [s for s in per_seed if np.isfinite(s)]
        median = float(np.median(per_seed)) if len(per_seed) else np.nan
        median = median if np.isfinite(median) else np.nan
        rows.append(
            place
            | {
                "threshold": threshold,
                "median_steps": median,
                "median_s": median / rates.get(key, np.nan),
                "earliest_steps": min(finite, default=np.nan),
                "latest_steps": max(finite, default=np.nan),
                "reached": len(finite),
                "n": int((cells["status"] == "ok").sum()),
                "planned": len(cells),
            }
        )
    return pd.DataFrame(rows)


def throughput(tables: Tables, plan: Plan) -> pd.DataFrame:
    """Speed alone on the machine: medians over timed updates, warm-up left out."""
    found = speed(tables.timings)
    planned = pd.DataFrame([place for place, _ in _by_arm(tables.cells, plan)])
    table = planned.merge(found, on=ARM, how="left").rename(
        columns={"steps": "steps_per_update", "wall_s": "update_total_s", "n": "timed_updates"}
    )
    timing = plan.benchmark.throughput
    wanted = timing.updates * timing.repeats if timing.measure == "always" else 0
    return table.assign(
        timed_updates=table["timed_updates"].fillna(0).astype(int), planned_updates=wanted
    )


def wall_clock(tables: Tables, plan: Plan) -> pd.DataFrame:
    """Seconds that the learning runs took, beside others on the same machine."""
    rows = []
    for place, cells in _by_arm(tables.cells, plan):
        done = cells[cells["status"] == "ok"]
        rows.append(
            place
            | {
                "mean_s": done["wall_s"].mean(),
                "shortest_s": done["wall_s"].min(),
                "longest_s": done["wall_s"].max(),
                "setup_s": done["setup_s"].mean(),
                "peak_memory_mib": done["peak_memory_mib"].max(),
                "n": len(done),
                "planned": len(cells),
            }
        )
    return pd.DataFrame(rows)


def every_cell(tables: Tables, plan: Plan) -> pd.DataFrame:  # noqa: ARG001 (one signature for all)
    """Every planned run: its state, its return, its time."""
    columns = ["status", "final_return", "actual_steps", "episodes", "updates", "wall_s"]
    return tables.cells[[*ARM, "seed", *columns, "vector_mode", "compiled", "reason"]]


TABLES: dict[str, Maker] = {
    "final_return": final_return,
    "time_to_threshold": time_to_threshold,
    "throughput": throughput,
    "wall_clock": wall_clock,
    "cells": every_cell,
}
"""Each table by the name of its file."""


def as_markdown(table: pd.DataFrame) -> str:
    """A table for a person: three significant digits or more, empty where there is no number."""
    sides = ["right" if pd.api.types.is_numeric_dtype(kind) else "left" for kind in table.dtypes]
    texts = table.map(lambda value: readable(value).replace("|", r"\|").replace("\n", " "))
    return texts.to_markdown(index=False, colalign=sides, disable_numparse=True) + "\n"


def _by_arm(cells: pd.DataFrame, plan: Plan) -> list[tuple[dict[str, Any], pd.DataFrame]]:
    """The cells of each planned arm, in the order of the plan."""
    groups = dict(iter(cells.groupby(ARM, sort=False)))
    places = [(a.algorithm, a.environment, a.num_envs, a.device) for a in arms(plan.cells)]
    return [(dict(zip(ARM, key, strict=True)), groups[key]) for key in places]


def _steps_by_arm(
    evaluations: pd.DataFrame, thresholds: Mapping[str, float]
) -> dict[Hashable, list[float]]:
    """Steps of each seed to the threshold of its environment, where it has one."""
    return {
        arm: seeds.tolist()
        for environment, threshold in thresholds.items()
        for arm, seeds in steps_to(
            evaluations[evaluations["environment"] == environment], threshold
        ).groupby(ARM, sort=False)
    }
