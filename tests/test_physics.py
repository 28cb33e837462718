"""MuJoCo and Box2D: their environments go through the same loop as all others."""

import math
from dataclasses import astuple

import pytest
import torch
from torch.nn.utils import parameters_to_vector

from jobs import job
from rlbench.training.envs.spaces import Categories, Continuous
from rlbench.training.envs.vector import inspect
from rlbench.training.session import opened

SPACES: dict[str, tuple[int, int | None, int | None]] = {
    "HalfCheetah-v5": (17, 6, None),
    "Hopper-v5": (11, 3, None),
    "BipedalWalker-v3": (24, 4, None),
    "LunarLanderContinuous-v3": (8, 2, None),
    "LunarLander-v3": (8, None, 4),
}
"""From Gymnasium's documentation: observations, numbers per action, categories."""
each_environment = pytest.mark.parametrize("environment", SPACES)


@each_environment
def test_spaces_are_those_of_the_documentation(environment: str) -> None:
    observations, numbers, categories = SPACES[environment]
    spec, _ = inspect(environment, "sync", 1)
    assert spec.observation_size == observations
    if isinstance(spec.action, Continuous):
        assert (spec.action.size, categories) == (numbers, None)
        assert (spec.action.low == -1).all()
        assert (spec.action.high == 1).all()
    else:
        assert (spec.action, numbers) == (Categories(count=4, start=0), None)


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
@each_environment
def test_an_update_is_finite_and_repeats_bit_by_bit(environment: str, algorithm: str) -> None:
    weights: list[torch.Tensor] = []
    for _ in range(2):
        with opened(job(algorithm, environment=environment)) as session:
            rollout, _ = session.collector.collect(100, None, session.stopwatch)
            metrics = session.learner.update(rollout, remaining=1.0)
            weights.append(parameters_to_vector(session.actor.parameters()).detach())
        numbers = [value for value in astuple(metrics) if not math.isnan(value)]
        assert len(numbers) >= 8
        assert all(math.isfinite(value) for value in numbers)
        assert metrics.kl_nats > 0
        assert rollout.rewards.std() > 0
    assert torch.equal(*weights)
