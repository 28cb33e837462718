"""One natural-gradient update: what TRPO and the natural policy gradient share.

In:      a Rollout, and a choice among multiples of the natural step.
Out:     a critic fitted to the targets, and an actor that took the chosen step or none at all.
Source:  Schulman et al. 2015, arXiv:1502.05477, section 6 and appendix C; Kakade 2001.
"""

from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import vector_to_parameters

from rlbench.records import Metrics
from rlbench.spec.algorithms import NaturalGradient
from rlbench.training.advantages import explained_variance
from rlbench.training.algorithms.critic import CriticFit
from rlbench.training.algorithms.learner import Batch, make_batch, scheduled
from rlbench.training.algorithms.natural_gradient import weights_of
from rlbench.training.algorithms.natural_step import fisher_count, make_compass
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Trial:
    """What a multiple of the full step would do."""

    scale: float = 0.0
    gain: float = 0.0  # of the surrogate
    kl: float = 0.0  # nats, old policy to new, mean over the batch


NO_STEP = Trial()
Tried = Callable[[float], Trial]
"""Puts the actor at a multiple of the full step, and says what that does."""
Choice = Callable[[Tried, float], Trial]
"""What is to be taken, given a bound on the KL: the last multiple that it tried, or NO_STEP."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """One update of the actor."""

    step: Trial
    grad_norm: float
    cg_residual: float = float("nan")
    skipped: bool = False


class NaturalUpdate:
    """Updates of an actor along the natural gradient, and of a critic with its own Adam."""

    def __init__(
        self,
        settings: NaturalGradient,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None,
    ) -> None:
        self._settings = settings
        self._actor, critic = networks
        self._shuffling = shuffling
        self._compass = make_compass(settings, self._actor, example)
        self._critic = CriticFit(settings, critic, shuffling, example)

    def update(self, rollout: Rollout, remaining: float, choice: Choice) -> Metrics:
        """Fit the critic, then move the actor.

        Raises:
            RunFailed: loss or gradient of the critic is not finite.
        """
        settings = self._settings
        batch = make_batch(rollout, settings)
        critic_loss, critic_norm = self._critic.fit(batch, remaining)
        before = weights_of(self._actor)
        max_kl = scheduled(settings.max_kl, settings.max_kl_schedule, remaining)
        attempt = self._improve(batch, max_kl, choice)
        moved = attempt.step != NO_STEP
        with torch.no_grad():
            entropy = self._actor(batch.observations).entropy().mean().item()
        return Metrics(
            surrogate=attempt.step.gain,
            critic_loss=critic_loss,
            explained_variance=explained_variance(batch.values, batch.targets).item(),
            entropy_nats=entropy,
            kl_nats=kl_in_double(before, self._actor, batch.observations) if moved else 0.0,
            actor_grad_norm=attempt.grad_norm,
            critic_grad_norm=critic_norm,
            line_search_success=float(moved),
            step_scale=attempt.step.scale,
            cg_residual=attempt.cg_residual,
            skipped=float(attempt.skipped),
        )

    def _improve(self, batch: Batch, max_kl: float, choice: Choice) -> Attempt:
        """One natural-gradient step of the actor, or none."""
        found = self._compass.direction(batch, self._fisher_states(batch), max_kl)
        full_step = found.full_step
        if full_step is None:
            return Attempt(NO_STEP, found.gradient_norm, found.residual, skipped=True)
        start = weights_of(self._actor)

        def tried(scale: float) -> Trial:
            theta = start + scale * full_step
            vector_to_parameters(theta, self._actor.parameters())
            gain, kl = found.effect(theta)
            return Trial(scale, gain.item(), kl.item())

        step = choice(tried, max_kl)
        if step == NO_STEP:
            vector_to_parameters(start, self._actor.parameters())
        return Attempt(step, found.gradient_norm, found.residual)

    def _fisher_states(self, batch: Batch) -> Tensor:
        """The states of the batch over which the Fisher matrix is averaged: all, or some."""
        share = self._settings.fisher_share
        if share == 1:
            return batch.observations
        device = self._shuffling.device
        order = torch.randperm(batch.size, generator=self._shuffling, device=device)
        return batch.observations[order[: fisher_count(share, batch.size)]]


@torch.no_grad()
def kl_in_double(before: Tensor, actor: Actor, observations: Tensor) -> float:
    """Mean KL divergence from the policy with the weights before to the actor, nats, in float64.

    All of it is float64, the networks too: a bound on it holds beyond the rounding of float32.
    """
    exact, states = deepcopy(actor).double(), observations.double()
    new = exact(states)
    vector_to_parameters(before.double(), exact.parameters())
    kl: Tensor = exact(states).kl_to(new.frozen()).mean()
    return kl.item()
