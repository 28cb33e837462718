"""The scripts of the reference: what is best possible, and whether it is reached."""

import sys
from pathlib import Path
from types import SimpleNamespace

import gymnasium as gym
import numpy as np
import pandas as pd
import pytest
import yaml

import learning_gates
import pendulum_optimum as optimum
import reference_points
from learning_gates import GATES, PASSES, Gate
from results_folder import handmade, handmade_tables, make_benchmark, plan_of, write_run
from rlbench.analysis.aggregate import gather, write_plan
from rlbench.errors import InputError
from rlbench.spec.config import load_benchmark
from rlbench.spec.plan import Plan

FINAL = Gate("final return", "IQM", ">=", 300)
ROOT = Path(__file__).parents[1]


# -- gates: the handmade folder has final returns 100, 200, 300 (PPO, 1 environment) -----------


def judged(folder: Path, *gates: Gate) -> pd.DataFrame:
    """The handmade folder's verdicts, by algorithm and num_envs."""
    tables, plan = handmade_tables(folder)
    runs = learning_gates.measure(tables, folder, plan, gates)
    return learning_gates.judge(runs, gates).set_index(["algorithm", "num_envs"])


def runs_with(values: list[float]) -> pd.DataFrame:
    """Finished runs of one arm with these final returns."""
    return pd.DataFrame({"status": "ok", "final return": values})


@pytest.mark.parametrize(
    ("over_seeds", "by_hand"),
    [("IQM", (2 + 3 + 4) / 3), ("mean", 21.4), ("min", -1.0), ("max", 99.0)],
)
def test_seeds_become_one_number(over_seeds: str, by_hand: float) -> None:
    """Of -1, 2, 3, 4, 99 the middle half is 2, 3, 4: one is cut on each side."""
    gate = Gate("final return", over_seeds, ">=", by_hand)
    measured, verdict = learning_gates.verdict(gate, runs_with([3, 99, -1, 4, 2]))
    assert measured == pytest.approx(by_hand)
    assert verdict == PASSES


@pytest.mark.parametrize(
    ("sense", "bound", "passes"),
    [
        ("<=", 2.0, True),
        ("<=", 1.9, False),
        (">=", 2.0, True),
        (">=", 2.1, False),
        (">", 2.0, False),
    ],
)
def test_a_bound_counts_as_reached(sense: str, bound: float, passes: bool) -> None:
    gate = Gate("final return", "mean", sense, bound)  # type: ignore[arg-type]
    assert (learning_gates.verdict(gate, runs_with([1, 3]))[1] == PASSES) is passes


def test_the_lower_end_of_three_equal_seeds_is_their_number() -> None:
    gate = Gate("final return", "lower end of IQM", ">", 0)
    assert learning_gates.verdict(gate, runs_with([5.0, 5.0, 5.0])) == (5.0, PASSES)
    assert learning_gates.verdict(gate, runs_with([-5.0, 50.0, 60.0]))[1] == "FAILS"


def test_one_seed_without_a_number_fails_though_the_iqm_would_cut_it() -> None:
    gate = Gate("final return", "IQM", ">=", 0)
    assert learning_gates.verdict(gate, runs_with([1, 2, 3, 4, np.nan]))[1] == "FAILS"


def test_each_arm_is_judged_and_a_missing_run_fails(tmp_path: Path) -> None:
    table = judged(tmp_path, Gate("final return", "IQM", ">=", 205))
    assert table.loc[("ppo", 1), "measured"] == 200
    assert table["verdict"].to_dict() == {
        ("ppo", 1): "FAILS",
        ("ppo", 8): PASSES,
        ("trpo", 1): "FAILS: 1 of 3 runs are missing",
        ("trpo", 8): "FAILS: 1 of 3 runs are missing",
    }
    assert table.loc[("trpo", 8), "per_seed"] == "200, 220, none"


def test_gains_are_differences_of_the_last_evaluation(tmp_path: Path) -> None:
    """PPO with 8 environments goes from 0 to 400, 410, 420; random Pendulum is at about -1,200."""
    table = judged(
        tmp_path,
        Gate("gain on untrained", "mean", ">=", 410),
        Gate("gain on random", "mean", ">=", 410 + 1100),
    )
    ppo = table.loc[[("ppo", 8)]]
    assert ppo["verdict"].tolist() == [PASSES, PASSES]
    untrained, random = ppo["measured"]
    assert untrained == 410
    assert random == pytest.approx(410 + 1200, rel=0.05)


