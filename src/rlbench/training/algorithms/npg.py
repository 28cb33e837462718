"""The natural policy gradient: the full step to the bound of the quadratic model, unsearched.

In:      a Rollout.
Out:     a critic fitted to the targets, and an actor that took the natural step.
Source:  Kakade 2001, "A Natural Policy Gradient", with the step length of Schulman et al. 2015,
         arXiv:1502.05477, appendix C.
"""

import math

import torch

from rlbench.records import Metrics
from rlbench.spec.algorithms import NPG
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.natural_update import NO_STEP, NaturalUpdate, Trial, Tried
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout


class NPGLearner:
    """Natural-gradient steps as they come; see `Learner`."""

    def __init__(
        self,
        settings: NPG,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,
    ) -> None:
        self._update = NaturalUpdate(settings, networks, shuffling, example)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """See `Learner.update`."""
        return self._update.update(rollout, remaining, full_step)


def full_step(tried: Tried, _: float) -> Trial:
    """The whole step, whatever its KL, unless it leads to numbers that are not finite."""
    trial = tried(1.0)
    return trial if math.isfinite(trial.gain) and math.isfinite(trial.kl) else NO_STEP
