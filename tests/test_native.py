"""Native environments against Gymnasium's own, bit for bit."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest

from rlbench.errors import InputError
from rlbench.training.envs.batched import NativeVectorEnv, has_native
from rlbench.training.envs.native import NATIVE, _squared
from rlbench.training.envs.vector import Environments, inspect

RNG = np.random.default_rng(0)
STATES: dict[str, tuple[list[float], list[float]]] = {
    "Pendulum-v1": ([-9, -8], [9, 8]),
    "CartPole-v1": ([-2.5, -3, -0.22, -3], [2.5, 3, 0.22, 3]),
    "Acrobot-v1": ([-3.1, -3.1, -12, -28], [3.1, 3.1, 12, 28]),
    "MountainCarContinuous-v0": ([-1.2, -0.07], [0.6, 0.07]),
}
"""Lowest and highest of each quantity."""
each = pytest.mark.parametrize("environment", sorted(NATIVE))


def random_actions(environment: str, steps: int, num_envs: int) -> np.ndarray:
    """Actions of the whole space, and of its bounds."""
    space = gym.make(environment).action_space
    if isinstance(space, gym.spaces.Discrete):
        return RNG.integers(0, int(space.n), (steps, num_envs))
    assert isinstance(space, gym.spaces.Box)
    drawn = RNG.uniform(1.2 * space.low, 1.2 * space.high, (steps, num_envs, 1))
    return drawn.astype(np.float32)


@each
def test_sync_and_native_play_the_same_episodes(environment: str) -> None:
    """Thousands of steps of 5 environments, over deaths, time limits and resets."""
    actions = random_actions(environment, 1300, 5)
    played: list[list[Any]] = []
    for mode in ("sync", "native"):
        with Environments(environment, mode, [1, 2, 3, 2**60, 5]) as envs:
            rows = [envs.reset()]
            for action in actions:
                step = envs.step(action)
                rows += [step.observations, step.rewards, step.terminated, step.ended]
                rows += [step.final_observations]
        played.append(rows)
    for one, other in zip(*played, strict=True):
        np.testing.assert_array_equal(one, other)
        assert one.dtype == other.dtype
        assert one.flags.c_contiguous == other.flags.c_contiguous  # else products are rounded apart
    assert any(rows.any() for rows in played[0][4::5]), "no episode ended: nothing was compared"


@each
def test_a_step_from_any_state_is_gymnasiums(environment: str) -> None:
    """3,000 random states and actions, the whole state space and not only what play reaches."""
    low, high = STATES[environment]
    env = gym.make(environment).unwrapped
    dynamics = NATIVE[environment][1]
    states = RNG.uniform(low, high, (3000, len(low)))
    if environment.startswith("Mountain"):
        states = states.astype(np.float32).astype(np.float64)
    actions = random_actions(environment, 1, 3000)[0]
    if actions.ndim == 2:
        actions = np.clip(actions, env.action_space.low, env.action_space.high)  # type: ignore[attr-defined]
    width = len(dynamics.starts(np.random.default_rng(0), 1))
    state = np.zeros((width, 3000))
    state[: len(low)] = states.T
    following, rewards, died = dynamics.step(state, actions)
    observations = dynamics.observe(following)
    env.reset(seed=0)
    for i in range(3000):
        narrow = np.float32 if environment.startswith("Mountain") else np.float64
        env.state = states[i].astype(narrow)  # type: ignore[attr-defined]
        if environment == "CartPole-v1":
            env.steps_beyond_terminated = None  # type: ignore[attr-defined]
        observation, reward, terminated, _, _ = env.step(actions[i])
        np.testing.assert_array_equal(observations[i], observation)
        assert (rewards[i], died[i]) == (reward, terminated)


def test_native_has_the_interface_of_a_vector_environment() -> None:
    envs = NativeVectorEnv(gym.make("Pendulum-v1"), 3)
    observations, infos = envs.reset(seed=[1, 2, 3])
    assert envs.observation_space.contains(observations)
    assert envs.metadata["autoreset_mode"] is gym.vector.AutoresetMode.SAME_STEP
    assert infos == {}
    for _ in range(200):
        observations, rewards, terminated, truncated, infos = envs.step(envs.action_space.sample())
    assert rewards.shape == terminated.shape == (3,)
    assert observations.flags.c_contiguous  # as those of single environments, stacked
    assert truncated.all()
    assert envs.observation_space.contains(infos["final_obs"])
    np.testing.assert_array_equal(infos["_final_obs"], [True] * 3)


def test_only_the_environment_itself_is_native() -> None:
    assert has_native("Pendulum-v1")
    assert not has_native("MountainCar-v0")
    gym.register(
        "Heavy-v1", "gymnasium.envs.classic_control.pendulum:PendulumEnv", kwargs={"g": 20}
    )
    assert not has_native("Heavy-v1")
    with pytest.raises(ValueError, match="no native dynamics"):
        NativeVectorEnv(gym.make("Pendulum-v1", g=9.81), 2)
    assert inspect("Pendulum-v1", "auto", 8)[1] == "native"
    assert inspect("MountainCar-v0", "auto", 1)[1] == "sync"


def test_native_asked_for_and_missing_names_what_there_is() -> None:
    with pytest.raises(InputError, match=r"got 'native', which 'MountainCar-v0' does not have"):
        inspect("MountainCar-v0", "native", 2)


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_squares_are_those_of_single_numbers(kind: type[np.floating[Any]]) -> None:
    """Processors with wide vectors round a power of an array otherwise than that of a number."""
    numbers = RNG.uniform(-2, 2, 50_000).astype(kind)
    assert _squared(numbers).tolist() == [number**2 for number in numbers]
