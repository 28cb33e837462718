"""The tables of the hand-made folder, each number worked out by hand; numbers as words."""

import io
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from results_folder import REASON, RETURNS, handmade_tables, make_benchmark, plan_of, write_learning
from rlbench.analysis.aggregate import Tables, gather
from rlbench.analysis.tables import TABLES, as_markdown
from rlbench.analysis.words import count_of_environments, readable, thousands
from rlbench.spec.plan import Plan

ARMS = [("ppo", 1), ("ppo", 8), ("trpo", 1), ("trpo", 8)]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tables, Plan]:
    return handmade_tables(tmp_path_factory.mktemp("results"))


def table(made: tuple[Tables, Plan], name: str) -> pd.DataFrame:
    return TABLES[name](*made)


def test_final_return_by_hand(made: tuple[Tables, Plan]) -> None:
    """With two or three seeds the interval of their mean reaches from the worst to the best."""
    found = table(made, "final_return")
    assert list(zip(found["algorithm"], found["num_envs"], strict=True)) == ARMS
    assert found["mean"].tolist() == found["iqm"].tolist() == [200, 410, 200, 210]
    assert found["worst"].tolist() == found["ci_low"].tolist() == [100, 400, 90, 200]
    assert found["best"].tolist() == found["ci_high"].tolist() == [300, 420, 310, 220]


def test_time_to_threshold_by_hand(made: tuple[Tables, Plan]) -> None:
    """PPO with 1: inf, 1000, 2000, at 50 steps/s. TRPO with 1: inf and 1000, so half never do."""
    found = table(made, "time_to_threshold")
    assert found["median_steps"].fillna(-1).tolist() == [2000, 1000, -1, 2000]
    assert found["median_s"].fillna(-1).tolist() == [40, 4, -1, 20]
    assert found["earliest_steps"].tolist() == [1000, 1000, 1000, 2000]
    assert found["latest_steps"].tolist() == [2000, 1000, 1000, 2000]
    assert found["reached"].tolist() == [2, 3, 1, 2]


def test_throughput_by_hand(made: tuple[Tables, Plan]) -> None:
    """The warm-up update of 1000 s is in none of the numbers."""
    found = table(made, "throughput")
    assert found["steps_per_s"].tolist() == [50, 250, 40, 100]
    assert found["lowest"].tolist() == [25, 200, 40, 100]
    assert found["highest"].tolist() == [100, 500, 40, 125]
    assert found["env_s"].tolist() == [10, 2, 12.5, 5]
    assert found["timed_updates"].tolist() == found["planned_updates"].tolist() == [3] * 4


def test_wall_clock_by_hand(made: tuple[Tables, Plan]) -> None:
    found = table(made, "wall_clock")
    assert found["mean_s"].tolist() == [70, 70, 70, 65]
    assert found["shortest_s"].tolist() == [60] * 4
    assert found["longest_s"].tolist() == [80, 80, 80, 70]
    assert found["peak_memory_mib"].tolist() == [102, 102, 102, 101]


@pytest.mark.parametrize("name", ["final_return", "time_to_threshold", "wall_clock"])
def test_n_of_n_stands_in_every_table(made: tuple[Tables, Plan], name: str) -> None:
    found = table(made, name)
    assert found["n"].tolist() == [3, 3, 2, 2]
    assert found["planned"].tolist() == [3] * 4


def test_every_cell_is_listed_with_its_reason(made: tuple[Tables, Plan]) -> None:
    found = table(made, "cells")
    assert len(found) == 12
    absent = found[found["status"] != "ok"]
    assert absent["status"].tolist() == ["failed", "missing"]
    assert absent["reason"].tolist() == [REASON, "not run, or stopped before its end"]
    assert absent["final_return"].isna().all()


def test_no_threshold_and_no_throughput(tmp_path: Path) -> None:
    """Empty numbers, but the runs have finished all the same."""
    plan = plan_of(make_benchmark(thresholds={}, throughput={"measure": "never"}))
    write_learning(tmp_path, plan, RETURNS)
    made = gather(plan, tmp_path), plan
    found = table(made, "time_to_threshold")
    assert found[["threshold", "median_steps", "median_s"]].isna().all(axis=None)
    assert found["n"].tolist() == [3, 3, 2, 2]
    speed = table(made, "throughput")
    assert speed["steps_per_s"].isna().all()
    assert speed["timed_updates"].tolist() == speed["planned_updates"].tolist() == [0] * 4


def test_nothing_finished(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark())
    made = gather(plan, tmp_path), plan
    for name in ("final_return", "time_to_threshold", "wall_clock"):
        assert table(made, name)["n"].tolist() == [0] * 4
        assert table(made, name)["planned"].tolist() == [3] * 4
    assert table(made, "throughput")["planned_updates"].tolist() == [3] * 4
    assert table(made, "cells")["status"].tolist() == ["missing"] * 12


@pytest.mark.parametrize("name", list(TABLES))
def test_csv_comes_back(made: tuple[Tables, Plan], name: str) -> None:
    before = table(made, name)
    after = pd.read_csv(io.StringIO(before.to_csv(index=False)))
    pd.testing.assert_frame_equal(
        before.replace("", None).astype(object).fillna("none"),
        after.astype(object).fillna("none"),
        check_dtype=False,
    )


@pytest.mark.parametrize("name", list(TABLES))
def test_markdown_has_a_line_per_row_and_a_bar_per_column(
    made: tuple[Tables, Plan], name: str
) -> None:
    """The reason of the failed cell holds a bar and a line break, which would make more."""
    source = table(made, name)
    lines = as_markdown(source).splitlines()
    assert len(lines) == len(source) + 2
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in lines} == {len(source.columns) + 1}


def test_markdown_by_hand() -> None:
    text = as_markdown(pd.DataFrame({"who": ["ppo"], "steps": [12000], "s": [np.nan]}))
    assert [cell.strip() for cell in text.splitlines()[2].split("|")[1:-1]] == ["ppo", "12,000", ""]


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (12345, "12,345"),
        (np.int64(12345), "12,345"),
        (12345.6, "12,346"),
        (-1234.5, "\N{MINUS SIGN}1,234"),
        (3.0, "3"),
        (99.94, "99.9"),
        (0.123456, "0.123"),
        (-0.5, "\N{MINUS SIGN}0.5"),
        (np.nan, ""),
        (np.inf, ""),
        (None, ""),
        ("ppo", "ppo"),
    ],
)
def test_numbers_for_a_person(value: object, expected: str) -> None:
    assert readable(value) == expected


def test_tick_labels() -> None:
    ticks = [thousands(v, 0) for v in (0, 0.5, 999, 1000, 2500, -1500, 2e6)]
    assert ticks == ["0", "0.5", "999", "1k", "2.5k", "-1.5k", "2M"]


def test_one_environment_is_singular() -> None:
    assert (count_of_environments(1), count_of_environments(8)) == (
        "1 environment",
        "8 environments",
    )
