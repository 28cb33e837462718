"""Making one environment, here or in a worker process. Imports no torch: workers start fast.

In:      a Gymnasium id.
Out:     an environment whose errors say which one of the batch they come from.
"""

import multiprocessing
import signal
import traceback
from copy import copy
from dataclasses import dataclass
from typing import Any

import gymnasium as gym

from rlbench.errors import InputError, RunFailed


class Labelled(gym.Wrapper[Any, Any, Any, Any]):
    """An environment that puts its index and step number into every error it raises."""

    def __init__(self, env: gym.Env[Any, Any], index: int) -> None:
        super().__init__(env)
        self._index = index
        self._steps = 0

    def reset(self, **options: Any) -> tuple[Any, dict[str, Any]]:
        """Reset the environment.

        Raises:
            RunFailed: the environment raised.
        """
        try:
            return self.env.reset(**options)
        except Exception as error:
            raise self._failed("reset after", error) from error

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Step the environment; a final observation is a copy, safe from the reset that follows.

        Raises:
            RunFailed: the environment raised.
        """
        self._steps += 1
        try:
            observation, reward, terminated, truncated, info = self.env.step(action)
        except Exception as error:
            raise self._failed("step", error) from error
        if terminated or truncated:
            observation = copy(observation)
        return observation, reward, terminated, truncated, info

    def _failed(self, where: str, error: Exception) -> RunFailed:
        trace = "".join(traceback.format_exception(error))
        return RunFailed(
            f"environment {self._index} raised {type(error).__name__} at {where} "
            f"{self._steps}: {error}\n{trace}"
        )


@dataclass(frozen=True, slots=True)
class Maker:
    """A picklable call that makes one environment of a batch."""

    environment: str
    index: int

    def __call__(self) -> gym.Env[Any, Any]:
        """The environment; a worker leaves Ctrl-C to its parent."""
        if multiprocessing.parent_process() is not None:
            signal.signal(signal.SIGINT, signal.SIG_IGN)
        return Labelled(make_one(self.environment), self.index)


def make_one(environment: str, **options: Any) -> gym.Env[Any, Any]:
    """One environment by its id, `Name-v0` or `module:Name-v0`, and options such as `render_mode`.

    Raises:
        InputError: no such id or module, or a dependency of it is missing.
    """
    try:
        return gym.make(environment, disable_env_checker=True, **options)
    except ModuleNotFoundError as error:
        raise InputError(f"environment '{environment}': {error}") from error
    except gym.error.DependencyNotInstalled as error:
        raise InputError(f"environment '{environment}': {error}") from error
    except gym.error.Error as error:
        raise InputError(
            f"environment '{environment}': {error}; must be an id that gymnasium.make knows, or "
            "module:Name-v0 to import it from a module"
        ) from error
