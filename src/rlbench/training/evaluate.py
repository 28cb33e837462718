"""Evaluation: deterministic episodes on separate environments, off the training clock.

In:      an actor, and the scale on which it sees.
Out:     return and length of each episode; no training randomness is used.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
import torch

from rlbench.errors import RunFailed
from rlbench.spec.job import Job, VectorMode
from rlbench.training.envs.batched import has_native
from rlbench.training.envs.spaces import EnvSpec
from rlbench.training.envs.vector import Environments
from rlbench.training.normalise import Moments, normalised
from rlbench.training.policy import Actor


@dataclass(frozen=True, slots=True)
class Outcome:
    """One finished episode."""

    episode_return: float  # undiscounted sum of raw rewards
    length: int


class Evaluator:
    """Plays one episode per seed, from the same start states each time; use it as a context."""

    def __init__(self, job: Job, seeds: Sequence[int], device: torch.device) -> None:
        mode: VectorMode = "native" if has_native(job.environment) else "sync"
        self._envs = Environments(
            job.environment, mode, seeds, action_bounds=job.algorithm.action_bounds
        )
        self._most_steps = job.eval_max_steps
        self._device = device

    @property
    def spec(self) -> EnvSpec:
        """Sizes and bounds of the environment."""
        return self._envs.spec

    @torch.no_grad()
    def evaluate(self, actor: Actor, seen: Moments | None) -> list[Outcome]:
        """Each environment's first episode under the most probable actions.

        Observations are normalised by what the policy has seen, and not counted towards it.

        Raises:
            RunFailed: an environment failed, gave a non-finite number, or does not end.
        """
        count = self._envs.count
        returns, lengths = np.zeros(count), np.zeros(count, np.int64)
        running = np.ones(count, np.bool_)
        observations = self._envs.reset()
        while running.any():
            if lengths.max() >= self._most_steps:
                raise RunFailed(
                    f"an evaluation episode did not end within {self._most_steps:,} steps; give "
                    "the environment a time limit (max_episode_steps), or raise eval_max_steps"
                )
            inputs = torch.tensor(normalised(observations, seen), device=self._device)
            step = self._envs.step(actor(inputs).mode().cpu().numpy())
            returns += step.rewards * running
            lengths += running
            running &= ~step.ended
            observations = step.observations
        return [Outcome(float(r), int(n)) for r, n in zip(returns, lengths, strict=True)]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._envs.close()
