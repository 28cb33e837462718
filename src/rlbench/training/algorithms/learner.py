"""What an algorithm is to the training loop, and what all algorithms start from.

In:      a Rollout.
Out:     new weights, and the metrics of the step that was taken.
"""

from dataclasses import dataclass
from typing import Any, Protocol

import torch
from torch import Tensor

from rlbench.errors import RunFailed
from rlbench.records import EpisodeRow, Metrics
from rlbench.spec.algorithms import OnPolicy, Schedule
from rlbench.training.advantages import advantages, standardised
from rlbench.training.envs.spaces import EnvSpec
from rlbench.training.normalise import Scales
from rlbench.training.rollout import Rollout, Tally
from rlbench.training.stopwatch import Stopwatch


class Learner(Protocol):
    """An algorithm with its networks."""

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """Improve the networks on one rollout.

        Args:
            rollout: experience under the current policy.
            remaining: share of the budget still ahead before this rollout, 1 at the start.

        Raises:
            RunFailed: a loss or a gradient of the critic is not finite.
        """
        ...


class Gatherer(Protocol):
    """What gathers experience: our Collector, or an agent of another library."""

    tally: Tally
    """Transitions and episodes so far."""
    scales: Scales
    """On which the policy sees and learns."""

    def collect(
        self, steps: int, max_episodes: int | None, stopwatch: Stopwatch
    ) -> tuple[Any, list[EpisodeRow]]:
        """Step each environment so often; what the learner is to be given, and ended episodes.

        Raises:
            RunFailed: an environment failed or gave a non-finite number.
        """
        ...


class Agent(Gatherer, Learner, Protocol):
    """An algorithm that gathers its own experience, in the way of its library.

    Its class is called with the job, the environments, our networks and a seed. After each update
    these networks have the weights of its own: evaluation, files and films are of them.
    """

    compile_s: float
    """Seconds that it spent on compiling before its first step."""


@dataclass(frozen=True, slots=True)
class Batch:
    """A rollout as B = T N transitions in any order, with what is learned from."""

    observations: Tensor  # [B, O]
    actions: Tensor  # [B] or [B, A], floats or category indices
    log_probs: Tensor  # [B], nats
    values: Tensor  # [B]
    advantages: Tensor  # [B], standardised if the settings say `batch`
    targets: Tensor  # [B], lambda-returns: A_t + V(s_t)

    @property
    def size(self) -> int:
        """B."""
        return len(self.log_probs)

    @property
    def columns(self) -> tuple[Tensor, ...]:
        """What a gradient step reads: observations, then what its loss takes."""
        return (
            self.observations, self.actions, self.log_probs,
            self.advantages, self.targets, self.values,
        )  # fmt: skip


def make_batch(rollout: Rollout, settings: OnPolicy) -> Batch:
    """Flatten a rollout and estimate advantages and value targets."""
    require_finite(
        rollout.log_probs.sum() + rollout.values.sum(), "the policy's or the critic's output"
    )
    estimates = advantages(rollout, settings.gamma, settings.gae_lambda)
    targets = estimates + rollout.values
    if settings.advantage_norm == "batch":
        estimates = standardised(estimates)
    return Batch(
        observations=rollout.observations.flatten(0, 1),
        actions=rollout.actions.flatten(0, 1),
        log_probs=rollout.log_probs.flatten(),
        values=rollout.values.flatten(),
        advantages=estimates.flatten(),
        targets=targets.flatten(),
    )


def example_batch(spec: EnvSpec, size: int, device: torch.device) -> Batch:
    """A batch of zeros with the types and sizes of a real one; no two share memory."""
    actions = torch.tensor(spec.action.zeros(size), device=device)
    observations = torch.zeros(size, spec.observation_size, device=device)
    return Batch(observations, actions, *(torch.zeros(size, device=device) for _ in range(4)))


def scheduled(value: float, schedule: Schedule, remaining: float) -> float:
    """A value with so much of the budget still ahead, 1 at the start."""
    return value * remaining if schedule == "linear" else value


def require_finite(value: Tensor, what: str) -> None:
    """Stop a run whose numbers have gone wrong.

    Raises:
        RunFailed: the value is NaN or infinite.
    """
    if not torch.isfinite(value).all():
        raise RunFailed(
            f"{what} is not finite ({value.tolist()}); the run cannot be trusted from here. "
            "Lower the learning rate, or scale the rewards down"
        )
