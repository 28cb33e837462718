"""Proximal policy optimisation with an adaptive KL penalty in place of the clipping.

In:      a Rollout.
Out:     actor and critic after K epochs of minibatch gradient steps.
Source:  Schulman et al. 2017, arXiv:1707.06347, section 4, eq. 8.
"""

from dataclasses import replace

import torch
from torch import Tensor

from rlbench.records import NAN, Metrics
from rlbench.spec.algorithms import PPOKL
from rlbench.training.algorithms.first_order import FirstOrderUpdate, actor_critic_descent
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.loss import kl_estimate
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


class PPOKLLearner:
    """Penalised updates whose penalty follows the divergence they make; see `Learner`."""

    def __init__(
        self,
        settings: PPOKL,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,
    ) -> None:
        self._target = settings.target_kl
        self._beta = settings.kl_coefficient
        descent = actor_critic_descent(settings, networks, penalised_surrogate)
        self._update = FirstOrderUpdate(descent, settings, shuffling, example)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """See `Learner.update`."""
        used = self._beta
        metrics = self._update.update(rollout, remaining, used)
        self._beta = adapted(used, metrics.kl_nats, self._target)
        return replace(metrics, clip_fraction=NAN, kl_coefficient=used)


def penalised_surrogate(log_ratio: Tensor, advantage: Tensor, beta: Tensor) -> Tensor:
    """Surrogate of each sample less its share of the divergence; inputs and result [B].

    L = E[r A - beta KL(old || new)]     Schulman et al. 2017, eq. 8
    """
    return log_ratio.exp() * advantage - beta * kl_estimate(log_ratio)


def adapted(beta: float, kl: float, target: float) -> float:
    """The penalty after an update that made so much divergence.

    d < d_targ / 1.5: beta / 2     d > 1.5 d_targ: 2 beta     section 4
    """
    if kl < target / 1.5:
        return beta / 2
    return 2 * beta if kl > 1.5 * target else beta
