"""Each public bug of autoreset, workers and bounds that this package must not have."""

import multiprocessing
import re

import numpy as np
import pytest

import probes  # noqa: F401 (registers the environments)
from rlbench.errors import InputError, RunFailed
from rlbench.spec.job import VectorMode
from rlbench.training.envs.spaces import Continuous
from rlbench.training.envs.vector import Environments, inspect

MODES: list[VectorMode] = ["sync", "async"]


def still(envs: Environments) -> np.ndarray:
    """An action that does nothing."""
    return np.zeros((envs.count, 1), np.float32)


def play(envs: Environments, steps: int) -> None:
    """Reset, and do nothing for so many steps."""
    envs.reset()
    for _ in range(steps):
        envs.step(still(envs))


@pytest.mark.parametrize("mode", MODES)
def test_every_transition_is_real_and_final_observations_are_true(mode: VectorMode) -> None:
    """Three steps an episode: observations 1, 2, then 3 as the final one and 0 as the next."""
    with Environments("probes:Fixed3-v0", mode, [1, 2]) as envs:
        assert envs.reset().tolist() == [[0], [0]]
        steps = [envs.step(still(envs)) for _ in range(12)]
    assert [s.observations[0, 0] for s in steps] == [1, 2, 0] * 4
    assert [s.ended.tolist() for s in steps] == [[False] * 2, [False] * 2, [True] * 2] * 4
    assert [s.final_observations.tolist() for s in steps] == [[], [], [[3], [3]]] * 4
    assert not any(s.terminated.any() for s in steps)
    assert all((s.rewards == 1).all() for s in steps)


def test_an_environment_that_reuses_its_array_keeps_its_final_observation() -> None:
    with Environments("probes:InPlace-v0", "sync", [1]) as envs:
        envs.reset()
        last = [envs.step(still(envs)) for _ in range(3)][-1]
    assert last.final_observations.tolist() == [[3]]
    assert last.observations.tolist() == [[0]]


def test_a_death_is_told_from_a_time_limit() -> None:
    with Environments("probes:Dies3-v0", "sync", [1]) as envs:
        envs.reset()
        last = [envs.step(still(envs)) for _ in range(3)][-1]
    assert last.terminated.all()
    assert last.ended.all()


def test_sync_and_async_give_the_same_episodes() -> None:
    """Bit for bit: observations, rewards and ends of Pendulum over two episodes."""
    actions = np.random.default_rng(0).normal(0, 2, (450, 3, 1)).astype(np.float32)
    played = []
    for mode in MODES:
        with Environments("Pendulum-v1", mode, [5, 6, 7]) as envs:
            steps = [envs.reset()]
            for action in actions:
                step = envs.step(action)
                steps += [step.observations, step.rewards, step.ended, step.final_observations]
        played.append(steps)
    for one, other in zip(*played, strict=True):
        np.testing.assert_array_equal(one, other)


def test_observations_are_cast_once_and_flattened() -> None:
    with Environments("probes:F64-v0", "sync", [1]) as envs:
        assert envs.spec.observation_size == 6
        assert envs.reset().dtype == np.float32
        assert envs.step(np.zeros((1, 2))).observations.tolist() == [[1, 2, 3, 4, 5, 6]]


def test_actions_never_leave_the_space() -> None:
    """Bounds [-1, 2] and [-0.5, 0.5]; the reward is the first number that arrived."""
    with Environments("probes:F64-v0", "sync", [1, 2, 3]) as envs:
        envs.reset()
        step = envs.step(np.array([[-9, -9], [0.25, 0.0], [9, 9]], np.float64))
    assert step.rewards.tolist() == [-1, 0.25, 2]


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        ([-np.inf, -np.inf], [np.inf, np.inf], [-7, 7]),
        ([-1, -np.inf], [np.inf, 1], [-1, 1]),
        ([-1, 0], [1, 3], [-1, 3]),
    ],
)
def test_boxes_of_every_kind_are_clipped(low: object, high: object, expected: object) -> None:
    box = Continuous((2, 1), np.array(low, float), np.array(high, float), np.dtype(np.float32))
    sent = box.to_env(np.array([[-7.0, 7.0]]))
    assert sent.shape == (1, 2, 1)
    assert sent.flatten().tolist() == expected


@pytest.mark.parametrize("mode", MODES)
def test_an_error_carries_its_environment_step_and_words(mode: VectorMode) -> None:
    with Environments("probes:Raise50-v0", mode, [1, 2]) as envs, pytest.raises(RunFailed) as error:
        play(envs, 60)
    assert re.match(r"environment [01] raised ValueError at step 50: the probe's", str(error.value))
    assert "probes.py" in str(error.value)
    assert not multiprocessing.active_children()


def test_a_hanging_environment_is_named_and_ended() -> None:
    with (
        Environments("probes:Hang50-v0", "async", [1, 2], timeout_s=2) as envs,
        pytest.raises(RunFailed, match=r"environment [01] did not answer within 2 s at step 50"),
    ):
        play(envs, 60)
    assert not multiprocessing.active_children()


def test_a_dead_process_is_named() -> None:
    with (
        Environments("probes:Exit50-v0", "async", [1, 2]) as envs,
        pytest.raises(RunFailed, match=r"process of environment [01] died at step 50 \(exit code"),
    ):
        play(envs, 60)
    assert not multiprocessing.active_children()


@pytest.mark.parametrize(
    ("probe", "what"),
    [("Nan100", r"reward \(nan\) at step 100"), ("NanObservation", "observation")],
)
def test_a_number_that_is_not_finite_stops_the_run(probe: str, what: str) -> None:
    with (
        Environments(f"probes:{probe}-v0", "sync", [1]) as envs,
        pytest.raises(RunFailed, match=f"environment 0 gave a non-finite {what}"),
    ):
        play(envs, 200)


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ("probes:DictObs-v0", r"observation space Dict.*supported: Box.*, Discrete"),
        ("Pendulum-v99", r"Pendulum-v99.*must be an id that gymnasium.make knows"),
        ("no_such_module:Env-v0", r"No module named 'no_such_module'"),
    ],
)
def test_an_impossible_environment_is_refused_by_name(environment: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inspect(environment, "sync", 2)


def test_auto_takes_workers_only_where_they_pay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rlbench.training.envs.vector.usable_cores", lambda: 8)
    assert inspect("probes:Inf50-v0", "auto", 8)[1] == "sync"
    assert inspect("probes:Slow-v0", "auto", 8)[1] == "async"
    assert inspect("probes:Slow-v0", "auto", 1)[1] == "sync"
