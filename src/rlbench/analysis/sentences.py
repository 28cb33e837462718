"""The answer in sentences, generated from the tables, never typed.

In:      tidy tables and the plan.
Out:     what the data say and how surely; what was left out, failed, or rests on few seeds.
"""

import math
from itertools import combinations
from typing import Any

import pandas as pd

from rlbench.analysis.aggregate import ARM, Tables, mixed_code
from rlbench.analysis.statistics import FEW_SEEDS, Estimate, estimate, paired_difference, speed
from rlbench.analysis.words import count_of_environments, readable
from rlbench.spec.plan import Plan


def answers(tables: Tables, plan: Plan) -> list[str]:
    """What the benchmark found: return per algorithm pair, then speed."""
    cells = tables.cells[tables.cells["status"] == "ok"]
    places = cells.groupby(["environment", "num_envs", "device"], sort=False)
    returns = [
        _compare(group, dict(zip(["environment", "num_envs", "device"], key, strict=True)), pair)
        for key, group in places
        for pair in combinations(plan.benchmark.algorithms, 2)
    ]
    return [text for text in returns if text] + _speeds(tables)


def cautions(tables: Tables, plan: Plan) -> list[str]:
    """What a reader must know before quoting a number."""
    states = tables.cells["status"].value_counts()
    found = []
    absent = len(tables.cells) - int(states.get("ok", 0))
    if absent:
        parts = ", ".join(f"{n} {state}" for state, n in states.items() if state != "ok")
        found.append(f"{absent} of {len(tables.cells)} cells have no result ({parts}): see below.")
    found += [
        f"The devices are 'auto', and {device} is left out: {reason}."
        for device, reason in plan.left_out.items()
    ]
    finished = tables.cells[tables.cells["status"] == "ok"].groupby(ARM).size()
    if len(finished) and finished.min() <= FEW_SEEDS:
        where = "per arm" if finished.min() == finished.max() else "in some arms"
        found.append(
            f"Only {_seeds(finished.min())} {where}: intervals from so few mean little; "
            "use five to ten before you conclude anything."
        )
    versions = mixed_code(tables)
    if len(versions) > 1:
        parts = ", ".join(f"{digest} ({n} runs)" for digest, n in versions.items())
        found.append(f"Runs of different versions of the training code are mixed: {parts}.")
    return found


def interval(found: Estimate) -> str:
    """`-150 [-160, -140]`, or the point alone where there is no interval."""
    if math.isnan(found.low):
        return readable(found.point)
    return f"{readable(found.point)} [{readable(found.low)}, {readable(found.high)}]"


def _compare(cells: pd.DataFrame, place: dict[str, Any], pair: tuple[str, str]) -> str:
    """Final return of two algorithms at one place, and whether the seeds that both have decide."""
    points = {
        name: estimate(cells[cells["algorithm"] == name]["final_return"].dropna().to_numpy())
        for name in pair
    }
    if not all(found.n for found in points.values()):
        return ""
    difference = paired_difference(cells, *pair)
    if difference.point < 0:
        pair = pair[::-1]
        difference = paired_difference(cells, *pair)
    better, other = pair
    where = f"{place['environment']} with {count_of_environments(place['num_envs'])}"
    opening = (
        f"On {where} ({place['device']}), {better.upper()} ends at {interval(points[better])} and "
        f"{other.upper()} at {interval(points[other])}"
    )
    if difference.n < 2:
        shared = "one seed" if difference.n else "no seed"
        return f"{opening}; {shared} in both, so the data cannot say which is better."
    decided = difference.low > 0 and difference.n > FEW_SEEDS
    verdict = f"{better.upper()} is better" if decided else "the data do not decide between them"
    gap = f"mean paired difference {interval(difference)} over {_seeds(difference.n)}"
    return f"{opening}; {gap}: {verdict}."


def _speeds(tables: Tables) -> list[str]:
    """Steps per second from the fewest to the most environments, per algorithm."""
    sentences = []
    rates = speed(tables.timings)
    for _, arm in rates.groupby(["algorithm", "environment", "device"], sort=False):
        first, last = arm.iloc[arm["num_envs"].argmin()], arm.iloc[arm["num_envs"].argmax()]
        text = (
            f"{first['algorithm'].upper()} on {first['environment']} ({first['device']}) makes "
            f"{first['steps_per_s']:,.0f} steps/s "
            f"with {count_of_environments(first['num_envs'])}"
        )
        if len(arm) > 1:
            text += (
                f" and {last['steps_per_s']:,.0f} with {last['num_envs']}: "
                f"{last['steps_per_s'] / first['steps_per_s']:.1f} times as many"
            )
        sentences.append(text + f", alone on the machine (median of {first['n']} updates).")
    return sentences


def _seeds(count: int) -> str:
    return "1 seed" if count == 1 else f"{count} seeds"
