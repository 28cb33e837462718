"""What an environment takes and gives, reduced to what policies need.

In:      Gymnasium spaces.
Out:     a frozen EnvSpec, or one InputError that names the space and the supported ones.
"""

from dataclasses import dataclass
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlbench.errors import InputError


@dataclass(frozen=True, slots=True)
class Continuous:
    """A Box of actions, flattened."""

    shape: tuple[int, ...]
    low: np.ndarray  # [A], float64, may be -inf
    high: np.ndarray  # [A], float64, may be inf
    dtype: np.dtype[Any]

    @property
    def size(self) -> int:
        """A: numbers per action."""
        return len(self.low)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Policy actions [N, A], clipped to the bounds, as the environments take them."""
        clipped: np.ndarray = np.clip(actions, self.low, self.high).astype(self.dtype, copy=False)
        return clipped.reshape(len(actions), *self.shape)


@dataclass(frozen=True, slots=True)
class Categories:
    """A Discrete action space."""

    count: int
    start: int

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Category indices [N] as the environments take them."""
        return actions + self.start


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """Sizes and bounds of one environment."""

    observation_size: int  # O
    action: Continuous | Categories


def describe_spaces(env: gym.Env[Any, Any], environment: str) -> EnvSpec:
    """Sizes and bounds of an environment.

    Raises:
        InputError: a space that no policy here can read or write.
    """
    return EnvSpec(
        observation_size=_observation_size(env.observation_space, environment),
        action=_action(env.action_space, environment),
    )


def _observation_size(space: spaces.Space[Any], environment: str) -> int:
    if isinstance(space, spaces.Box):
        return int(np.prod(space.shape))
    raise InputError(
        f"environment '{environment}': got observation space {space}; supported: Box of any shape "
        "and dtype. Wrap the environment (for example with gymnasium.wrappers.FlattenObservation)"
    )


def _action(space: spaces.Space[Any], environment: str) -> Continuous | Categories:
    if isinstance(space, spaces.Discrete):
        return Categories(int(space.n), int(space.start))
    if isinstance(space, spaces.Box) and np.issubdtype(space.dtype, np.floating):
        low = space.low.astype(np.float64).reshape(-1)
        high = space.high.astype(np.float64).reshape(-1)
        return Continuous(space.shape, low, high, space.dtype)
    raise InputError(
        f"environment '{environment}': got action space {space}; supported: Box of floats and "
        "Discrete. Wrap the environment so that its actions are one of these"
    )
