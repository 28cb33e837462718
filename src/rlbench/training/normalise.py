"""Running scales: observations to mean 0 and deviation 1, rewards by the deviation of returns.

In:      raw observations and rewards, as they come.
Out:     the same on the scale of everything seen so far, and the moments of what was seen.
Source:  Chan, Golub & LeVeque 1983, "Algorithms for computing the sample variance" (merged
         moments); Engstrom et al. 2020, arXiv:2005.12729 (both scales, clipping).
"""

from dataclasses import dataclass

import numpy as np

CLIP = 10.0
"""Largest size of a normalised number."""
EPSILON = 1e-8
"""Added to a variance before it divides, as usual."""


@dataclass(frozen=True, slots=True)
class Moments:
    """How many rows were seen, their mean and their spread: one statistic for all environments."""

    count: int
    mean: np.ndarray  # [K], float64
    squares: np.ndarray  # [K], float64, sum of squared deviations from the mean

    @property
    def deviation(self) -> np.ndarray:
        """Standard deviation, [K]; 1 before the first row."""
        deviation = np.sqrt(self.squares / np.maximum(self.count, 1) + EPSILON)
        return np.where(self.count > 0, deviation, 1.0)

    def updated(self, rows: np.ndarray) -> "Moments":
        """The moments with M more rows, [M, K].

        d = mean_2 - mean_1,  mean = mean_1 + d m / (n + m),  S = S_1 + S_2 + d^2 n m / (n + m)
        """
        rows = rows.astype(np.float64)
        n, m = self.count, len(rows)
        mean = rows.mean(0)
        d = mean - self.mean
        return Moments(
            count=n + m,
            mean=self.mean + d * m / (n + m),
            squares=self.squares + np.square(rows - mean).sum(0) + np.square(d) * n * m / (n + m),
        )


def nothing_seen(size: int) -> Moments:
    """The moments of no rows of K numbers."""
    return Moments(0, np.zeros(size), np.zeros(size))


@dataclass(frozen=True, slots=True)
class Scales:
    """What a policy has seen, besides what its weights have learned; None where it is not asked."""

    observations: Moments | None
    returns: Moments | None  # discounted, K = 1


def normalised(observations: np.ndarray, seen: Moments | None) -> np.ndarray:
    """Observations [N, O], float32, on the scale of those seen; as they are without one."""
    if seen is None:
        return observations
    scaled = (observations - seen.mean) / seen.deviation
    return clipped(scaled).astype(np.float32)


def clipped(numbers: np.ndarray) -> np.ndarray:
    """Numbers no larger than `CLIP` either way."""
    within: np.ndarray = np.clip(numbers, -CLIP, CLIP)
    return within


def discounted_returns(
    rewards: np.ndarray, ended: np.ndarray, gamma: float, before: np.ndarray
) -> np.ndarray:
    """Discounted sum of an episode's rewards up to each step, [T, N], from [N] before the first.

    R_t = gamma R_{t-1} + r_t, with R_{t-1} = 0 where an episode begins
    """
    returns = np.empty_like(rewards)
    for t in range(len(rewards)):
        returns[t] = gamma * before + rewards[t]
        before = np.where(ended[t], 0.0, returns[t])
    return returns
