"""Trust-region policy optimisation.

In:      a Rollout.
Out:     a critic fitted to the targets, and an actor that moved within the trust region or not
         at all.
Source:  Schulman et al. 2015, arXiv:1502.05477, section 6 and appendix C.
"""

import torch

from rlbench.records import Metrics
from rlbench.spec.algorithms import TRPO
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.natural_update import NO_STEP, NaturalUpdate, Trial, Tried
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Rollout

SURROGATE_TOLERANCE = 1e-8
"""How much worse than before the surrogate may be: float rounding around no change."""


class TRPOLearner:
    """Natural-gradient steps with a line search; see `Learner`."""

    def __init__(
        self,
        settings: TRPO,
        networks: tuple[Actor, Critic],
        shuffling: torch.Generator,
        example: Batch | None = None,
    ) -> None:
        self._settings = settings
        self._update = NaturalUpdate(settings, networks, shuffling, example)

    def update(self, rollout: Rollout, remaining: float) -> Metrics:
        """See `Learner.update`."""
        return self._update.update(rollout, remaining, self._longest_trusted)

    def _longest_trusted(self, tried: Tried, max_kl: float) -> Trial:
        """The longest step tried whose surrogate is not worse and whose KL is within the bound.

        A step that is not finite fails both tests.
        """
        settings = self._settings
        for k in range(settings.line_search_steps):
            trial = tried(settings.line_search_shrink**k)
            if trial.gain >= -SURROGATE_TOLERANCE and trial.kl <= max_kl:
                return trial
        return NO_STEP
