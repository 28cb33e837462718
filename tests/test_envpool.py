"""Pools of envpool: Gymnasium's equations, and the semantics of every other vector mode."""

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pandas as pd
import psutil
import pytest
import torch

import probes  # noqa: F401 (registers the environments)
from jobs import job, repeatable, trained
from rlbench.errors import InputError
from rlbench.records import read_facts
from rlbench.spec.algorithms import PPO
from rlbench.spec.job import VectorMode
from rlbench.training.envs.vector import Environments, Transition, inspect
from rlbench.training.policy import make_actor_critic
from rlbench.training.rollout import Collector, Rollout
from rlbench.training.stopwatch import Stopwatch

pytest.importorskip("envpool")

CPU = torch.device("cpu")
RIGHT = np.ones(2, np.int64)


def played(
    environment: str, seeds: list[int], actions: np.ndarray, mode: VectorMode = "envpool"
) -> tuple[np.ndarray, list[Transition]]:
    """First observations, and one step per row of actions."""
    with Environments(environment, mode, seeds) as envs:
        return envs.reset(), [envs.step(action) for action in actions]


def flat(first: np.ndarray, steps: list[Transition]) -> list[np.ndarray]:
    return [first] + [
        array
        for s in steps
        for array in (s.observations, s.rewards, s.terminated, s.ended, s.final_observations)
    ]


def collected(environment: str, mode: VectorMode, steps: int = 250) -> tuple[Rollout, list[Any]]:
    generator = torch.Generator().manual_seed(0)
    with Environments(environment, mode, [1, 2, 3]) as envs:
        networks = make_actor_critic(envs.spec, PPO(), generator, CPU)
        return Collector(envs, networks, generator, PPO()).collect(steps, None, Stopwatch(CPU))


# -- the equations -----------------------------------------------------------------------------


def set_plain(env: Any, o: np.ndarray) -> None:
    env.state = o.astype(np.float64)
    env.steps_beyond_terminated = None


def set_pendulum(env: Any, o: np.ndarray) -> None:
    env.state = np.array([np.arctan2(o[1], o[0]), o[2]], np.float64)


def set_acrobot(env: Any, o: np.ndarray) -> None:
    env.state = np.array([np.arctan2(o[1], o[0]), np.arctan2(o[3], o[2]), o[4], o[5]], np.float64)


def set_mujoco(env: Any, o: np.ndarray) -> None:
    """Positions that are not observed are where the robot is along the ground: it is the same."""
    hidden = env.model.nq + env.model.nv - len(o)
    state = np.concatenate([np.zeros(hidden), o.astype(np.float64)])
    env.set_state(state[: env.model.nq], state[env.model.nq :])


def drawn(space: gym.Space[Any], rng: np.random.Generator) -> tuple[Any, Any]:
    """An action, also beyond the bounds, and the nearest one within them."""
    if isinstance(space, gym.spaces.Box):
        action = rng.uniform(1.5 * space.low, 1.5 * space.high).astype(np.float32)
        return action, np.clip(action, space.low, space.high)
    assert isinstance(space, gym.spaces.Discrete)
    choice = int(rng.integers(0, int(space.n)))
    return choice, choice


@pytest.mark.parametrize(
    ("environment", "set_state", "tolerance"),
    [
        ("CartPole-v1", set_plain, 1e-6),
        ("MountainCarContinuous-v0", set_plain, 1e-6),
        ("Pendulum-v1", set_pendulum, 1e-5),
        ("Acrobot-v1", set_acrobot, 1e-5),
        ("HalfCheetah-v5", set_mujoco, 1e-4),
        ("Hopper-v5", set_mujoco, 1e-4),
        ("Walker2d-v5", set_mujoco, 1e-4),
        ("Swimmer-v5", set_mujoco, 1e-4),
        ("InvertedPendulum-v5", set_mujoco, 1e-4),
    ],
)
def test_every_step_is_gymnasiums(
    environment: str, set_state: Callable[[Any, np.ndarray], None], tolerance: float
) -> None:
    """From each state seen, Gymnasium's own step gives the same; actions also beyond the bounds."""
    if environment.endswith("-v5"):
        pytest.importorskip("mujoco")
    env = gym.make(environment).unwrapped
    env.reset(seed=0)
    rng = np.random.default_rng(0)
    with Environments(environment, "envpool", [4]) as envs:
        here, compared = envs.reset()[0], 0
        for _ in range(300):
            action, allowed = drawn(env.action_space, rng)
            set_state(env, here)
            expected, reward, died, _, _ = env.step(allowed)
            step = envs.step(np.asarray(action)[None])
            after = step.final_observations[0] if step.ended[0] else step.observations[0]
            if np.abs(here).max() != 10:  # where Hopper and Walker2d clip the speeds they show
                np.testing.assert_allclose(after, expected, atol=tolerance, rtol=tolerance)
                np.testing.assert_allclose(
                    step.rewards, float(reward), atol=tolerance, rtol=tolerance
                )
                assert step.terminated[0] == died
                compared += 1
            here = step.observations[0]
    assert compared >= 30


