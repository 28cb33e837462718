"""Fitting a critic to value targets, apart from the policy.

In:      a Batch.
Out:     the critic after some epochs; its mean loss and gradient norm.
"""

import torch
from torch import Tensor, nn

from rlbench.training.algorithms.learner import (
    Batch,
    minibatches,
    require_finite,
    weighted_mean,
)
from rlbench.training.policy import Critic


class CriticFit:
    """Minibatch regression of V(s) on the targets with Adam."""

    def __init__(self, critic: Critic, shuffling: torch.Generator) -> None:
        self._critic = critic
        self._weights = list(critic.parameters())
        self._optimiser = torch.optim.Adam(self._weights, fused=True)
        self._shuffling = shuffling

    def fit(
        self, batch: Batch, epochs: int, minibatch_size: int, learning_rate: float
    ) -> tuple[float, float]:
        """Mean squared error and gradient norm, each a mean over all samples.

        Args:
            batch: states and targets.
            epochs: passes over the batch.
            minibatch_size: samples per gradient step; 0 is the whole batch.
            learning_rate: Adam's step size.

        Raises:
            RunFailed: loss or gradient is not finite.
        """
        for group in self._optimiser.param_groups:
            group["lr"] = learning_rate
        size = minibatch_size or batch.size
        chosen = minibatches(batch.size, size, epochs, self._shuffling)
        means = weighted_mean([self._step(batch, part) for part in chosen], chosen)
        require_finite(means, "the critic's loss or gradient")
        loss, norm = means.tolist()
        return loss, norm

    def _step(self, batch: Batch, chosen: Tensor) -> Tensor:
        loss = nn.functional.mse_loss(
            self._critic(batch.observations[chosen]), batch.targets[chosen]
        )
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        norm = torch.nn.utils.get_total_norm([w.grad for w in self._weights if w.grad is not None])
        self._optimiser.step()
        return torch.stack([loss.detach(), norm])
