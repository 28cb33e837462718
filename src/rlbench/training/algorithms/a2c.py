"""Advantage actor-critic: the policy gradient as it is, once over the batch.

In:      a Rollout.
Out:     actor and critic after one pass of minibatch gradient steps.
Source:  Mnih et al. 2016, arXiv:1602.01783, without the asynchrony; as a case of PPO in Huang et
         al. 2022, arXiv:2205.09123.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rlbench.records import NAN, Metrics
from rlbench.spec.algorithms import A2C
from rlbench.training.algorithms.first_order import FirstOrderUpdate, actor_critic_descent
from rlbench.training.algorithms.learner import Batch
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


class A2CLearner:
    """Policy-gradient updates; see `Learner`."""

    def __init__(
        self,
        settings: A2C,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,
    ) -> None:
        descent = actor_critic_descent(settings, networks, policy_gradient)
        self._update = FirstOrderUpdate(descent, settings, shuffling, example)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """See `Learner.update`."""
        metrics = self._update.update(rollout, remaining, coefficient=0.0)
        return replace(metrics, clip_fraction=NAN)


def policy_gradient(log_ratio: Tensor, advantage: Tensor, _: Tensor) -> Tensor:
    """What has the policy gradient as its gradient; inputs and result [B].

    grad E[log pi(a | s) A]; the log-probability when acting is a constant that shows the change
    """
    return log_ratio * advantage