def test_the_largest_kl_is_held_against_the_bound_of_the_run(tmp_path: Path) -> None:
    """The handmade updates have KL 0.01 and 0.02, above a max_kl of 0.01; PPO promises nothing."""
    bound = {"trpo": {"max_kl": 0.01}}
    changes = {"algorithms": ["ppo", "trpo"], "num_envs": [8], "seeds": [0]}
    plan = plan_of(make_benchmark(hyperparameters=bound, **changes))
    for cell in plan.cells:
        write_run(tmp_path, plan, cell, (0, 100, 200))
    success = Gate("line-search success", "mean", ">=", 0.95, only="trpo")
    gates = (learning_gates.TRUST_REGION, success)
    runs = learning_gates.measure(gather(plan, tmp_path), tmp_path, plan, gates)
    table = learning_gates.judge(runs, gates)
    assert table["algorithm"].tolist() == ["trpo", "trpo"]
    assert table["measured"].tolist() == pytest.approx([0.01, 1.0])
    assert table["verdict"].tolist() == ["FAILS", PASSES]


def test_regret_is_against_the_optimum_of_the_same_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A policy that loses s / 100 from the start of seed s loses 4.995 on average."""
    best = pd.read_csv(ROOT / "docs/reference/pendulum_optimum.csv").set_index("seed")

    def replayed(_: Path, policy: str, seeds: list[int]) -> list[SimpleNamespace]:
        assert policy == "last"
        optimal = best["optimal_return"][seeds]
        return [
            SimpleNamespace(episode_return=value - seed / 100, length=200)
            for seed, value in zip(seeds, optimal, strict=True)
        ]

    monkeypatch.setitem(
        sys.modules,
        "rlbench.training.replay",
        SimpleNamespace(evaluate_run=replayed),
    )
    assert learning_gates.regret(tmp_path) == pytest.approx(4.995)


# -- gates: folders and pages ------------------------------------------------------------------


def reference_folder(folder: Path, monkeypatch: pytest.MonkeyPatch, returns: list[float]) -> Plan:
    """A results folder of a group of its own, CartPole with one algorithm, and its config."""
    benchmark = make_benchmark(
        name="reference-handmade", algorithms=["ppo"], num_envs=[8], seeds=[0, 1, 2]
    )
    configs = folder / "configs"
    configs.mkdir()
    (configs / "handmade.yaml").write_text(yaml.safe_dump(benchmark.model_dump(mode="json")))
    monkeypatch.setattr(learning_gates, "CONFIGS", configs)
    monkeypatch.setitem(learning_gates.GATES, "handmade", (FINAL,))
    plan = plan_of(benchmark)
    write_plan(plan, folder)
    for cell, final in zip(plan.cells, returns, strict=False):
        write_run(folder, plan, cell, (0, 0, final))
    return plan


@pytest.mark.parametrize(
    ("returns", "code"), [([299, 300, 301], 0), ([299, 300, 300], 1), ([400, 400], 1)]
)
def test_the_exit_code_says_whether_all_gates_pass(
    returns: list[float],
    code: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    reference_folder(tmp_path, monkeypatch, returns)
    assert learning_gates.main((tmp_path,), tmp_path / "out") == code
    assert f"{1 - code} of 1 gates pass" in capsys.readouterr().out
    rows = pd.read_csv(tmp_path / "out" / "handmade.csv")
    assert rows["final return"].dropna().tolist() == returns
    assert len(rows) == 3
    page = (tmp_path / "out" / "handmade.md").read_text()
    for fact in ("`make reference GROUP=handmade`", "0123456789ab", "Abacus", "numpy 2"):
        assert fact in page


def test_other_values_than_the_config_s_are_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = reference_folder(tmp_path, monkeypatch, [])
    assert learning_gates.group_of(tmp_path, plan) == "handmade"
    shorter = plan.benchmark.model_copy(update={"seeds": (0, 1)})
    write_plan(plan.model_copy(update={"benchmark": shorter}), tmp_path)
    with pytest.raises(
        InputError, match=r"made with other values than config/reference/handmade\.yaml has"
    ):
        learning_gates.main((tmp_path,), tmp_path / "out")


def test_an_unknown_group_and_mixed_code_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(InputError, match="got benchmark 'handmade'; allowed: reference-pendulum,"):
        learning_gates.group_of(tmp_path, handmade(tmp_path / "other"))
    plan = reference_folder(tmp_path, monkeypatch, [300, 300, 300])
    write_run(tmp_path, plan, plan.cells[0], (0, 0, 300), digest="bbbbbbbbbbbb")
    with pytest.raises(InputError, match="2 versions of the training code"):
        learning_gates.main((tmp_path,), tmp_path / "out")


def test_every_reference_config_has_gates_and_every_gate_a_config() -> None:
    configs = {path.stem for path in (ROOT / "config" / "reference").glob("*.yaml")}
    assert configs == set(GATES)


# -- the best return on Pendulum ---------------------------------------------------------------

UPRIGHT, HANGING = 0.0, np.pi


def value(grid: optimum.Grid, steps: int, angle: float, speed: float = 0.0) -> float:
    """Best return of so many steps from one state."""
    table = optimum.optimal_values(grid, steps)
    return float(grid.mixture(np.array([angle]), np.array([speed])).of(table[0])[0])


def test_one_step_of_the_pendulum_is_gymnasium_s() -> None:
    env = gym.make("Pendulum-v1")
    env.reset(seed=3)
    state = env.get_wrapper_attr("state")
    _, reward, *_ = env.step(np.array([1.5], np.float32))
    ours, *after = optimum.step(state[:1], state[1:], 1.5)
    assert ours == pytest.approx(reward)
    assert np.concatenate(after) == pytest.approx(env.get_wrapper_attr("state"))


def test_the_last_step_costs_its_state_and_no_torque() -> None:
    """-(pi / 2)^2 - 0.1 * 2^2, and torque 0; both are grid points (8 angles, speeds 2 apart)."""
    grid = optimum.Grid(angles=8, speeds=9, torques=3)
    assert value(grid, 1, np.pi / 2, 2.0) == pytest.approx(-((np.pi / 2) ** 2) - 0.4)


def test_a_plane_is_interpolated_exactly_and_the_circle_is_closed() -> None:
    grid = optimum.Grid(angles=8, speeds=9, torques=3)
    angle, speed = grid.states()
    places = grid.mixture(np.array([0.3, -1.1]), np.array([-7.9, 8.0]))
    assert places.of(2 * angle - speed) == pytest.approx([0.6 + 7.9, -2.2 - 8.0])
    halfway = np.array([np.pi - np.pi / 8])  # between the last grid angle and the first
    assert grid.mixture(halfway, np.zeros(1)).of(angle) == pytest.approx([-np.pi / 8])


def test_standing_is_free_and_hanging_is_not() -> None:
    grid = optimum.Grid(angles=50, speeds=41, torques=5)
    assert value(grid, 50, UPRIGHT) == pytest.approx(0)
    assert value(grid, 50, HANGING) < value(grid, 50, np.pi / 4) < -1


def test_more_time_costs_more_and_more_torques_less() -> None:
    coarse = optimum.Grid(angles=40, speeds=33, torques=3)
    fine = optimum.Grid(angles=40, speeds=33, torques=5)  # the three and two between
    table = optimum.optimal_values(coarse, 30)
    assert (table[0] <= table[1]).all()
    assert (optimum.optimal_values(fine, 30)[0] >= table[0]).all()


def test_finer_grids_come_together() -> None:
    sizes = [optimum.Grid(25 * k, 20 * k + 1, 5) for k in (1, 2, 4)]
    first, second, third = (
        optimum.expected_optimum(grid, optimum.optimal_values(grid)[0]) for grid in sizes
    )
    assert abs(third - second) < abs(second - first) / 2
    assert third == pytest.approx(-137.4, abs=15)


def test_the_greedy_policy_gets_what_the_values_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    """In Gymnasium's environment, not in the equations the values come from."""
    monkeypatch.setattr(optimum, "START_SEEDS", range(40))
    grid = optimum.Grid(angles=100, speeds=81, torques=5)
    table = optimum.optimal_values(grid)
    promised = grid.mixture(*optimum.start_states()).of(table[0]).mean()
    received = optimum.greedy_returns(grid, table).mean()
    assert received == pytest.approx(promised, abs=5)


