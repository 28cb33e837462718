"""From settings to a learner. A new algorithm is one file here and one line in `LEARNERS`."""

from importlib import import_module

import torch

from rlbench.spec.algorithms import OnPolicy
from rlbench.training.algorithms.learner import Learner
from rlbench.training.policy import Actor, Critic

LEARNERS = {"ppo": "ppo:PPOLearner", "trpo": "trpo:TRPOLearner"}
"""Module and class of each algorithm, by the name in its settings; imported when used."""


def make_learner(
    settings: OnPolicy, actor: Actor, critic: Critic, shuffling: torch.Generator
) -> Learner:
    """The learner that the settings are for."""
    module, name = LEARNERS[settings.name].split(":")
    learner: Learner = getattr(import_module(f"{__name__}.{module}"), name)(
        settings, actor, critic, shuffling
    )
    return learner
