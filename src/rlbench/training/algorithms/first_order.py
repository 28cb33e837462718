"""Minibatch gradient steps of actor and critic: what PPO, its penalised form and A2C share.

In:      a Rollout, and the loss whose gradient is followed.
Out:     actor and critic after K epochs of Adam steps, and the metrics of the update.
Source:  Schulman et al. 2017, arXiv:1707.06347, algorithm 1.
"""

import math

import torch

from rlbench.records import Metrics
from rlbench.spec.algorithms import FirstOrder
from rlbench.training.advantages import explained_variance
from rlbench.training.algorithms.learner import (
    Batch,
    make_batch,
    require_finite,
    scheduled,
)
from rlbench.training.algorithms.loss import ActorCriticLoss, Objective
from rlbench.training.algorithms.steps import Descent, Plan, make_steps, minibatches
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


class FirstOrderUpdate:
    """Updates of an actor and a critic along the gradient of a loss."""

    def __init__(
        self,
        descent: Descent,
        settings: FirstOrder,
        shuffling: torch.Generator,
        example: Batch | None,
    ) -> None:
        self._settings = settings
        self._actor = descent.networks[0]
        self._shuffling = shuffling
        columns = None if example is None else example.columns
        self._steps = make_steps(descent, columns, settings.minibatch_size, settings.epochs)

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
        taken = self._steps.take(batch.columns, plan)
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


def actor_critic_descent(
    settings: FirstOrder,
    networks: tuple[Actor, Critic],
    objective: Objective,
    kl_limit: float = math.inf,
) -> Descent:
    """The gradient steps of an actor that follows an objective and of its critic.

    Args:
        settings: weights and limits.
        networks: actor and critic.
        objective: what is to be made larger.
        kl_limit: estimated KL divergence (nats) of a minibatch above which the steps end.
    """
    return Descent(
        networks=networks,
        loss=ActorCriticLoss(settings, objective),
        reported=4,
        max_grad_norm=settings.max_grad_norm,
        joint_norm=settings.optimiser == "shared",
        end_above=kl_limit,
    )


def _rates(settings: FirstOrder, remaining: float) -> tuple[float, float]:
    """Step sizes of actor and critic: each its own, or the actor's for both."""
    actor, critic = (
        scheduled(rate, settings.learning_rate_schedule, remaining)
        for rate in (settings.actor_learning_rate, settings.critic_learning_rate)
    )
    return actor, actor if settings.optimiser == "shared" else critic
