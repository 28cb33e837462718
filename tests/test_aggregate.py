"""From a folder whose numbers were chosen by hand to tables that say the same."""

import json
from pathlib import Path

import pandas as pd
import pyarrow.parquet as pq
import pytest

from results_folder import (
    ENVIRONMENT,
    REASON,
    RETURNS,
    handmade,
    handmade_tables,
    make_benchmark,
    plan_of,
    write_failure,
    write_learning,
    write_run,
    write_timings,
)
from rlbench.analysis.aggregate import (
    gather,
    mixed_code,
    read_plan,
    read_tables,
    require_runs,
    write_tables,
)
from rlbench.analysis.drawing import read_words
from rlbench.errors import InputError
from rlbench.records import SCHEMA_VERSION, EvaluationRow
from rlbench.spec.grid import Arm, Cell

PPO_0 = Cell("ppo", ENVIRONMENT, 1, "cpu", 0)


def state(cells: pd.DataFrame, algorithm: str, num_envs: int, seed: int) -> tuple[str, str]:
    """Status and reason of one cell."""
    chosen = cells[
        (cells["algorithm"] == algorithm)
        & (cells["num_envs"] == num_envs)
        & (cells["seed"] == seed)
    ]
    (row,) = chosen.to_dict("records")
    return row["status"], row["reason"]


def test_every_planned_cell_has_a_state(tmp_path: Path) -> None:
    tables, _ = handmade_tables(tmp_path)
    assert tables.cells["status"].value_counts().to_dict() == {"ok": 10, "failed": 1, "missing": 1}
    assert state(tables.cells, "trpo", 1, 1) == ("failed", REASON)
    assert state(tables.cells, "trpo", 8, 2) == ("missing", "not run, or stopped before its end")
    assert state(tables.cells, "ppo", 8, 2) == ("ok", "")


def test_the_final_return_is_the_mean_of_the_last_evaluation(tmp_path: Path) -> None:
    tables, _ = handmade_tables(tmp_path)
    got = tables.cells.groupby(["algorithm", "num_envs"])["final_return"].apply(list)
    assert got["ppo", 1] == [100, 200, 300]
    assert pd.Series(got["trpo", 8]).dropna().tolist() == [200, 220]


def test_an_evaluation_is_one_observation(tmp_path: Path) -> None:
    tables, _ = handmade_tables(tmp_path)
    assert len(tables.evaluations) == 10 * 3
    one = tables.evaluations[:3]
    assert one["env_steps"].tolist() == [0, 1000, 2000]
    assert one["episode_return"].tolist() == [0, 50, 100]
    assert one["return_std"].tolist() == [8, 8, 8]
    assert one["episodes"].tolist() == [2, 2, 2]


def test_more_episodes_per_evaluation_are_not_more_observations(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark())
    for episodes, folder in ((2, tmp_path / "few"), (4, tmp_path / "many")):
        write_run(folder, plan, PPO_0, (0, 50, 100), episodes=episodes)
    few, many = (gather(plan, tmp_path / name).evaluations for name in ("few", "many"))
    pd.testing.assert_frame_equal(few.drop(columns="episodes"), many.drop(columns="episodes"))


def test_rates_are_steps_over_wall_time(tmp_path: Path) -> None:
    tables, _ = handmade_tables(tmp_path)
    rows = tables.timings[:4]
    assert rows["warmup"].tolist() == [True, False, False, False]
    assert rows["steps_per_s"].tolist() == [1, 25, 50, 100]
    assert rows["updates_per_s"].tolist() == [0.001, 0.025, 0.05, 0.1]


def test_a_run_without_its_facts_is_not_there(tmp_path: Path) -> None:
    """The facts are written last, so their absence means that the run did not end."""
    plan = handmade(tmp_path)
    (tmp_path / "runs" / PPO_0.path / "run.json").unlink()
    tables = gather(plan, tmp_path)
    assert state(tables.cells, "ppo", 1, 0)[0] == "missing"
    assert len(tables.updates) == 9 * 2


def test_a_failure_before_a_success_is_forgotten(tmp_path: Path) -> None:
    plan = handmade(tmp_path)
    write_failure(tmp_path, PPO_0)
    assert state(gather(plan, tmp_path).cells, "ppo", 1, 0) == ("ok", "")


def test_runs_outside_the_plan_are_left_alone(tmp_path: Path) -> None:
    handmade(tmp_path)
    tables = gather(plan_of(make_benchmark(seeds=[2], num_envs=[8])), tmp_path)
    assert tables.cells["final_return"].dropna().tolist() == [420]
    assert set(tables.updates["seed"]) == {2}
    assert set(tables.timings["num_envs"]) == {8}


def test_an_environment_with_a_module_and_a_slash(tmp_path: Path) -> None:
    name = "ale_py:ALE/Pong-v5"
    plan = plan_of(make_benchmark(environments=[name], thresholds={}))
    write_learning(tmp_path, plan, RETURNS)
    done = gather(plan, tmp_path).cells.query("status == 'ok'")
    assert set(done["environment"]) == {name}
    assert len(done) == 10


def test_tables_come_back_from_their_files(tmp_path: Path) -> None:
    tables, _ = handmade_tables(tmp_path)
    files = write_tables(tables, tmp_path)
    again = read_tables(tmp_path)
    for path in files:
        before, after = getattr(tables, path.stem), getattr(again, path.stem)
        pd.testing.assert_frame_equal(before, after, check_dtype=False)


