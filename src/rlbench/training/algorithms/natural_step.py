"""The natural step of an actor, and what other weights than its own would do.

In:      an actor, a batch, and the states of the Fisher matrix.
Out:     the step to the bound of the quadratic model, and the effect of any step.
Source:  Schulman et al. 2015, arXiv:1502.05477, eq. 14 and appendix C.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from rlbench.spec.algorithms import NaturalGradient
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.natural_gradient import (
    conjugate_gradients,
    fisher_product,
    gradient,
    step_length,
)
from rlbench.training.algorithms.steps import Mean
from rlbench.training.distributions import Distribution
from rlbench.training.policy import Actor

Effect = Callable[[Tensor], tuple[Tensor, Tensor]]
"""Of weights [P] instead of the actor's: gain of the surrogate and KL from the old policy, []."""


@dataclass(frozen=True, slots=True)
class Direction:
    """Where the actor is to go."""

    full_step: Tensor | None  # [P]; None if no step can be trusted
    gradient_norm: float
    residual: float  # of conjugate gradients; NaN if there was nothing to solve
    effect: Effect


class Compass(Protocol):
    """How a direction is found."""

    def direction(self, batch: Batch, states: Tensor, max_kl: float) -> Direction:
        """The natural step, which is not taken.

        g    = grad E[r A]
        s    = (F + damping I)^-1 g
        step = sqrt(2 delta / (s . (F + damping I) s)) s     appendix C

        Args:
            batch: over which the surrogate is averaged.
            states: over which the Fisher matrix F is averaged, [B, O].
            max_kl: delta, nats.
        """
        ...


class EagerCompass:
    """By PyTorch's autograd."""

    def __init__(self, settings: NaturalGradient, actor: Actor) -> None:
        self._settings = settings
        self._actor = actor

    def direction(self, batch: Batch, states: Tensor, max_kl: float) -> Direction:
        """See `Compass.direction`."""
        settings, actor = self._settings, self._actor
        sample = (batch.actions, batch.log_probs, batch.advantages)
        policy = actor(batch.observations)
        old, old_surrogate = policy.frozen(), surrogate(policy, sample, torch.mean)

        @torch.no_grad()
        def effect(theta: Tensor) -> tuple[Tensor, Tensor]:
            vector_to_parameters(theta, actor.parameters())
            new = actor(batch.observations)
            gain = surrogate(new, sample, torch.mean) - old_surrogate
            return gain, old.kl_to(new).mean()

        g = gradient(old_surrogate, actor)
        norm = g.norm().item()
        if not 0 < norm < math.inf:
            return Direction(None, norm, math.nan, effect)
        seen = policy if states is batch.observations else actor(states)
        product = fisher_product(seen, actor, settings.damping)
        solution = conjugate_gradients(product, g, settings.cg_iterations, settings.cg_tolerance)
        length = step_length(product, solution.vector, max_kl)
        usable = bool(solution.positive & length.isfinite())
        step = length * solution.vector if usable else None
        return Direction(step, norm, solution.residual.item(), effect)


def make_compass(settings: NaturalGradient, actor: Actor, example: Batch | None) -> Compass:
    """Eager; or, with an example batch, programs compiled for its size."""
    if example is None:
        return EagerCompass(settings, actor)
    from rlbench.training.algorithms.natural_compiled import CompiledCompass

    return CompiledCompass(settings, actor, example)


def surrogate(policy: Distribution, sample: Sequence[Tensor], mean: Mean) -> Tensor:
    """E[r A], to be maximised; []     Schulman et al. 2015, eq. 14.

    Args:
        policy: the new one.
        sample: actions, their log-probabilities under the old policy, and advantages, [B, ...].
        mean: mean over the samples that count.
    """
    actions, log_probs, advantages = sample
    ratio = (policy.log_prob(actions) - log_probs).exp()
    return mean(ratio * advantages)


def fisher_count(share: float, size: int) -> int:
    """How many of so many states are used for the Fisher matrix."""
    return max(1, round(share * size))
