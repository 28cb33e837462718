"""N environments behind one call, with every awkward case settled here.

In:      a Gymnasium id, a vector mode, one seed per environment.
Out:     float32 observations [N, O], finite rewards [N], ends, and true final observations.

Autoreset is SAME_STEP: an environment that ends is reset within the same step, so that every
transition is real; its true final observation comes beside the first one of the next episode.
"""

import multiprocessing
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from multiprocessing import connection
from typing import Any, Self, cast

import gymnasium as gym
import numpy as np
from gymnasium.vector import AsyncVectorEnv, AutoresetMode, SyncVectorEnv

from rlbench.errors import InputError, RunFailed
from rlbench.machine import usable_cores
from rlbench.spec.algorithms import ActionBounds
from rlbench.spec.job import VectorMode
from rlbench.training.envs.batched import NativeVectorEnv, has_native
from rlbench.training.envs.making import Maker, make_one
from rlbench.training.envs.native import NATIVE
from rlbench.training.envs.pooled import PooledVectorEnv, require_pooled
from rlbench.training.envs.spaces import EnvSpec, describe_spaces
from rlbench.training.stopwatch import mean_seconds

ASYNC_OVERHEAD_S = 200e-6
"""Seconds per environment step that a worker process costs (measured: 5,000 steps/s with 8)."""
PROBE_S, PROBE_STEPS = 0.2, 100
"""How long, and how many steps, one environment is measured at most."""
WORKER_END_S = 5.0
"""How long a worker may take to end before it is killed."""


@dataclass(frozen=True, slots=True)
class Transition:
    """What one step of N environments gave."""

    observations: np.ndarray  # [N, O], float32; after a reset where an episode ended
    rewards: np.ndarray  # [N], float64, finite
    terminated: np.ndarray  # [N], bool; wins over truncated
    ended: np.ndarray  # [N], bool; terminated or out of time
    final_observations: np.ndarray  # [number ended, O], float32, in the order of the environments


class Environments:
    """N environments in step; use it as a context, so that no process is left behind."""

    def __init__(
        self,
        environment: str,
        mode: VectorMode,
        seeds: Sequence[int],
        timeout_s: float = 120.0,
        action_bounds: ActionBounds = "clip",
    ) -> None:
        self.spec, self.mode = inspect(environment, mode, len(seeds), action_bounds)
        self._seeds: list[int | None] = list(seeds)
        self._timeout_s = timeout_s
        self._steps = 0
        self._envs = _vectorise(environment, self.mode, len(seeds))

    @property
    def count(self) -> int:
        """N."""
        return len(self._seeds)

    @property
    def native(self) -> NativeVectorEnv:
        """The equations and states behind modes `native` and `fused`.

        Raises:
            TypeError: another mode.
        """
        if not isinstance(self._envs, NativeVectorEnv):
            raise TypeError(f"mode {self.mode} has no native dynamics")
        return self._envs

    def reset(self) -> np.ndarray:
        """Start every environment from its seed; first observations [N, O], float32.

        Raises:
            RunFailed: an environment raised, hung, died, or gave a non-finite observation.
        """
        self._steps = 0
        if isinstance(self._envs, AsyncVectorEnv):
            self._envs.reset_async(seed=self._seeds)
            observations, _ = self._answer(self._envs.reset_wait)
        else:
            observations, _ = self._envs.reset(seed=self._seeds)
        return self._checked(self.spec.features(observations), "observation")

    def step(self, actions: np.ndarray) -> Transition:
        """Act in every environment: actions [N, ...] as the policy chose them.

        Raises:
            RunFailed: an environment raised, hung, died, or gave a non-finite number.
        """
        self._steps += 1
        allowed = self.spec.action.to_env(actions)
        if isinstance(self._envs, AsyncVectorEnv):
            self._envs.step_async(allowed)
            answer = self._answer(self._envs.step_wait)
        else:
            answer = self._envs.step(allowed)
        observations, rewards, terminated, truncated, infos = answer
        ended = terminated | truncated
        return Transition(
            observations=self._checked(self.spec.features(observations), "observation"),
            rewards=self._checked(np.array(rewards, np.float64), "reward"),
            terminated=terminated.copy(),
            ended=ended,
            final_observations=self._final(infos, ended),
        )

    def close(self) -> None:
        """End every environment; worker processes are terminated."""
        if isinstance(self._envs, AsyncVectorEnv):
            _end_workers(self._envs)
        else:
            self._envs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _final(self, infos: dict[str, Any], ended: np.ndarray) -> np.ndarray:
        if not ended.any():
            return np.empty((0, self.spec.observation_size), np.float32)
        stacked = np.stack([np.asarray(obs) for obs in infos["final_obs"][ended]])
        ends = np.flatnonzero(ended)
        return self._checked(self.spec.features(stacked), "final observation", ends)

    def _checked(self, values: np.ndarray, what: str, envs: np.ndarray | None = None) -> np.ndarray:
        """The values, one row for each of some environments, or of all."""
        finite = np.isfinite(values)
        if finite.all():
            return values
        row = int(np.argwhere(~finite)[0][0])
        env = row if envs is None else envs[row]
        raise RunFailed(
            f"environment {env} gave a non-finite {what} ({values[row].tolist()}) at step "
            f"{self._steps} of each environment; the run cannot be trusted from here"
        )

    def _answer(self, wait: Any) -> Any:
        """What the workers answer, or a message about the one that did not."""
        envs = cast("AsyncVectorEnv", self._envs)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # an error comes as a warning too, then is raised
                return wait(timeout=self._timeout_s)
        except multiprocessing.TimeoutError:
            silent = [i for i, pipe in enumerate(envs.parent_pipes) if not pipe.poll()]
            which = silent[0] if silent else "?"
            raise RunFailed(
                f"environment {which} did not answer within {self._timeout_s:g} s at step "
                f"{self._steps}; raise env_timeout_s if it is only slow"
            ) from None
        except (EOFError, ConnectionError) as error:
            # Its pipe is closed a moment before the process has ended.
            connection.wait([process.sentinel for process in envs.processes], WORKER_END_S)
            dead = [i for i, process in enumerate(envs.processes) if not process.is_alive()]
            code = envs.processes[dead[0]].exitcode if dead else None
            raise RunFailed(
                f"the process of environment {dead[0] if dead else '?'} died at step "
                f"{self._steps} (exit code {code}); run with vector mode 'sync' to see why"
            ) from error


