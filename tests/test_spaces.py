"""Actions against Gymnasium's own `contains`, and observations by hand."""

from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces

import probes  # noqa: F401 (registers the environments)
from rlbench.errors import InputError
from rlbench.spec.algorithms import ActionBounds
from rlbench.spec.job import VectorMode
from rlbench.training.envs.spaces import ActionSpace, EnvSpec, describe_spaces
from rlbench.training.envs.vector import Environments

INF = np.inf
EXTREME = [0.0, -0.0, 1.0, -1.0, 1 + 2**-23, -1 - 2**-23, 6e4, -6e4, INF, -INF]


class Given(gym.Env[Any, Any]):
    """Nothing but its spaces."""

    def __init__(self, observation: spaces.Space[Any], action: spaces.Space[Any]) -> None:
        self.observation_space, self.action_space = observation, action


def described(
    action: spaces.Space[Any], observation: spaces.Space[Any] | None = None, **options: ActionBounds
) -> EnvSpec:
    return describe_spaces(Given(observation or spaces.Box(-1, 1), action), "Given-v0", **options)


def rescaled(space: spaces.Space[Any]) -> ActionSpace:
    return described(space, action_bounds="rescale").action


def random_box(rng: np.random.Generator) -> spaces.Box:
    """A Box of any shape and float type; its bounds of any size, equal, or infinite."""
    shape = tuple(rng.integers(1, 4, rng.integers(0, 4)))
    dtype = np.dtype(rng.choice(["f2", "f4", "f8"]))
    largest = 4 if dtype.itemsize == 2 else 29
    magnitude = 10.0 ** rng.uniform(-largest, largest, (2, *shape))
    low, high = np.sort(rng.choice([-1, 1], (2, *shape)) * magnitude, axis=0)
    high = np.where(rng.random(shape) < 0.1, low, high)
    low = np.where(rng.random(shape) < 0.1, -INF, low)
    high = np.where(rng.random(shape) < 0.1, INF, high)
    return spaces.Box(np.asarray(low, dtype), np.asarray(high, dtype), shape, dtype)


@pytest.mark.parametrize("action_bounds", ["clip", "rescale"])
def test_no_action_leaves_its_box(action_bounds: ActionBounds) -> None:
    """500 random boxes, each with ordinary, huge and infinite actions in float32 and float64."""
    rng = np.random.default_rng(0)
    for _ in range(500):
        box = random_box(rng)
        action = described(box, action_bounds=action_bounds).action
        size = int(np.prod(box.shape))
        extreme = np.repeat(np.array(EXTREME), size).reshape(-1, size)
        drawn = np.concatenate([rng.normal(size=(20, size)), extreme])
        for actions in (drawn.astype(np.float32), drawn):
            sent = action.to_env(actions)
            assert sent.dtype == box.dtype
            outside = [a for a in map(np.asarray, sent) if not box.contains(a)]
            assert not outside, (box, outside)


def test_rescaled_actions_by_hand() -> None:
    """[100, 300] from [-1, 1]; a dimension with one bound or none, and one with a single point."""
    box = spaces.Box(np.array([100, -INF, 2, -INF, 7], "f4"), np.array([300, 0, INF, INF, 7], "f4"))
    action = rescaled(box)
    policy = np.array([[0.5] * 5, [-1.0] * 5, [9.0] * 5], np.float32)
    assert action.to_env(policy).tolist() == [
        [250, 0, 2, 0.5, 7], [100, -1, 2, -1, 7], [300, 0, 9, 9, 7],
    ]  # fmt: skip
    assert described(box).action.to_env(policy)[0].tolist() == [100, 0, 2, 0.5, 7]