def test_a_whole_episode_is_gymnasiums_to_its_last_observation() -> None:
    """CartPole from the pool's first state: length, every observation, and the true final one."""
    actions = np.random.default_rng(1).integers(0, 2, (200, 1))
    first, steps = played("CartPole-v1", [8], actions)
    env = gym.make("CartPole-v1")
    env.reset(seed=0)
    set_plain(env.unwrapped, first[0])
    for step, action in zip(steps, actions, strict=True):
        expected, _, died, _, _ = env.step(int(action[0]))
        assert step.ended[0] == step.terminated[0] == died
        if died:
            break
        np.testing.assert_allclose(step.observations[0], expected, atol=1e-5)
    np.testing.assert_allclose(step.final_observations[0], expected, atol=1e-5)
    assert np.abs(step.observations).max() <= 0.05 < np.abs(step.final_observations).max()


# -- ends --------------------------------------------------------------------------------------


def test_a_time_limit_is_the_ids_own_and_no_death() -> None:
    """Pendulum: 200 steps, over and over; the final observation is not the next one's first."""
    first, steps = played("Pendulum-v1", [1, 2, 3], np.zeros((450, 3, 1), np.float32))
    assert [t + 1 for t, step in enumerate(steps) if step.ended.any()] == [200, 400]
    for t in (199, 399):
        assert steps[t].ended.all()
        assert steps[t].final_observations.shape == (3, 3)
        speed = np.abs(steps[t].final_observations - steps[t - 1].observations)[:, 2]
        assert (speed <= 0.05 * 15 + 1e-5).all(), "gravity alone moves the last speed"
        assert (np.abs(steps[t].observations - steps[t].final_observations) > 1e-3).any(1).all()
        assert not np.array_equal(steps[t].observations, first)
    assert not any(step.terminated.any() for step in steps)


@pytest.mark.parametrize(("sooner", "terminated"), [(0, True), (1, False)])
def test_a_death_in_the_last_step_is_a_death(
    sooner: int, *, terminated: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For envpool itself this episode only ran out of time."""
    _, free = played("CartPole-v1", [1], np.ones((50, 1), np.int64))
    length = next(t + 1 for t, step in enumerate(free) if step.ended[0])
    monkeypatch.setattr(gym.registry["CartPole-v1"], "max_episode_steps", length - sooner)
    _, steps = played("CartPole-v1", [1], np.ones((length - sooner, 1), np.int64))
    assert [step.ended[0] for step in steps] == [False] * (length - sooner - 1) + [True]
    assert steps[-1].terminated[0] == terminated


def test_environments_end_each_for_itself() -> None:
    """Only where one ended is there a new start; the other goes on from where it was."""
    alternating = np.stack([np.ones(40), np.arange(40) % 2], 1).astype(np.int64)
    _, steps = played("CartPole-v1", [1, 2], alternating)
    lonely = played("CartPole-v1", [2], alternating[:, 1:])[1]
    ends = [step.ended.tolist() for step in steps]
    assert [True, False] in ends
    for both, one in zip(steps, lonely, strict=True):
        np.testing.assert_array_equal(both.observations[1], one.observations[0])


# -- seeds -------------------------------------------------------------------------------------


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "HalfCheetah-v5"])
def test_the_same_seeds_give_the_same_episodes(
    environment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Bit for bit, over ends, whatever the number of threads; other seeds give others."""
    if environment == "HalfCheetah-v5":
        pytest.importorskip("mujoco")
    action = gym.make(environment).action_space
    action.seed(0)
    steps = 1100 if environment == "HalfCheetah-v5" else 450
    actions = np.stack([np.stack([action.sample() for _ in range(3)]) for _ in range(steps)])
    one = flat(*played(environment, [5, 6, 2**31 - 1], actions))
    monkeypatch.setattr("rlbench.training.envs.pooled.usable_cores", lambda: 1)
    other = flat(*played(environment, [5, 6, 2**31 - 1], actions))
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)
    assert any(ended.any() for ended in one[4::5])
    swapped = played(environment, [6, 5, 7], actions[:1])[0]
    np.testing.assert_array_equal(swapped[:2], one[0][[1, 0]])
    assert len(np.unique(np.concatenate([swapped, one[0][2:]]), axis=0)) == 4


