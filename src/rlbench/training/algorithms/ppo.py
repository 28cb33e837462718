"""Proximal policy optimisation with a clipped surrogate.

In:      a Rollout.
Out:     actor and critic after K epochs of minibatch gradient steps.
Source:  Schulman et al. 2017, arXiv:1707.06347, algorithm 1.
"""

from typing import Protocol

import torch
from torch import Tensor, nn

from rlbench.records import Metrics
from rlbench.spec.algorithms import PPO
from rlbench.training.advantages import explained_variance
from rlbench.training.algorithms.learner import (
    Batch,
    make_batch,
    minibatches,
    require_finite,
    weighted_mean,
)
from rlbench.training.algorithms.ppo_loss import losses
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


class GradientSteps(Protocol):
    """How the gradient steps of one update are taken."""

    def take(self, batch: Batch, chosen: list[Tensor], rates: tuple[float, float]) -> Tensor:
        """One Adam step per minibatch; means over all samples of five numbers, [5].

        Args:
            batch: a whole rollout.
            chosen: indices of each minibatch, in order.
            rates: step sizes of actor and critic.

        The numbers: surrogate, critic's squared error, clip fraction, gradient norm of the actor
        and of the critic before clipping.
        """
        ...


class PPOLearner:
    """Clipped-surrogate updates of an actor and a critic, each with its own Adam."""

    def __init__(
        self,
        settings: PPO,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,
    ) -> None:
        self._settings = settings
        self._actor, self._critic = networks
        self._shuffling = shuffling
        self._steps: GradientSteps = EagerSteps(settings, *networks)
        if example is not None:
            from rlbench.training.algorithms.compiled import CompiledSteps

            self._steps = CompiledSteps(settings, *networks, example)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """K epochs over shuffled minibatches; see `Learner.update`."""
        settings = self._settings
        batch = make_batch(rollout, settings)
        with torch.no_grad():
            old = self._actor(batch.observations).frozen()
        factor = remaining if settings.learning_rate_schedule == "linear" else 1.0
        rates = factor * settings.actor_learning_rate, factor * settings.critic_learning_rate
        size = min(settings.minibatch_size, batch.size)
        chosen = minibatches(batch.size, size, settings.epochs, self._shuffling)
        means = self._steps.take(batch, chosen, rates)
        require_finite(means, "PPO's loss or gradient")
        surrogate, critic_loss, clip_fraction, actor_norm, critic_norm = means.tolist()
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
            )


class EagerSteps:
    """Steps by PyTorch's autograd and Adam, one after the other."""

    def __init__(self, settings: PPO, actor: Actor, critic: Critic) -> None:
        self._settings = settings
        self._actor, self._critic = actor, critic
        self._weights = list(actor.parameters()), list(critic.parameters())
        self._optimiser = torch.optim.Adam([{"params": part} for part in self._weights], fused=True)

    def take(self, batch: Batch, chosen: list[Tensor], rates: tuple[float, float]) -> Tensor:
        """See `GradientSteps.take`."""
        for group, rate in zip(self._optimiser.param_groups, rates, strict=True):
            group["lr"] = rate
        return weighted_mean([self._step(batch, part) for part in chosen], chosen)

    def _step(self, batch: Batch, chosen: Tensor) -> Tensor:
        """One gradient step on a minibatch; five numbers about it."""
        observations, *sample = (column[chosen] for column in batch.columns)
        policy, values = self._actor(observations), self._critic(observations)
        loss, numbers = losses(self._settings, policy, values, sample, torch.mean)
        self._optimiser.zero_grad()
        torch.autograd.backward(loss)
        limit = self._settings.max_grad_norm
        norms = [nn.utils.clip_grad_norm_(part, limit) for part in self._weights]
        self._optimiser.step()
        return torch.cat([numbers, torch.stack(norms)])