# -- committed points --------------------------------------------------------------------------


def test_the_committed_optimum_belongs_to_gymnasium_s_start_states() -> None:
    rows = pd.read_csv(ROOT / "docs/reference/pendulum_optimum.csv")
    assert rows["seed"].tolist() == list(range(1000))
    states = rows[["angle", "speed"]].to_numpy()
    env = gym.make("Pendulum-v1")
    for seed in (0, 1, 999):
        env.reset(seed=seed)
        assert states[seed] == pytest.approx(env.get_wrapper_attr("state"), abs=1e-6)
    assert (rows["optimal_return"] < 0).all()
    assert rows["optimal_return"].mean() == pytest.approx(-137.4, abs=3 * 73.3 / np.sqrt(1000))


def test_a_point_replaces_its_own_row_only(tmp_path: Path) -> None:
    path = tmp_path / "points.csv"
    points = [("LunarLander-v3", -1.0), ("Pendulum-v1", -2.0), ("LunarLander-v3", -3.0)]
    for environment, mean in points:
        row: dict[str, object] = {"environment": environment, "random_return": mean}
        reference_points.write_point(row, path)
    assert path.read_text().split() == [
        "environment,random_return", "Pendulum-v1,-2.0", "LunarLander-v3,-3.0"
    ]  # fmt: skip


def test_random_actions_repeat_and_every_gated_environment_has_its_point() -> None:
    first = reference_points.random_returns("CartPole-v1", episodes=20)
    assert first.tolist() == reference_points.random_returns("CartPole-v1", episodes=20).tolist()
    assert 15 < first.mean() < 30  # the first pushes fell the pole in about 22 steps
    points = pd.read_csv(reference_points.OUTPUT).set_index("environment")
    assert list(points.index) == list(reference_points.BEST)
    wanted = load_benchmark(ROOT / "config/reference/first-steps.yaml").environments
    assert set(wanted) <= set(points.index)
