"""What first-order algorithms minimise over a minibatch.

In:      the policy and the values of a minibatch, and how to take a mean over it.
Out:     the loss, and numbers about it.
Source:  Schulman et al. 2017, arXiv:1707.06347, eq. 9; the KL estimate is Schulman 2020,
         "Approximating KL Divergence", k3.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from rlbench.spec.algorithms import FirstOrder
from rlbench.training.algorithms.steps import Mean
from rlbench.training.distributions import Distribution

Objective = Callable[[Tensor, Tensor, Tensor], Tensor]
"""Of the log of the probability ratio [B], the advantages [B] and a coefficient []: what each
sample adds to the mean that is maximised, [B]."""


@dataclass(frozen=True, slots=True)
class ActorCriticLoss:
    """Critic's error minus the policy's objective; see `Loss`."""

    settings: FirstOrder
    objective: Objective

    def __call__(
        self, outputs: Sequence[Any], sample: Sequence[Tensor], coefficient: Tensor, mean: Mean
    ) -> tuple[Tensor, Tensor]:
        """The loss, []; objective, critic's error, clip fraction and estimated KL, [4].

        Args:
            outputs: policy and values of the minibatch's states under the current weights.
            sample: the columns of a Batch after its observations, [B] each.
            coefficient: what the objective takes beside ratio and advantage, [].
            mean: mean over the samples that count.
        """
        policy: Distribution = outputs[0]
        values: Tensor = outputs[1]
        actions, log_probs, advantage, targets, old_values = sample
        if self.settings.advantage_norm == "minibatch":
            advantage = standardised_by(mean, advantage)
        log_ratio = policy.log_prob(actions) - log_probs
        surrogate = mean(self.objective(log_ratio, advantage, coefficient))
        objective = surrogate
        if self.settings.entropy_coefficient > 0:
            objective = surrogate + self.settings.entropy_coefficient * mean(policy.entropy())
        error = mean(self._squared_error(values, targets, old_values))
        weight = self.settings.critic_coefficient if self.settings.optimiser == "shared" else 1.0
        outside = ((log_ratio.exp() - 1).abs() > coefficient).to(values.dtype)
        numbers = torch.stack([surrogate, error, mean(outside), mean(kl_estimate(log_ratio))])
        return weight * error - objective, numbers.detach()

    def _squared_error(self, values: Tensor, targets: Tensor, old_values: Tensor) -> Tensor:
        """Squared error of each value, [B]; if clipped, the worse of it and the clipped value's.

        max((V - R)^2, (clip(V, V_old - eps, V_old + eps) - R)^2)
        """
        error = (values - targets).square()
        limit = self.settings.value_clip_range
        if limit == 0:
            return error
        near = old_values + (values - old_values).clamp(-limit, limit)
        return torch.maximum(error, (near - targets).square())


def kl_estimate(log_ratio: Tensor) -> Tensor:
    """KL(old || new) as estimated from each sample of the old policy, nats, same shape.

    (r - 1) - log r, never negative, its mean and the gradient of its mean without bias
    """
    return torch.expm1(log_ratio) - log_ratio


def standardised_by(mean: Mean, values: Tensor) -> Tensor:
    """Values with mean 0 and deviation 1 over a minibatch; those of a single value are left."""
    centred = values - mean(values)
    variance = mean(centred.square())
    return torch.where(variance > 0, centred / (variance.sqrt() + 1e-8), values)