def test_rescaling_is_that_of_gymnasium() -> None:
    box = spaces.Box(np.array([[-3, 0.1]], "f4"), np.array([[5, 0.3]], "f4"))
    wrapper = gym.wrappers.RescaleAction(Given(box, box), np.float32(-1), np.float32(1))
    policy = np.random.default_rng(0).uniform(-1, 1, (100, 2)).astype(np.float32)
    expected = [wrapper.func(action.reshape(1, 2)) for action in policy]
    np.testing.assert_allclose(rescaled(box).to_env(policy), expected, atol=2e-6)


@pytest.mark.parametrize(
    "space",
    [
        spaces.Discrete(4, start=-2),
        spaces.MultiDiscrete([3, 2, 5]),
        spaces.MultiDiscrete(
            np.array([[2, 4], [3, 1]]), np.int32, start=np.array([[0, -1], [5, 7]])
        ),
        spaces.MultiBinary(3),
        spaces.MultiBinary((2, 1, 2)),
        spaces.Box(-1, 1, (2, 3)),
    ],
)
def test_zeros_and_largest_actions_belong_to_the_space(space: spaces.Space[Any]) -> None:
    action = described(space).action
    for sent in action.to_env(action.zeros(3)):
        assert space.contains(sent)
    if isinstance(space, spaces.MultiDiscrete):
        largest = np.array([space.nvec.flatten() - 1])
        expected = space.start + space.nvec - 1
        np.testing.assert_array_equal(action.to_env(largest)[0], expected)
        assert space.contains(action.to_env(largest)[0])


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_observed_states_are_one_hot_final_ones_too(mode: VectorMode) -> None:
    """Cells 3, 4, 5, 6; the episode ends in 7 and the next one begins in 3."""
    with Environments("probes:Corridor-v0", mode, [1, 2]) as envs:
        first = envs.reset()
        steps = [envs.step(np.zeros((2, 1), np.float32)) for _ in range(5)]
    assert envs.spec.observation_size == 5
    assert first.dtype == steps[3].final_observations.dtype == np.float32
    assert first.tolist() == [[1, 0, 0, 0, 0]] * 2
    assert [s.observations[0].argmax() for s in steps] == [1, 2, 3, 0, 1]
    assert [s.observations.sum(1).tolist() for s in steps] == [[1, 1]] * 5
    assert steps[2].final_observations.shape == (0, 5)
    assert steps[3].final_observations.tolist() == [[0, 0, 0, 0, 1]] * 2


@pytest.mark.parametrize("mode", ["sync", "async"])
@pytest.mark.parametrize(
    ("environment", "actions", "rewards"),
    [
        ("probes:Lock-v0", [[1, 3, 1, 0], [0, 3, 1, 0]], [1, 0.75]),
        ("probes:Switches-v0", [[1.0, 0, 0, 1, 1, 0], [0.0, 1, 1, 0, 0, 1]], [1, 0]),
        ("probes:Valve-v0", [[0.5], [9.0]], [0, -0.25]),
    ],
)
def test_actions_arrive_in_their_shape_and_units(
    mode: VectorMode, environment: str, actions: Any, rewards: Any
) -> None:
    """Rewards by hand; the probes refuse what is not in their space."""
    with Environments(environment, mode, [1, 2], action_bounds="rescale") as envs:
        envs.reset()
        assert envs.step(np.array(actions)).rewards.tolist() == rewards


@pytest.mark.parametrize(
    ("space", "message"),
    [
        (spaces.Box(0, 9, (2,), np.int64), r"action space Box.*int64.*supported: Box of floats, D"),
        (spaces.Tuple([spaces.Discrete(2)]), r"'Given-v0'.*Tuple.*Discrete, MultiDiscrete, Multi"),
    ],
)
def test_an_action_space_that_no_policy_has_is_named(
    space: spaces.Space[Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        described(space)


def test_an_observation_space_that_no_policy_reads_is_named() -> None:
    with pytest.raises(InputError, match=r"space MultiDiscrete.*supported: Box .*, Discrete\."):
        described(spaces.Discrete(2), spaces.MultiDiscrete([2, 2]))
