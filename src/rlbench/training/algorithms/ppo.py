"""Proximal policy optimisation with a clipped surrogate.

In:      a Rollout.
Out:     actor and critic after K epochs of minibatch gradient steps.
Source:  Schulman et al. 2017, arXiv:1707.06347, eq. 7 and algorithm 1.
"""

import torch
from torch import Tensor, nn

from rlbench.records import Metrics
from rlbench.spec.algorithms import PPO
from rlbench.training.advantages import explained_variance, standardised
from rlbench.training.algorithms.learner import (
    Batch,
    make_batch,
    minibatches,
    require_finite,
    weighted_mean,
)
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: float) -> Tensor:
    """Mean clipped surrogate, to be maximised; inputs [B], result [].

    L = E[min(r A, clip(r, 1 - eps, 1 + eps) A)]     Schulman et al. 2017, eq. 7
    """
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.minimum(ratio * advantage, clipped * advantage).mean()


class PPOLearner:
    """Clipped-surrogate updates of an actor and a critic, each with its own Adam."""

    def __init__(
        self, settings: PPO, actor: Actor, critic: Critic, shuffling: torch.Generator
    ) -> None:
        self._settings = settings
        self._actor, self._critic = actor, critic
        self._shuffling = shuffling
        self._actor_weights = list(actor.parameters())
        self._critic_weights = list(critic.parameters())
        groups = [
            {"params": self._actor_weights, "lr": settings.actor_learning_rate},
            {"params": self._critic_weights, "lr": settings.critic_learning_rate},
        ]
        self._optimiser = torch.optim.Adam(groups, fused=True)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """K epochs over shuffled minibatches; see `Learner.update`."""
        self._anneal(remaining)
        batch = make_batch(rollout, self._settings)
        with torch.no_grad():
            old = self._actor(batch.observations).frozen()
        chosen = minibatches(
            batch.size, self._settings.minibatch_size, self._settings.epochs, self._shuffling
        )
        means = weighted_mean([self._step(batch, part) for part in chosen], chosen)
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

    def _step(self, batch: Batch, chosen: Tensor) -> Tensor:
        """One gradient step on a minibatch; five numbers about it."""
        policy = self._actor(batch.observations[chosen])
        advantage = batch.advantages[chosen]
        if self._settings.advantage_norm == "minibatch":
            advantage = standardised(advantage)
        ratio = (policy.log_prob(batch.actions[chosen]) - batch.log_probs[chosen]).exp()
        surrogate = clipped_surrogate(ratio, advantage, self._settings.clip_range)
        objective = surrogate
        if self._settings.entropy_coefficient > 0:
            objective = surrogate + self._settings.entropy_coefficient * policy.entropy().mean()
        critic_loss = nn.functional.mse_loss(
            self._critic(batch.observations[chosen]), batch.targets[chosen]
        )
        self._optimiser.zero_grad()
        torch.autograd.backward(critic_loss - objective)
        limit = self._settings.max_grad_norm
        actor_norm = nn.utils.clip_grad_norm_(self._actor_weights, limit)
        critic_norm = nn.utils.clip_grad_norm_(self._critic_weights, limit)
        self._optimiser.step()
        with torch.no_grad():
            clipped = ((ratio - 1).abs() > self._settings.clip_range).float().mean()
            return torch.stack([surrogate, critic_loss, clipped, actor_norm, critic_norm])

    def _anneal(self, remaining: float) -> None:
        factor = remaining if self._settings.learning_rate_schedule == "linear" else 1.0
        actor, critic = self._optimiser.param_groups
        actor["lr"] = factor * self._settings.actor_learning_rate
        critic["lr"] = factor * self._settings.critic_learning_rate
