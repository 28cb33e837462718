"""Trust-region policy optimisation.

In:      a Rollout.
Out:     a critic fitted to the targets, and an actor that moved within the trust region or not
         at all.
Source:  Schulman et al. 2015, arXiv:1502.05477, section 6 and appendix C.
"""

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from rlbench.records import Metrics
from rlbench.spec.algorithms import TRPO
from rlbench.training.advantages import explained_variance
from rlbench.training.algorithms.critic import CriticFit
from rlbench.training.algorithms.learner import Batch, make_batch
from rlbench.training.algorithms.natural_gradient import (
    conjugate_gradients,
    fisher_product,
    gradient,
    step_length,
    weights_of,
)
from rlbench.training.distributions import Distribution
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout

SURROGATE_TOLERANCE = 1e-8
"""How much worse than before the surrogate may be: float rounding around no change."""


@dataclass(frozen=True, slots=True)
class Step:
    """The step that was taken; all zeros where the actor was left as it was."""

    gain: float = 0.0
    kl: float = 0.0
    scale: float = 0.0
    accepted: bool = False


@dataclass(frozen=True, slots=True)
class Attempt:
    """One update of the actor."""

    step: Step
    grad_norm: float
    cg_residual: float = float("nan")
    skipped: bool = False


class TRPOLearner:
    """Natural-gradient steps with a line search; a critic with its own Adam."""

    def __init__(
        self,
        settings: TRPO,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,  # noqa: ARG002 (always eager)
    ) -> None:
        self._settings = settings
        self._actor, critic = networks
        self._critic = CriticFit(critic, settings.critic_learning_rate, shuffling)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:  # noqa: ARG002 (no schedule)
        """Fit the critic, then move the actor; see `Learner.update`."""
        batch = make_batch(rollout, self._settings)
        critic_loss, critic_norm = self._critic.fit(
            batch, self._settings.critic_epochs, self._settings.critic_minibatch_size
        )
        attempt = self._improve(batch)
        with torch.no_grad():
            entropy = self._actor(batch.observations).entropy().mean().item()
        return Metrics(
            surrogate=attempt.step.gain,
            critic_loss=critic_loss,
            explained_variance=explained_variance(batch.values, batch.targets).item(),
            entropy_nats=entropy,
            kl_nats=attempt.step.kl,
            actor_grad_norm=attempt.grad_norm,
            critic_grad_norm=critic_norm,
            line_search_success=float(attempt.step.accepted),
            step_scale=attempt.step.scale,
            cg_residual=attempt.cg_residual,
            skipped=float(attempt.skipped),
        )

    def _improve(self, batch: Batch) -> Attempt:
        """One natural-gradient step of the actor, or none.

        g    = grad E[r A]
        s    = (F + damping I)^-1 g
        step = sqrt(2 delta / (s . (F + damping I) s)) s     appendix C
        """
        settings = self._settings
        policy = self._actor(batch.observations)
        old, old_surrogate = policy.frozen(), _surrogate(policy, batch)
        g = gradient(old_surrogate, self._actor)
        norm = g.norm().item()
        if not 0 < norm < float("inf"):
            return Attempt(Step(), norm, skipped=True)
        product = fisher_product(policy, self._actor, settings.damping)
        solution = conjugate_gradients(product, g, settings.cg_iterations, settings.cg_tolerance)
        length = step_length(product, solution.vector, settings.max_kl)
        residual = solution.residual.item()
        if length is None or not solution.positive:
            return Attempt(Step(), norm, residual, skipped=True)
        step = self._line_search(length * solution.vector, old, old_surrogate.item(), batch)
        return Attempt(step, norm, residual)

    @torch.no_grad()
    def _line_search(
        self, full_step: Tensor, old: Distribution, old_surrogate: float, batch: Batch
    ) -> Step:
        """The longest step tried whose surrogate is not worse and whose KL is within the bound.

        A step that is not finite fails both tests, so the weights are then restored.
        """
        start = weights_of(self._actor)
        scale = 1.0
        for _ in range(self._settings.line_search_steps):
            vector_to_parameters(start + scale * full_step, self._actor.parameters())
            new = self._actor(batch.observations)
            gain = _surrogate(new, batch).item() - old_surrogate
            kl = old.kl_to(new).mean().item()
            if gain >= -SURROGATE_TOLERANCE and kl <= self._settings.max_kl:
                return Step(gain, kl, scale, accepted=True)
            scale *= self._settings.line_search_shrink
        vector_to_parameters(start, self._actor.parameters())
        return Step()


def _surrogate(policy: Distribution, batch: Batch) -> Tensor:
    """E[r A], to be maximised; []     Schulman et al. 2015, eq. 14."""
    ratio = (policy.log_prob(batch.actions) - batch.log_probs).exp()
    return (ratio * batch.advantages).mean()
