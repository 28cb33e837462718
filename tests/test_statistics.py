"""Against numbers worked out by hand, closed forms of the bootstrap, and plain loops."""

from itertools import product

import numpy as np
import pandas as pd
import pytest

from rlbench.analysis.aggregate import CELL
from rlbench.analysis.statistics import (
    binned,
    curve,
    estimate,
    interquartile_mean,
    intervals,
    paired_difference,
    speed,
    steps_to,
    trailing_mean,
    training_curve,
)


def evaluations(curves: dict[int, list[float]], algorithm: str = "ppo") -> pd.DataFrame:
    """Returns of each seed after 0, 1000, 2000, … steps."""
    rows = [
        (algorithm, "E-v0", 1, "cpu", seed, 1000 * i, 1000 * i, value)
        for seed, values in curves.items()
        for i, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=[*CELL, "env_steps", "due_steps", "episode_return"])


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([7], 7),
        ([0, 9], 4.5),
        ([0, 0, 9], 3),
        ([-100, 1, 3, 100], 2),
        ([1000, 0, 20, 10, 30], 20),
        ([0, 1, 2, 3, 4, 5, 6, 100], 3.5),
    ],
)
def test_interquartile_mean_by_hand(values: list[float], expected: float) -> None:
    assert float(interquartile_mean(np.array(values, float))) == expected


def test_interquartile_mean_is_that_of_the_middle_half() -> None:
    values = np.random.default_rng(0).normal(size=40)
    assert float(interquartile_mean(values)) == pytest.approx(np.sort(values)[10:30].mean())


def test_no_seed_gives_no_number() -> None:
    found = estimate([])
    assert found.n == 0
    assert np.isnan([found.point, found.low, found.high]).all()


def test_one_seed_gives_no_interval() -> None:
    found = estimate([3.0])
    assert (found.point, found.n) == (3.0, 1)
    assert np.isnan([found.low, found.high]).all()


def test_two_seeds_by_hand() -> None:
    """A resample has mean 0, 1/2, 1 with probabilities 1/4, 1/2, 1/4: more than 2.5 % at an end."""
    found = estimate([0.0, 1.0])
    assert (found.point, found.low, found.high) == (0.5, 0.0, 1.0)


def test_three_seeds_by_enumeration() -> None:
    """All 27 resamples are equally likely; the ends each have 1/27, more than 2.5 %."""
    values = [1.0, 4.0, 10.0]
    means = sorted(float(np.mean(drawn)) for drawn in product(values, repeat=3))
    found = estimate(values)
    assert (found.low, found.high) == (means[0], means[-1])
    assert found.point == 5.0


def test_equal_seeds_have_an_interval_without_width() -> None:
    found = estimate([7.0] * 4)
    assert (found.low, found.point, found.high) == (7.0, 7.0, 7.0)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 10, 25])
def test_the_point_is_within_its_interval(n: int) -> None:
    found = estimate(np.random.default_rng(n).exponential(size=n))
    assert found.low < found.point < found.high


def test_the_order_of_seeds_changes_nothing() -> None:
    values = np.random.default_rng(1).normal(size=9)
    assert estimate(values) == estimate(values[::-1]) == estimate(np.roll(values, 4))


def test_a_change_of_unit_changes_the_unit_only() -> None:
    values = np.random.default_rng(2).normal(size=8)
    plain, scaled = estimate(values), estimate(2 * values + 3)
    assert scaled.point == pytest.approx(2 * plain.point + 3)
    assert scaled.low == pytest.approx(2 * plain.low + 3)
    assert scaled.high == pytest.approx(2 * plain.high + 3)


def test_the_interval_is_the_percentile_bootstrap() -> None:
    """A loop with its own random numbers; both have a Monte Carlo error of a few per cent."""
    values, rng = np.random.default_rng(3).normal(size=20), np.random.default_rng(4)
    middles = [np.sort(rng.choice(values, 20))[5:15].mean() for _ in range(4000)]
    low, high = np.quantile(middles, [0.025, 0.975])
    found = estimate(values)
    assert [found.low, found.high] == pytest.approx([low, high], abs=0.08 * (high - low))


def test_a_curve_has_a_point_per_evaluation() -> None:
    found = curve(evaluations({0: [0, 10], 1: [2, 20], 2: [1, 60]}))
    assert found["env_steps"].tolist() == [0, 1000]
    assert found["point"].tolist() == [1, 30]
    assert found["n"].tolist() == [3, 3]
    assert found["low"].tolist() == [0, 10]
    assert found["high"].tolist() == [2, 60]


