"""N environments of envpool as one Gymnasium vector environment, stepped in threads of C++.

In:      one of Gymnasium's own environments that envpool has too, and one seed per environment.
Out:     the interface and semantics of Gymnasium's own vector environments.
Source:  Weng et al. 2022, arXiv:2206.10558 (envpool 1.2); the same equations as Gymnasium's up to
         rounding, rewards in float32, and start states from random numbers of its own.
"""

import warnings
from types import ModuleType
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from rlbench.errors import InputError
from rlbench.machine import usable_cores
from rlbench.training.envs.batched import BatchedVectorEnv

NEVER = np.iinfo(np.int32).max
"""The pool's own time limit: steps are counted here, for it calls a death in the last one a
truncation."""


def require_pooled(env: gym.Env[Any, Any], environment: str) -> None:
    """Refuse an environment that envpool does not have, or has with other spaces.

    Raises:
        InputError: as said, or envpool is not installed.
    """
    if reason := _difference(env, environment):
        raise InputError(
            f"vector_mode: got 'envpool', {reason}. Use 'auto', 'sync' or 'async', or another id"
        )


def _difference(env: gym.Env[Any, Any], environment: str) -> str | None:
    envpool, entry_point = _envpool(), env.spec.entry_point if env.spec else None
    known = envpool.list_all_envs()
    if environment not in known:
        name = environment.rpartition("-v")[0] or environment
        others = ", ".join(other for other in known if other.rpartition("-v")[0] == name)
        return f"which does not have '{environment}' (of that name: {others or 'none'})"
    if not str(entry_point).startswith("gymnasium.envs."):
        return f"whose '{environment}' is Gymnasium's, but here that id is {entry_point}"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of bounds in float32
        pool = envpool.make_spec(environment)
        theirs = _layout(pool.gymnasium_observation_space, pool.gymnasium_action_space)
    ours = _layout(env.observation_space, env.action_space)
    same = ours == theirs
    return None if same else f"whose '{environment}' has {theirs}, but Gymnasium's has {ours}"


class PooledVectorEnv(BatchedVectorEnv):
    """N environments in one pool, a generator of its own for each."""

    def __init__(self, env: gym.Env[Any, Any], environment: str, num_envs: int) -> None:
        super().__init__(env, num_envs)
        self._environment = environment
        self._pool: Any = None

    def reset(
        self,
        *,
        seed: Any = None,
        options: dict[str, Any] | None = None,  # noqa: ARG002 (Gymnasium's interface)
    ) -> tuple[Any, dict[str, Any]]:
        """Start every episode anew, in a new pool: seeds are a list of one below 2^31 for each."""
        self._lengths = np.zeros(self.num_envs, np.int64)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of bounds in float32
            self._pool = _envpool().make_gymnasium(
                self._environment,
                num_envs=self.num_envs,
                num_threads=min(self.num_envs, usable_cores()),
                seed=list(seed),
                max_episode_steps=NEVER,
            )
            return self._pool.reset()[0], {}

    def step(self, actions: Any) -> tuple[Any, Any, Any, Any, dict[str, Any]]:
        """One step of each; where an episode ends, the observation is the next one's first."""
        observations, rewards, terminated, _, _ = self._pool.step(actions)
        self._lengths += 1
        truncated = self._lengths >= self.limit
        ended = terminated | truncated
        infos: dict[str, Any] = {}
        if ended.any():
            infos = {"final_obs": observations, "_final_obs": ended}
            observations = observations.copy()
            observations[ended], _ = self._pool.reset(np.flatnonzero(ended))
            self._lengths[ended] = 0
        return observations, rewards, terminated, truncated, infos

    def close_extras(self, **_: Any) -> None:
        """End the threads."""
        self._pool = None


def _envpool() -> ModuleType:
    try:
        import envpool
    except ImportError as error:
        raise InputError(
            f"vector_mode: got 'envpool', but {error}; pip install \"rlbench[envpool]\", or use "
            "'auto', 'sync' or 'async'"
        ) from error
    return envpool


def _layout(*pair: spaces.Space[Any]) -> str:
    """Kinds and shapes of an observation and an action space, in words."""
    observation, action = (
        str(s) if isinstance(s, spaces.Discrete) else f"{type(s).__name__}{s.shape}" for s in pair
    )
    return f"observations {observation} and actions {action}"
