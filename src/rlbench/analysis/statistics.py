"""Estimates from few runs. The seed is the unit: an evaluation's episodes are not more runs.

In:      one number per seed.
Out:     a point, an interval, and the number of seeds they rest on.
Source:  Agarwal et al. 2021, arXiv:2108.13264 (interquartile mean, bootstrap over runs).
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from scipy import stats

from rlbench.analysis.aggregate import ARM, CELL

CONFIDENCE = 0.95
RESAMPLES = 2000
BOOTSTRAP_SEED = 20_210_830
"""Fixed, so that two reports on the same rows are the same to the byte."""
AT_ONCE = 10_000_000
"""Numbers that are resampled at once: 80 MB; the result does not depend on it."""
FEW_SEEDS = 3
"""With so many seeds or fewer an interval is shown with a caution."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A statistic over seeds."""

    point: float
    low: float  # NaN with fewer than two seeds
    high: float
    n: int


def interquartile_mean(values: np.ndarray, axis: int = -1) -> np.ndarray:
    """Mean of the middle half along an axis; with up to 3 values the mean."""
    means: np.ndarray = stats.trim_mean(values, 0.25, axis=axis)
    return means


def estimate(
    values: Sequence[float] | np.ndarray,
    statistic: Callable[..., np.ndarray] = interquartile_mean,
) -> Estimate:
    """The statistic over seeds with its 95 % percentile-bootstrap interval.

    The order of the seeds does not matter.

    Args:
        values: [n], one per seed.
        statistic: reduces an axis given by `axis`.
    """
    data = np.asarray(values, np.float64)
    if len(data) == 0:
        return Estimate(np.nan, np.nan, np.nan, 0)
    point, low, high = (float(one) for one in intervals(data, statistic))
    return Estimate(point, low, high, len(data))


def intervals(
    values: np.ndarray, statistic: Callable[..., np.ndarray] = interquartile_mean
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Point, low and high of `estimate`, for many rows [..., n] of values at once."""
    data = np.sort(values)
    point = np.asarray(statistic(data, axis=-1))
    if data.shape[-1] == 1:
        return point, np.full_like(point, np.nan), np.full_like(point, np.nan)
    found = stats.bootstrap(
        (data,),
        statistic,
        n_resamples=RESAMPLES,
        batch=max(1, AT_ONCE // data.size),
        axis=-1,
        confidence_level=CONFIDENCE,
        method="percentile",
        rng=np.random.default_rng(BOOTSTRAP_SEED),
    ).confidence_interval
    return point, np.asarray(found.low), np.asarray(found.high)


def curve(evaluations: pd.DataFrame) -> pd.DataFrame:
    """Evaluation return of each arm against steps: ARM, env_steps, point, low, high, n.

    Seeds meet at `due_steps`, the multiple of eval_every_steps that an evaluation answers to; the
    step shown is the one at which they really took place, the same for all seeds of an arm.
    """
    seeds = evaluations.groupby([*ARM, "due_steps"], sort=False)["seed"].transform("size")
    parts = []
    blocks: Any = evaluations.assign(n=seeds).groupby([*ARM, "n"], sort=False)
    for (*arm, n), rows in blocks:
        block = rows.sort_values("due_steps")[["env_steps", "episode_return"]].to_numpy()
        steps, returns = block.T.reshape(2, -1, n)  # [evaluations, seeds] each
        point, low, high = intervals(returns)
        shown = {"env_steps": np.median(steps, axis=-1).astype(int)}
        shown |= {"point": point, "low": low, "high": high, "n": n}
        parts.append(pd.DataFrame(dict(zip(ARM, arm, strict=True)) | shown))
    if not parts:
        return pd.DataFrame(columns=[*ARM, "env_steps", "point", "low", "high", "n"])
    return pd.concat(parts).sort_values([*ARM, "env_steps"], ignore_index=True)


def steps_to(evaluations: pd.DataFrame, threshold: float) -> pd.Series:
    """Steps of the first evaluation at or above a return, per cell; infinite if none is."""
    reached = evaluations[evaluations["episode_return"] >= threshold]
    first = reached.groupby(CELL, sort=False)["env_steps"].min()
    every = evaluations.groupby(CELL, sort=False)["env_steps"].min()
    return first.astype(float).reindex(every.index, fill_value=np.inf)


def trailing_mean(values: np.ndarray, window: int) -> np.ndarray:
    """Mean of each value and up to window - 1 before it, same length."""
    return pd.Series(values, dtype=float).rolling(window, min_periods=1).mean().to_numpy()


def binned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Means over equally many consecutive rows, as few as leave at most so many rows."""
    size = -(-len(rows) // most)
    return rows.groupby(np.arange(len(rows)) // size).mean() if size > 1 else rows


def speed(timings: pd.DataFrame) -> pd.DataFrame:
    """Speed of each arm without warm-up: ARM; median, lowest and highest steps/s; seconds."""
    timed = timings[~timings["warmup"]]
    return (
        timed.groupby(ARM, sort=False)
        .agg(
            steps_per_s=("steps_per_s", "median"),
            lowest=("steps_per_s", "min"),
            highest=("steps_per_s", "max"),
            updates_per_s=("updates_per_s", "median"),
            env_s=("env_s", "median"),
            policy_s=("policy_s", "median"),
            update_s=("update_s", "median"),
            wall_s=("wall_s", "median"),
            steps=("steps", "median"),
            n=("steps", "size"),
        )
        .reset_index()
    )


def training_curve(episodes: pd.DataFrame, window: int) -> pd.DataFrame:
    """Training return against episodes: CELL, episode, episode_return, trailing_mean."""
    if episodes.empty:
        return episodes[[*CELL, "episode", "episode_return"]].assign(trailing_mean=[])
    means = episodes.groupby(CELL, sort=False)["episode_return"].transform(
        lambda returns: trailing_mean(returns.to_numpy(), window)
    )
    return episodes[[*CELL, "episode", "episode_return"]].assign(trailing_mean=means)


def paired_difference(cells: pd.DataFrame, first: str, second: str) -> Estimate:
    """Mean over seeds of final return, `first` minus `second`, of seeds that both have finished.

    Args:
        cells: the cells of two algorithms with everything but the seed equal.
        first: name of one algorithm.
        second: name of the other.
    """
    wide = cells.pivot_table(index="seed", columns="algorithm", values="final_return")
    if not {first, second} <= set(wide.columns):
        return estimate([])
    return estimate((wide[first] - wide[second]).dropna().to_numpy(), np.mean)
