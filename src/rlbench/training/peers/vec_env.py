"""Our environments as Stable-Baselines3 takes them.

In:      Environments.
Out:     a VecEnv with the same episodes, bit for bit, that keeps time and counts episodes.
"""

from collections.abc import Sequence
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from stable_baselines3.common.vec_env import VecEnv

from rlbench.records import EpisodeRow
from rlbench.training.envs.spaces import ActionSpace, Bits, Categories, Continuous, MultiCategories
from rlbench.training.envs.vector import Environments, Transition
from rlbench.training.rollout import Tally
from rlbench.training.stopwatch import Stopwatch


class CountedVecEnv(VecEnv):
    """N environments for an algorithm of Stable-Baselines3."""

    def __init__(self, envs: Environments, reward_scale: float) -> None:
        size = envs.spec.observation_size
        observations = gym.spaces.Box(-np.inf, np.inf, (size,), np.float32)
        super().__init__(envs.count, observations, _space(envs.spec.action))
        self._envs = envs
        self._reward_scale = reward_scale
        self._actions = np.empty(0)
        self._watch = Stopwatch(torch.device("cpu"))
        self._rows: list[EpisodeRow] = []
        self.tally = Tally(envs.count)

    def reset(self) -> Any:
        """First observations [N, O], each environment from its seed."""
        return self._envs.reset()

    def step_async(self, actions: np.ndarray) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """Observations [N, O], scaled rewards [N], ends [N], and one dict per environment."""
        with self._watch.lap("env"):
            step = self._envs.step(self._actions)
        self._rows += self.tally.count(step)
        rewards = (step.rewards * self._reward_scale).astype(np.float32)
        return step.observations, rewards, step.ended, _infos(step)

    def take(self) -> tuple[float, list[EpisodeRow]]:
        """Seconds in the environments, and the episodes that ended, since the last take."""
        rows, self._rows = self._rows, []
        return self._watch.take().get("env", 0.0), rows

    def close(self) -> None:
        """Nothing: whoever opened the environments closes them."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:  # noqa: ARG002
        """No attributes: None for each environment asked about."""
        return [None for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: nobody should change the environments of a benchmark."""
        raise NotImplementedError(attr_name)

    def env_method(
        self, method_name: str, *method_args: Any, indices: Any = None, **method_kwargs: Any
    ) -> list[Any]:
        """Refused: nobody should change the environments of a benchmark."""
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:  # noqa: ARG002
        """No wrappers."""
        return [False for _ in self._get_indices(indices)]


def _infos(step: Transition) -> Sequence[dict[str, Any]]:
    infos: list[dict[str, Any]] = [{} for _ in step.ended]
    for final, i in zip(step.final_observations, np.flatnonzero(step.ended), strict=True):
        infos[i] = {
            "terminal_observation": final,
            "TimeLimit.truncated": not step.terminated[i],
        }
    return infos


def _space(action: ActionSpace) -> gym.spaces.Space[Any]:
    """What their policy is to choose from; our environments map it to their own actions."""
    match action:
        case Continuous():
            low, high = (bound.astype(np.float32) for bound in action.policy_bounds)
            return gym.spaces.Box(low, high, dtype=np.float32)
        case Categories():
            return gym.spaces.Discrete(action.count)
        case MultiCategories():
            return gym.spaces.MultiDiscrete(list(action.counts))
        case Bits():
            return gym.spaces.MultiBinary(action.size)