def test_two_gatherings_give_the_same_bytes(tmp_path: Path) -> None:
    plan = handmade(tmp_path)
    first, second = (
        [path.read_bytes() for path in write_tables(gather(plan, tmp_path), tmp_path / name)]
        for name in ("a", "b")
    )
    assert first == second


def test_a_plan_comes_back(tmp_path: Path) -> None:
    assert handmade(tmp_path) == read_plan(tmp_path)


def test_what_is_not_there_is_named_with_what_makes_it(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"benchmark\.json: not there.*rlbench aggregate"):
        read_plan(tmp_path)
    with pytest.raises(
        InputError, match=r"cells\.parquet: not there; `rlbench aggregate .*` makes"
    ):
        read_tables(tmp_path)
    with pytest.raises(InputError, match=r"figures\.json: not there; `rlbench figures .*` makes"):
        read_words(tmp_path / "figures")
    assert InputError.exit_code == 2


def test_a_finished_run_without_rows_is_damaged(tmp_path: Path) -> None:
    plan = handmade(tmp_path)
    (tmp_path / "runs" / PPO_0.path / EvaluationRow.file).unlink()
    with pytest.raises(InputError, match=r"evaluations\.parquet: not there.*[Rr]un the cell again"):
        gather(plan, tmp_path)


@pytest.mark.parametrize(
    "name",
    [f"runs/{PPO_0.path}/run.json", "state/{failed}/failure.json", "throughput/{arm}/run.json"],
)
@pytest.mark.parametrize(("step", "way_out"), [(1, "update rlbench"), (-1, "run the cell again")])
def test_facts_of_another_schema_are_refused(
    tmp_path: Path, name: str, step: int, way_out: str
) -> None:
    plan = handmade(tmp_path)
    failed = Cell("trpo", ENVIRONMENT, 1, "cpu", 1)
    path = tmp_path / name.format(failed=failed.path, arm=PPO_0.arm.path)
    values = json.loads(path.read_text())
    path.write_text(json.dumps(values | {"schema_version": SCHEMA_VERSION + step}))
    with pytest.raises(InputError, match=f"schema {SCHEMA_VERSION + step}.*{way_out}"):
        gather(plan, tmp_path)


def test_rows_of_a_newer_schema_are_refused(tmp_path: Path) -> None:
    plan = handmade(tmp_path)
    path = tmp_path / "runs" / PPO_0.path / EvaluationRow.file
    table = pq.read_table(path)
    newer = str(SCHEMA_VERSION + 1)
    pq.write_table(table.replace_schema_metadata({"schema_version": newer}), path)
    with pytest.raises(InputError, match=rf"schema {newer}.*update rlbench"):
        gather(plan, tmp_path)


def test_rows_with_other_columns_are_refused(tmp_path: Path) -> None:
    plan = handmade(tmp_path)
    path = tmp_path / "runs" / PPO_0.path / EvaluationRow.file
    pq.write_table(pq.read_table(path).drop_columns(["length"]), path)
    with pytest.raises(InputError, match="columns are"):
        gather(plan, tmp_path)


def test_versions_of_the_code_are_counted_over_both_kinds_of_runs(tmp_path: Path) -> None:
    tables, plan = handmade_tables(tmp_path)
    assert mixed_code(tables) == {"aaaaaaaaaaaa": 10 + 4}
    write_run(tmp_path, plan, PPO_0, (0, 50, 100), digest="bbbbbbbbbbbb")
    write_timings(tmp_path, plan, Arm("trpo", ENVIRONMENT, 8, "cpu"), [1.0], digest="cccccccccccc")
    found = mixed_code(gather(plan, tmp_path))
    assert found == {"aaaaaaaaaaaa": 9 + 3, "bbbbbbbbbbbb": 1, "cccccccccccc": 1}


def test_nothing_finished_still_has_typed_columns(tmp_path: Path) -> None:
    plan = plan_of(make_benchmark())
    empty = gather(plan, tmp_path)
    full, _ = handmade_tables(tmp_path)
    assert empty.cells["status"].tolist() == ["missing"] * 12
    for name in ("updates", "episodes", "evaluations", "timings"):
        before, after = getattr(empty, name), getattr(full, name)
        assert before.empty
        assert before.dtypes.to_dict() == after.dtypes.to_dict()


def test_nothing_finished_is_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no finished run among 12 cells"):
        require_runs(gather(plan_of(make_benchmark()), tmp_path), tmp_path)


def test_a_run_of_another_job_is_outdated_and_left_out(tmp_path: Path) -> None:
    """By hand: the config changed, the runs did not; they must not pass for the new config's."""
    benchmark = handmade(tmp_path).benchmark
    changed = plan_of(benchmark.model_copy(update={"hyperparameters": {"trpo": {"max_kl": 0.5}}}))
    cells = gather(changed, tmp_path).cells
    before = gather(plan_of(benchmark), tmp_path).cells
    trpo = cells["algorithm"] == "trpo"
    assert (cells[trpo & (before["status"] == "ok")]["status"] == "outdated").all()
    assert (cells[~trpo]["status"] == before[~trpo]["status"]).all()
    assert cells[trpo]["final_return"].isna().all()