def test_a_reset_starts_again_from_the_seeds_and_threads_end() -> None:
    with Environments("CartPole-v1", "envpool", [1, 2]) as envs:
        before = psutil.Process().num_threads()
        first = envs.reset()
        for _ in range(30):
            envs.step(RIGHT)
        np.testing.assert_array_equal(envs.reset(), first)
    assert psutil.Process().num_threads() <= before


# -- as the other modes ------------------------------------------------------------------------


@pytest.mark.parametrize("environment", ["CartPole-v1", "Pendulum-v1", "FrozenLake-v1"])
def test_a_rollout_is_as_that_of_other_modes(environment: str) -> None:
    """Same types, shapes and kinds of number; episodes that add up."""
    pools, rows = collected(environment, "envpool")
    plain, _ = collected(environment, "sync")
    for name in Rollout.__slots__:
        one, other = getattr(pools, name), getattr(plain, name)
        assert (one.shape, one.dtype, one.device) == (other.shape, other.dtype, other.device)
        assert torch.isfinite(one.double()).all()
    assert rows
    assert all(type(row.length) is int for row in rows)
    assert int(pools.ended.sum()) == len(rows)
    if environment == "CartPole-v1":
        assert all(row.episode_return == row.length for row in rows)
    if environment == "Pendulum-v1":
        assert {row.length for row in rows} == {200}
        assert (pools.next_values != 0).all()


def test_transitions_have_the_kinds_of_the_other_modes() -> None:
    actions = np.random.default_rng(0).integers(0, 2, (60, 2))
    for one, other in zip(
        played("CartPole-v1", [1, 2], actions)[1],
        played("CartPole-v1", [1, 2], actions, "sync")[1],
        strict=True,
    ):
        for name in Transition.__slots__:
            assert getattr(one, name).dtype == getattr(other, name).dtype
            assert getattr(one, name).shape[1:] == getattr(other, name).shape[1:]


def test_two_runs_are_equal_bit_by_bit(tmp_path: Path) -> None:
    for name in ("one", "two"):
        trained(job(vector_mode="envpool"), tmp_path / name)
    tables = [repeatable(tmp_path / name).values() for name in ("one", "two")]
    for left, right in zip(*tables, strict=True):
        pd.testing.assert_frame_equal(left, right, check_exact=True)
    assert read_facts(tmp_path / "one").vector_mode == "envpool"


# -- refusals ----------------------------------------------------------------------------------


def test_auto_never_takes_a_pool() -> None:
    assert inspect("MountainCar-v0", "auto", 8)[1] in {"sync", "async"}
    assert inspect("CartPole-v1", "auto", 8)[1] == "native"


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        (
            "Taxi-v4",
            r"does not have 'Taxi-v4' \(of that name: Taxi-v3\). Use 'auto', 'sync' or 'async'",
        ),
        ("probes:Fixed3-v0", r"does not have 'probes:Fixed3-v0' \(of that name: none\)"),
    ],
)
def test_an_id_that_envpool_does_not_have_is_refused(environment: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        inspect(environment, "envpool", 2)


def test_an_environment_of_another_size_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("mujoco")
    kwargs = {"exclude_current_positions_from_observation": False}
    monkeypatch.setattr(gym.registry["HalfCheetah-v5"], "kwargs", kwargs)
    with pytest.raises(InputError, match=r"has observations Box\(17,\).*has observations Box\(18"):
        inspect("HalfCheetah-v5", "envpool", 2)


def test_an_id_that_someone_else_took_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gym.registry["CartPole-v1"], "entry_point", "probes:Probe")
    with pytest.raises(InputError, match="whose 'CartPole-v1' is Gymnasium's, but here that id is"):
        inspect("CartPole-v1", "envpool", 2)


def test_without_the_package_its_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "envpool", None)
    with pytest.raises(InputError, match=r'envpool.*; pip install "rlbench\[envpool\]", or use'):
        inspect("CartPole-v1", "envpool", 2)
