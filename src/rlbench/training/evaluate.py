"""Evaluation: deterministic episodes on separate environments, off the training clock.

In:      an actor.
Out:     return and length of each episode; no training randomness is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from rlbench.training.envs.vector import Environments
from rlbench.training.policy import Actor


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished episode."""

    episode_return: float  # undiscounted sum of raw rewards
    length: int


class Evaluator:
    """Plays one episode per seed, from the same start states each time."""

    def __init__(self, environment: str, seeds: Sequence[int], device: torch.device) -> None:
        self._envs = Environments(environment, "sync", seeds)
        self._device = device

    @torch.no_grad()
    def evaluate(self, actor: Actor) -> list[Outcome]:
        """Each environment's first episode under the most probable actions.

        Raises:
            RunFailed: an environment failed or gave a non-finite number.
        """
        count = self._envs.count
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        running = np.ones(count, np.bool_)
        observations = self._envs.reset()
        while running.any():
            actions = actor(torch.from_numpy(observations).to(self._device)).mode()
            step = self._envs.step(actions.cpu().numpy())
            returns += step.rewards * running
            lengths += running
            running &= ~step.ended
            observations = step.observations
        return [Outcome(float(r), int(n)) for r, n in zip(returns, lengths, strict=True)]

    def close(self) -> None:
        """End the environments."""
        self._envs.close()