def _end_workers(envs: AsyncVectorEnv) -> None:
    """End the worker processes, whatever they are doing.

    Gymnasium's own close first waits for an answer that a dead or hanging worker never gives.
    """
    for process in envs.processes:
        process.terminate()
    for process in envs.processes:
        process.join(WORKER_END_S)
        if process.is_alive():
            process.kill()
            process.join()
    for pipe in envs.parent_pipes:
        if pipe is not None:
            pipe.close()
    envs.closed = True


def inspect(
    environment: str, mode: VectorMode, num_envs: int, action_bounds: ActionBounds = "clip"
) -> tuple[EnvSpec, VectorMode]:
    """What policies need to know of an environment, and the vector mode to use.

    `auto` is native where there are native dynamics, else the faster of sync and async by a short
    measurement of one environment. All of them give the same episodes; envpool does not, and is
    never chosen by itself.

    Raises:
        InputError: an unknown id, an unsupported space, or native, fused or envpool asked for and
            not to be had.
        RunFailed: the environment raised while it was measured.
    """
    env = Maker(environment, 0)()
    try:
        spec = describe_spaces(env, environment, action_bounds)
        native = has_native(environment)
        if mode in {"native", "fused"} and not native:
            raise InputError(
                f"vector_mode: got '{mode}', which '{environment}' does not have; it is there for "
                f"{', '.join(NATIVE)}. Use 'auto', 'sync' or 'async'"
            )
        if mode == "envpool":
            require_pooled(env, environment)
        if mode != "auto":
            return spec, mode
        return spec, "native" if native else _faster(env, num_envs)
    finally:
        env.close()


def _faster(env: gym.Env[Any, Any], num_envs: int) -> VectorMode:
    """Sync, unless workers save more than they cost.

    With step time c, N environments on w cores take N c in one process, and about
    N (c / min(N, w) + overhead) in workers.
    """
    workers = min(num_envs, usable_cores())
    if workers == 1:
        return "sync"
    step_s = _seconds_per_step(env)
    return "async" if step_s > step_s / workers + ASYNC_OVERHEAD_S else "sync"


def _seconds_per_step(env: gym.Env[Any, Any]) -> float:
    env.reset(seed=0)
    env.action_space.seed(0)

    def step() -> None:
        _, _, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()

    step()  # the first one may compile or load something
    return mean_seconds(step, PROBE_S, PROBE_STEPS)


def _vectorise(
    environment: str, mode: VectorMode, num_envs: int
) -> SyncVectorEnv | AsyncVectorEnv | NativeVectorEnv | PooledVectorEnv:
    if mode in {"native", "fused"}:
        return NativeVectorEnv(make_one(environment), num_envs)
    if mode == "envpool":
        return PooledVectorEnv(make_one(environment), environment, num_envs)
    makers = [Maker(environment, index) for index in range(num_envs)]
    if mode == "sync":
        return SyncVectorEnv(makers, autoreset_mode=AutoresetMode.SAME_STEP)
    try:
        return AsyncVectorEnv(
            makers, context="spawn", daemon=True, autoreset_mode=AutoresetMode.SAME_STEP
        )
    except (EOFError, ConnectionError, multiprocessing.ProcessError) as error:
        raise RunFailed(
            "an environment process ended while it started "
            f"({type(error).__name__}); run with vector mode 'sync' to see why"
        ) from error
