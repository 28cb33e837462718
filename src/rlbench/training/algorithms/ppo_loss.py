"""What one gradient step of PPO minimises, in eager and in compiled mode alike.

In:      the policy and the values of a minibatch, and how to take a mean over it.
Out:     the loss, and numbers about it.
Source:  Schulman et al. 2017, arXiv:1707.06347, eq. 7 and 9.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from rlbench.spec.algorithms import PPO
from rlbench.training.distributions import Distribution

REPORTED = 3
"""How many numbers `losses` reports."""


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """Clipped surrogate of each sample, its mean to be maximised; inputs and result [B].

    L = E[min(r A, clip(r, 1 - eps, 1 + eps) A)]     Schulman et al. 2017, eq. 7
    """
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.minimum(ratio * advantage, clipped * advantage)


def standardised_by(mean: Callable[[Tensor], Tensor], values: Tensor) -> Tensor:
    """Values with mean 0 and deviation 1 over a minibatch; those of a single value are left."""
    centred = values - mean(values)
    variance = mean(centred.square())
    return torch.where(variance > 0, centred / (variance.sqrt() + 1e-8), values)


def losses(
    settings: PPO,
    policy: Distribution,
    values: Tensor,
    sample: Sequence[Tensor],
    mean: Callable[[Tensor], Tensor],
) -> tuple[Tensor, Tensor]:
    """Critic's error minus the policy's objective, []; surrogate, error, clip fraction, [3].

    Actor and critic share no weight, so the sum is two losses in one backward pass.
    """
    actions, log_probs, advantage, targets = sample
    if settings.advantage_norm == "minibatch":
        advantage = standardised_by(mean, advantage)
    ratio = (policy.log_prob(actions) - log_probs).exp()
    surrogate = mean(clipped_surrogate(ratio, advantage, settings.clip_range))
    objective = surrogate
    if settings.entropy_coefficient > 0:
        objective = surrogate + settings.entropy_coefficient * mean(policy.entropy())
    critic_loss = mean((values - targets).square())
    outside = ((ratio - 1).abs() > settings.clip_range).to(ratio.dtype)
    numbers = torch.stack([surrogate, critic_loss, mean(outside)]).detach()
    return critic_loss - objective, numbers
