"""What an environment takes and gives, reduced to what policies need.

In:      Gymnasium spaces.
Out:     a frozen EnvSpec, or one InputError that names the space and the supported ones.
"""

from dataclasses import dataclass, field
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlbench.errors import InputError
from rlbench.spec.algorithms import ActionBounds

UNBOUNDED = 1e30
"""A bound beyond this is none: float32's largest number stands for infinity in some spaces."""


@dataclass(frozen=True)
class Continuous:
    """A Box of actions, flattened."""

    shape: tuple[int, ...]
    low: np.ndarray  # [A], float64, may be -inf
    high: np.ndarray  # [A], float64, may be inf
    dtype: np.dtype[Any]
    rescaled: bool = False
    """Whether the policy acts in [-1, 1] where both bounds are finite."""
    bounded: np.ndarray = field(init=False)  # [A], bool: which dimensions have two finite bounds
    limits: tuple[np.ndarray, ...] = field(init=False)
    """What `within` needs besides the actions, [A] each."""

    def __post_init__(self) -> None:
        bounded = np.maximum(np.abs(self.low), np.abs(self.high)) < UNBOUNDED
        limits: tuple[np.ndarray, ...] = self.low, self.high
        if self.rescaled:
            low, high = np.where(bounded, self.low, -1.0), np.where(bounded, self.high, 1.0)
            chosen = np.where(bounded, -1.0, self.low), np.where(bounded, 1.0, self.high)
            limits = *chosen, (low + high) / 2, (high - low) / 2, self.low, self.high
        object.__setattr__(self, "bounded", bounded)
        object.__setattr__(self, "limits", limits)

    @property
    def size(self) -> int:
        """A: numbers per action."""
        return len(self.low)

    @property
    def policy_bounds(self) -> tuple[np.ndarray, np.ndarray]:
        """Lowest and highest numbers that the policy may choose, [A] each; rescaled: -1 and 1."""
        lowest, highest, *_ = self.limits
        return lowest, highest

    def zeros(self, count: int) -> np.ndarray:
        """Actions of a policy that are all 0, [B, A]."""
        return np.zeros((count, self.size), np.float32)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Policy actions [N, A], mapped to the bounds or clipped to them, for the environments."""
        return self.within(actions, *self.limits)

    def within(
        self, actions: np.ndarray, lowest: np.ndarray, highest: np.ndarray, *rescaling: np.ndarray
    ) -> np.ndarray:
        """See `to_env`; with `limits` on the device of the actions.

        Clipping comes last, in float64 and between numbers of the space's own dtype, so rounding
        to that dtype leaves no action outside.
        """
        taken: np.ndarray = np.minimum(np.maximum(actions, lowest), highest)
        if rescaling:
            centre, half_range, low, high = rescaling
            taken = np.minimum(np.maximum(centre + half_range * taken, low), high)
        return taken.astype(self.dtype).reshape(len(actions), *self.shape)


@dataclass(frozen=True, slots=True)
class Categories:
    """A Discrete action space."""

    count: int
    start: int

    def zeros(self, count: int) -> np.ndarray:
        """Actions of a policy that are all 0, [B]."""
        return np.zeros(count, np.int64)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Category indices [N] as the environments take them."""
        return actions + self.start


@dataclass(frozen=True, slots=True)
class MultiCategories:
    """A MultiDiscrete action space, flattened to D choices."""

    shape: tuple[int, ...]
    counts: tuple[int, ...]  # D numbers of categories
    start: np.ndarray  # the first category of each choice, of the space's shape and dtype

    def zeros(self, count: int) -> np.ndarray:
        """Actions of a policy that are all 0, [B, D]."""
        return np.zeros((count, len(self.counts)), np.int64)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Category indices [N, D] as the environments take them."""
        categories: np.ndarray = actions.reshape(-1, *self.shape) + self.start
        return categories.astype(self.start.dtype)


@dataclass(frozen=True, slots=True)
class Bits:
    """A MultiBinary action space, flattened to D bits."""

    shape: tuple[int, ...]

    @property
    def size(self) -> int:
        """D: bits per action."""
        return int(np.prod(self.shape))

    def zeros(self, count: int) -> np.ndarray:
        """Actions of a policy that are all 0, [B, D]."""
        return np.zeros((count, self.size), np.float32)

    def to_env(self, actions: np.ndarray) -> np.ndarray:
        """Bits [N, D], each 0.0 or 1.0, as the environments take them."""
        return actions.reshape(-1, *self.shape).astype(np.int8)


ActionSpace = Continuous | Categories | MultiCategories | Bits


@dataclass(frozen=True, slots=True)
class EnvSpec:
    """What policies need to know of one environment."""

    observation_size: int  # O
    action: ActionSpace
    first_state: int | None = None
    """The smallest of O states of which one is observed; None if observations are numbers."""

    def features(self, observations: np.ndarray) -> np.ndarray:
        """Observations of N environments, flattened, or one-hot for states; [N, O], float32."""
        if self.first_state is None:
            return observations.reshape(len(observations), -1).astype(np.float32)
        states = self.first_state + np.arange(self.observation_size)
        seen: np.ndarray = observations[:, None] == states
        return seen.astype(np.float32)


def describe_spaces(
    env: gym.Env[Any, Any], environment: str, action_bounds: ActionBounds = "clip"
) -> EnvSpec:
    """What policies need to know of an environment.

    Raises:
        InputError: a space that no policy here can read or write.
    """
    action = _action(env.action_space, environment, action_bounds)
    space = env.observation_space
    if isinstance(space, spaces.Box):
        return EnvSpec(int(np.prod(space.shape)), action)
    if isinstance(space, spaces.Discrete):
        return EnvSpec(int(space.n), action, first_state=int(space.start))
    raise InputError(
        f"environment '{environment}': got observation space {space}; supported: Box of any shape "
        "and dtype, Discrete. Wrap the environment (for example with "
        "gymnasium.wrappers.FlattenObservation)"
    )


def _action(space: spaces.Space[Any], environment: str, action_bounds: ActionBounds) -> ActionSpace:
    match space:
        case spaces.Discrete():
            return Categories(int(space.n), int(space.start))
        case spaces.MultiDiscrete():
            counts = tuple(int(count) for count in space.nvec.flat)
            return MultiCategories(space.shape, counts, space.start)
        case spaces.MultiBinary():
            return Bits(space.shape)
        case spaces.Box() if np.issubdtype(space.dtype, np.floating):
            low, high = (bound.astype(np.float64).flatten() for bound in (space.low, space.high))
            return Continuous(space.shape, low, high, space.dtype, action_bounds == "rescale")
    raise InputError(
        f"environment '{environment}': got action space {space}; supported: Box of floats, "
        "Discrete, MultiDiscrete, MultiBinary. Wrap the environment so that its actions are one of "
        "these"
    )
