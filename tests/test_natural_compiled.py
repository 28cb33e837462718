"""The natural step of compiled programs against eager ones. It needs a C++ compiler, as CI has."""

from dataclasses import fields
from typing import Any

import pytest
import torch

from jobs import job
from rlbench.spec.algorithms import TRPO
from rlbench.training.algorithms.learner import Batch, make_batch
from rlbench.training.algorithms.natural_gradient import weights_of
from rlbench.training.algorithms.natural_step import Direction, EagerCompass, fisher_count
from rlbench.training.session import opened

KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "one output": ("Pendulum-v1", {"activation": "relu"}),
    "two outputs": ("Pendulum-v1", {"action_std": "state", "action_mean": "bounded"}),
    "many outputs": ("probes:Lock-v0", {}),
    "a share of the states": ("probes:Switches-v0", {"fisher_share": 0.3}),
}


def in_double(batch: Batch, size: int) -> Batch:
    """The first samples of a batch, floats in float64."""
    columns = [getattr(batch, field.name)[:size] for field in fields(batch)]
    return Batch(*(c.double() if c.is_floating_point() else c for c in columns))


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_compiled_and_eager_directions_agree(kind: str) -> None:
    """In float64, a full batch and a shorter one that is filled up.

    Three iterations: each makes the difference of two roundings some ten times larger.
    """
    from rlbench.training.algorithms.natural_compiled import CompiledCompass

    environment, chosen = KINDS[kind]
    few = {"cg_iterations": 3, **chosen}
    with opened(job("trpo", few, environment=environment, compile="never")) as session:
        rollout, _ = session.collector.collect(100, None, session.stopwatch)
        settings, actor = session.job.algorithm, session.actor.double()
        assert isinstance(settings, TRPO)
        batch = in_double(make_batch(rollout, settings), 200)
    eager = EagerCompass(settings, actor)
    compiled = CompiledCompass(settings, actor, batch)
    for size in (200, 61):
        part = in_double(batch, size)
        states = part.observations[: fisher_count(settings.fisher_share, size)]
        one, other = (way.direction(part, states, 0.01) for way in (eager, compiled))
        assert_same(one, other)
        assert one.full_step is not None
        theta = weights_of(actor) + one.full_step
        for value, expected in zip(other.effect(theta), one.effect(theta), strict=True):
            torch.testing.assert_close(value, expected, atol=1e-11, rtol=1e-9)


def assert_same(one: Direction, other: Direction) -> None:
    torch.testing.assert_close(other.full_step, one.full_step, atol=1e-11, rtol=1e-9)
    assert other.gradient_norm == pytest.approx(one.gradient_norm, rel=1e-8)
    assert other.residual == pytest.approx(one.residual, rel=1e-9)
