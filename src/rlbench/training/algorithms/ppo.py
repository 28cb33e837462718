"""Proximal policy optimisation with a clipped surrogate.

In:      a Rollout.
Out:     actor and critic after K epochs of minibatch gradient steps.
Source:  Schulman et al. 2017, arXiv:1707.06347, algorithm 1.
"""

import math

import torch
from torch import Tensor

from rlbench.records import Metrics
from rlbench.spec.algorithms import PPO
from rlbench.training.algorithms.first_order import FirstOrderUpdate, actor_critic_descent
from rlbench.training.algorithms.learner import Batch, scheduled
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout

KL_SLACK = 1.5
"""How far beyond target_kl a minibatch may be before an update ends, as in other libraries."""


class PPOLearner:
    """Clipped-surrogate updates; see `Learner`."""

    def __init__(
        self,
        settings: PPO,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,
    ) -> None:
        self._settings = settings
        limit = KL_SLACK * settings.target_kl or math.inf
        descent = actor_critic_descent(settings, networks, objective, limit)
        self._update = FirstOrderUpdate(descent, settings, shuffling, example)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """See `Learner.update`."""
        settings = self._settings
        clip_range = scheduled(settings.clip_range, settings.clip_range_schedule, remaining)
        return self._update.update(rollout, remaining, clip_range)


def objective(log_ratio: Tensor, advantage: Tensor, clip_range: Tensor) -> Tensor:
    """The clipped surrogate, from the log of the ratio; [B]."""
    return clipped_surrogate(log_ratio.exp(), advantage, clip_range)


def clipped_surrogate(ratio: Tensor, advantage: Tensor, clip_range: Tensor) -> Tensor:
    """Clipped surrogate of each sample, its mean to be maximised; inputs and result [B].

    L = E[min(r A, clip(r, 1 - eps, 1 + eps) A)]     Schulman et al. 2017, eq. 7
    """
    clipped = ratio.clamp(1 - clip_range, 1 + clip_range)
    return torch.minimum(ratio * advantage, clipped * advantage)
