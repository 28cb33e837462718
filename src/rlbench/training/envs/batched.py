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
        self._limit = limit if limit is not None else np.iinfo(np.int64).max


class NativeVectorEnv(BatchedVectorEnv):
    """N environments in one array, a generator of its own for each."""

    def __init__(self, env: gym.Env[Any, Any], num_envs: int) -> None:
        super().__init__(env, num_envs)
        dynamics = _dynamics(env.spec)
        if dynamics is None:
            raise ValueError(f"no native dynamics for {env}; there are: {', '.join(NATIVE)}")
        self._dynamics = dynamics

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
        starts = [self._dynamics.start(generator) for generator in self._generators]
        self._state = np.stack(starts, 1)  # [S, N]
        return self._observe(), {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of each; where an episode ends, the observation is the next one's first."""
        self._state, rewards, terminated = self._dynamics.step(self._state, actions)
        self._lengths += 1
        truncated = self._lengths >= self._limit
        observations = self._observe()
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = {"final_obs": observations, "_final_obs": ended}
            for i in np.flatnonzero(ended):
                self._state[:, i] = self._dynamics.start(self._generators[i])
            self._lengths[ended] = 0
            observations = self._observe()
        return observations, rewards, terminated, truncated, infos

    def _observe(self) -> Any:
        """Observations [N, O], in memory a row per environment, as Gymnasium's are.

        A matrix product with transposed ones may be rounded otherwise.
        """
        return np.ascontiguousarray(self._dynamics.observe(self._state))
