"""Fitting a critic to value targets, apart from the policy.

In:      a Batch.
Out:     the critic after some epochs; its mean loss and gradient norm.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from rlbench.spec.algorithms import NaturalGradient
from rlbench.training.algorithms.learner import Batch, require_finite, scheduled
from rlbench.training.algorithms.steps import Descent, Mean, Plan, make_steps, minibatches
from rlbench.training.policy import Critic


class CriticFit:
    """Minibatch regression of V(s) on the targets with Adam."""

    def __init__(
        self,
        settings: NaturalGradient,
        critic: Critic,
        shuffling: torch.Generator,
        example: Batch | None,
    ) -> None:
        self._settings = settings
        self._shuffling = shuffling
        columns = None if example is None else (example.observations, example.targets)
        size = settings.critic_minibatch_size or (0 if example is None else example.size)
        descent = Descent((critic,), squared_error, reported=1)
        self._steps = make_steps(descent, columns, size, settings.critic_epochs)

    def fit(self, batch: Batch, remaining: float) -> tuple[float, float]:
        """Mean squared error and gradient norm, each a mean over all samples.

        Args:
            batch: states and targets.
            remaining: share of the budget still ahead.

        Raises:
            RunFailed: loss or gradient is not finite.
        """
        settings = self._settings
        size = settings.critic_minibatch_size or batch.size
        rate = scheduled(
            settings.critic_learning_rate, settings.critic_learning_rate_schedule, remaining
        )
        chosen = minibatches(batch.size, size, settings.critic_epochs, self._shuffling)
        taken = self._steps.take((batch.observations, batch.targets), Plan(chosen, (rate,)))
        require_finite(taken.means, "the critic's loss or gradient")
        loss, norm = taken.means.tolist()
        return loss, norm


def squared_error(
    outputs: Sequence[Tensor],
    sample: Sequence[Tensor],
    coefficient: Tensor,  # noqa: ARG001 (nothing here changes between updates)
    mean: Mean,
) -> tuple[Tensor, Tensor]:
    """E[(V(s) - R)^2], and the same number again; see `Loss`."""
    (values,), (targets,) = outputs, sample
    error = mean((values - targets).square())
    return error, error.detach().unsqueeze(0)