def test_curves_of_two_arms_do_not_mix() -> None:
    both = pd.concat([evaluations({0: [1.0]}), evaluations({0: [5.0]}, "trpo")])
    assert curve(both).set_index("algorithm")["point"].to_dict() == {"ppo": 1.0, "trpo": 5.0}


def test_steps_to_the_first_evaluation_at_or_above() -> None:
    """Seed 0 reaches it exactly, 1 falls back afterwards, 2 never does, 3 starts there."""
    rows = evaluations({0: [0, 4, 5], 1: [0, 9, 1], 2: [0, 4, 4.9], 3: [5, 0, 0]})
    assert steps_to(rows, 5.0).tolist() == [2000, 1000, np.inf, 0]


def test_steps_to_does_not_depend_on_the_order_of_rows() -> None:
    rows = evaluations({0: [0, 9, 9]})
    assert steps_to(rows[::-1], 5.0).tolist() == [1000]


def test_bins_by_hand() -> None:
    """Seven rows into at most three: by threes, the last alone; few rows are left as they are."""
    rows = pd.DataFrame({"x": range(7), "y": [0.0, 0, 3, 1, 1, 1, 9]})
    assert binned(rows, 3).to_dict("list") == {"x": [1, 4, 6], "y": [1, 1, 9]}
    assert binned(rows, 7) is rows


def test_many_intervals_are_those_of_each_row() -> None:
    values = np.random.default_rng(0).normal(size=(5, 10))
    together = np.transpose(intervals(values))
    alone = [estimate(row) for row in values]
    assert together.tolist() == [[one.point, one.low, one.high] for one in alone]


def test_trailing_mean_is_a_loop_over_windows() -> None:
    values = np.random.default_rng(5).normal(size=12)
    expected = [values[max(0, i - 3) : i + 1].mean() for i in range(12)]
    assert trailing_mean(values, 4) == pytest.approx(np.array(expected))


def test_trailing_mean_of_nothing() -> None:
    assert trailing_mean(np.array([]), 20).tolist() == []


def test_a_training_curve_starts_anew_with_each_seed() -> None:
    rows = pd.DataFrame(
        {
            "algorithm": "ppo",
            "environment": "E-v0",
            "num_envs": 1,
            "device": "cpu",
            "seed": [0, 0, 0, 1],
            "episode": [0, 1, 2, 0],
            "episode_return": [0.0, 2.0, 4.0, 100.0],
        }
    )
    assert training_curve(rows, window=2)["trailing_mean"].tolist() == [0, 1, 3, 100]
    assert training_curve(rows[:0], window=2).empty


def test_speed_leaves_warm_up_out() -> None:
    seconds = np.array([500.0, 1.0, 2.0, 4.0])
    rows = pd.DataFrame(
        {
            "algorithm": "ppo",
            "environment": "E-v0",
            "num_envs": 1,
            "device": "cpu",
            "steps": 100,
            "env_s": seconds / 2,
            "policy_s": seconds / 4,
            "update_s": seconds / 8,
            "wall_s": seconds,
            "warmup": [True, False, False, False],
            "steps_per_s": 100 / seconds,
            "updates_per_s": 1 / seconds,
        }
    )
    (found,) = speed(rows).to_dict("records")
    assert (found["lowest"], found["steps_per_s"], found["highest"]) == (25, 50, 100)
    assert (found["wall_s"], found["env_s"], found["n"]) == (2, 1, 3)


def finals(ppo: dict[int, float], trpo: dict[int, float]) -> pd.DataFrame:
    rows = [("ppo", s, v) for s, v in ppo.items()] + [("trpo", s, v) for s, v in trpo.items()]
    return pd.DataFrame(rows, columns=["algorithm", "seed", "final_return"])


def test_a_paired_difference_uses_seeds_that_both_have() -> None:
    """Seeds 0 and 3 are in both: differences 1 and 5, whatever seeds 1 and 2 say."""
    cells = finals({0: 10, 1: 999, 3: 30, 4: np.nan}, {0: 9, 2: -999, 3: 25, 4: 1})
    found = paired_difference(cells, "ppo", "trpo")
    assert (found.point, found.low, found.high, found.n) == (3, 1, 5, 2)


def test_a_paired_difference_changes_sign_with_its_order() -> None:
    cells = finals({0: 1, 1: 5, 2: 2}, {0: 0, 1: 1, 2: 4})
    there, back = (paired_difference(cells, *pair) for pair in (("ppo", "trpo"), ("trpo", "ppo")))
    assert there.point == -back.point == 1
    assert (there.low, there.high) == (-back.high, -back.low)


def test_a_paired_difference_needs_both() -> None:
    assert paired_difference(finals({0: 1}, {}), "ppo", "trpo").n == 0
    assert paired_difference(finals({0: 1}, {1: 1}), "ppo", "trpo").n == 0
