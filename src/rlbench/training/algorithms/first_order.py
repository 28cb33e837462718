"""Minibatch gradient steps of actor and critic: what PPO, its penalised form and A2C share.

In:      a Rollout, and the loss whose gradient is followed.
Out:     actor and critic after K epochs of Adam steps, and the metrics of the update.
Source:  Schulman et al. 2017, arXiv:1707.06347, algorithm 1.
"""

import math
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from rlbench.records import Metrics
from rlbench.spec.algorithms import FirstOrder
from rlbench.training.advantages import explained_variance
from rlbench.training.algorithms.learner import (
    Batch,
    make_batch,
    minibatches,
    require_finite,
    scheduled,
    weighted_mean,
)
from rlbench.training.algorithms.loss import Loss
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


@dataclass(frozen=True, slots=True)
class Plan:
    """The gradient steps of one update."""

    chosen: list[Tensor]  # indices of each minibatch, in order
    rates: tuple[float, float]  # step sizes of actor and critic
    coefficient: float  # of the objective


@dataclass(frozen=True, slots=True)
class Taken:
    """The gradient steps that were taken: all, unless the KL limit ended them."""

    steps: int
    means: Tensor  # [6], over their samples: what the loss reports, norms of actor and critic


class GradientSteps(Protocol):
    """How the gradient steps of one update are taken."""

    def take(self, batch: Batch, plan: Plan) -> Taken:
        """One Adam step per minibatch, as planned; gradient norms are those before clipping."""
        ...


class FirstOrderUpdate:
    """Updates of an actor and a critic along the gradient of a loss."""

    def __init__(
        self,
        loss: Loss,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None,
    ) -> None:
        self._settings = loss.settings
        self._actor = networks[0]
        self._shuffling = shuffling
        self._steps: GradientSteps = EagerSteps(loss, *networks)
        if example is not None:
            from rlbench.training.algorithms.compiled import CompiledSteps

            self._steps = CompiledSteps(loss, *networks, example)

    def update(self, rollout: Rollout, remaining: float, coefficient: float) -> Metrics:
        """K epochs over shuffled minibatches; `coefficient` is the objective's.

        Raises:
            RunFailed: a loss or a gradient is not finite.
        """
        settings = self._settings
        batch = make_batch(rollout, settings)
        with torch.no_grad():
            old = self._actor(batch.observations).frozen()
        size = min(settings.minibatch_size, batch.size)
        plan = Plan(
            chosen=minibatches(batch.size, size, settings.epochs, self._shuffling),
            rates=_rates(settings, remaining),
            coefficient=coefficient,
        )
        taken = self._steps.take(batch, plan)
        require_finite(taken.means, "the loss or its gradient")
        surrogate, critic_loss, clip_fraction, _, actor_norm, critic_norm = taken.means.tolist()
        with torch.no_grad():
            new = self._actor(batch.observations)
            return Metrics(
                surrogate=surrogate,
                critic_loss=critic_loss,
                explained_variance=explained_variance(batch.values, batch.targets).item(),
                entropy_nats=new.entropy().mean().item(),
                kl_nats=old.kl_to(new).mean().item(),
                actor_grad_norm=actor_norm,
                critic_grad_norm=critic_norm,
                clip_fraction=clip_fraction,
                steps_taken=taken.steps / len(plan.chosen),
            )


class EagerSteps:
    """Steps by PyTorch's autograd and Adam, one after the other."""

    def __init__(self, loss: Loss, actor: Actor, critic: Critic) -> None:
        self._loss = loss
        self._actor, self._critic = actor, critic
        self._weights = list(actor.parameters()), list(critic.parameters())
        self._optimiser = torch.optim.Adam([{"params": part} for part in self._weights], fused=True)

    def take(self, batch: Batch, plan: Plan) -> Taken:
        """See `GradientSteps.take`."""
        for group, rate in zip(self._optimiser.param_groups, plan.rates, strict=True):
            group["lr"] = rate
        coefficient = torch.tensor(plan.coefficient, device=batch.log_probs.device)
        rows: list[Tensor] = []
        for part in plan.chosen:
            row = self._step(batch, part, coefficient, first=not rows)
            if row is None:
                break
            rows.append(row)
        return Taken(len(rows), weighted_mean(rows, plan.chosen[: len(rows)]))

    def _step(
        self, batch: Batch, chosen: Tensor, coefficient: Tensor, *, first: bool
    ) -> Tensor | None:
        """One gradient step on a minibatch, and six numbers about it; None if it is too far."""
        observations, *sample = (column[chosen] for column in batch.columns)
        outputs = self._actor(observations), self._critic(observations)
        loss, numbers = self._loss(outputs, sample, coefficient, torch.mean)
        limit = self._loss.kl_limit
        if math.isfinite(limit) and not first and numbers[-1] > limit:
            return None
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        norms = torch.stack([_norm(part) for part in self._weights])
        limits = limited_by(self._loss, norms)
        for part, norm in zip(self._weights, limits, strict=True):
            nn.utils.clip_grads_with_norm_(part, self._loss.settings.max_grad_norm, norm)
        self._optimiser.step()
        return torch.cat([numbers, norms])


def limited_by(loss: Loss, norms: Tensor) -> Tensor:
    """The norms that the gradient limit looks at: of actor and critic each, or of both; [2]."""
    return norms.norm().expand(2) if loss.settings.optimiser == "shared" else norms


def _rates(settings: FirstOrder, remaining: float) -> tuple[float, float]:
    """Step sizes of actor and critic: each its own, or the actor's for both."""
    actor, critic = (
        scheduled(rate, settings.learning_rate_schedule, remaining)
        for rate in (settings.actor_learning_rate, settings.critic_learning_rate)
    )
    return actor, actor if settings.optimiser == "shared" else critic


def _norm(weights: list[nn.Parameter]) -> Tensor:
    return nn.utils.get_total_norm([w.grad for w in weights if w.grad is not None])
