"""N native environments as one Gymnasium vector environment.

In:      the equations of an environment, and one seed per environment.
Out:     the interface and semantics of Gymnasium's own vector environments, without their loops.
"""

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium.envs.registration import EnvSpec
from gymnasium.utils.seeding import np_random
from gymnasium.vector import AutoresetMode, VectorEnv
from gymnasium.vector.utils import batch_space

from rlbench.training.envs.native import NATIVE, Dynamics


def has_native(environment: str) -> bool:
    """Whether an id is exactly an environment whose equations are here."""
    spec = gym.registry.get(environment)
    return spec is not None and _dynamics(spec) is not None


def _dynamics(spec: EnvSpec | None) -> Dynamics | None:
    if spec is None or spec.kwargs or spec.id not in NATIVE:
        return None
    entry_point, dynamics = NATIVE[spec.id]
    return dynamics if spec.entry_point == entry_point else None


class BatchedVectorEnv(VectorEnv[Any, Any, Any]):
    """N environments with the spaces and the time limit of one; SAME_STEP autoreset."""

    metadata: dict[str, Any] = {"autoreset_mode": AutoresetMode.SAME_STEP}

    def __init__(self, env: gym.Env[Any, Any], num_envs: int) -> None:
        self.num_envs = num_envs
        self.single_observation_space = env.observation_space
        self.single_action_space = env.action_space
        self.observation_space = batch_space(env.observation_space, num_envs)
        self.action_space = batch_space(env.action_space, num_envs)
        limit = env.spec.max_episode_steps if env.spec else None
        self.limit = limit if limit is not None else np.iinfo(np.int64).max
        """Steps after which an episode is out of time."""


class NativeVectorEnv(BatchedVectorEnv):
    """N environments in one array, a generator of its own for each."""

    def __init__(self, env: gym.Env[Any, Any], num_envs: int) -> None:
        super().__init__(env, num_envs)
        dynamics = _dynamics(env.spec)
        if dynamics is None:
            raise ValueError(f"no native dynamics for {env}; there are: {', '.join(NATIVE)}")
        self.dynamics = dynamics
        """The equations."""

    def reset(
        self,
        *,
        seed: int | list[int | None] | None = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 (Gymnasium's interface)
    ) -> tuple[Any, dict[str, Any]]:
        """Start every episode anew; a list gives each environment its own seed."""
        seeds = seed if isinstance(seed, list) else [seed] * self.num_envs
        self._generators = [np_random(s)[0] for s in seeds]
        self._lengths = np.zeros(self.num_envs, np.int64)
        self.state = np.concatenate([self.starts(i, 1) for i in range(self.num_envs)], 1)
        """Of every environment, [S, N]."""
        return self._observe(), {}

    def starts(self, env: int, count: int) -> np.ndarray:
        """The next first states of one environment, [S, count]."""
        return self.dynamics.starts(self._generators[env], count)

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of each; where an episode ends, the observation is the next one's first."""
        self.state, rewards, terminated = self.dynamics.step(self.state, actions)
        self._lengths += 1
        truncated = self._lengths >= self.limit
        observations = self._observe()
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = {"final_obs": observations, "_final_obs": ended}
            for i in np.flatnonzero(ended).tolist():
                self.state[:, i] = self.starts(i, 1)[:, 0]
            self._lengths[ended] = 0
            observations = self._observe()
        return observations, rewards, terminated, truncated, infos

    def _observe(self) -> Any:
        """Observations [N, O], a row after the other in memory as Gymnasium has them.

        A matrix product may round the last bit of a transposed matrix otherwise (MKL on Intel).
        """
        return np.ascontiguousarray(self.dynamics.observe(self.state))
