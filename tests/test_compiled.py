"""Compiled gradient steps against eager ones. It needs a C++ compiler, as CI has."""

from collections.abc import Iterator
from dataclasses import astuple
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch.nn.utils import parameters_to_vector

from jobs import job, repeatable, trained
from rlbench.errors import InputError
from rlbench.records import Metrics, read_facts
from rlbench.spec.job import Job
from rlbench.training.algorithms import PAYS_FROM_STEPS, wants_compiled
from rlbench.training.session import opened

KINDS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "gaussian": ("ppo", "Pendulum-v1", {"entropy_coefficient": 0.01, "value_clip_range": 0.2}),
    "categorical": ("ppo", "CartPole-v1", {"activation": "relu", "clip_range_schedule": "linear"}),
    "state-std": ("ppo", "Pendulum-v1", {"action_std": "state", "action_mean": "scaled"}),
    "shared": ("ppo", "Pendulum-v1", {"optimiser": "shared", "advantage_norm": "minibatch"}),
    "penalty": ("ppo-kl", "Pendulum-v1", {"kl_coefficient": 3.0}),
    "multi-categorical": ("ppo", "probes:Lock-v0", {"entropy_coefficient": 0.01}),
    "bernoulli": ("ppo", "probes:Switches-v0", {"entropy_coefficient": 0.01}),
    "a2c": ("a2c", "CartPole-v1", {"learning_rate_schedule": "linear"}),
    "trpo": ("trpo", "Pendulum-v1", {"critic_epochs": 1, "critic_minibatch_size": 60}),
    "trpo-state-std": (
        "trpo",
        "Pendulum-v1",
        {"action_std": "state", "action_mean": "bounded", "critic_epochs": 1},
    ),
    "trpo-multi-categorical": ("trpo", "probes:Lock-v0", {"critic_epochs": 1}),
    "trpo-bernoulli": (
        "trpo",
        "probes:Switches-v0",
        {"fisher_share": 0.3, "critic_epochs": 1, "activation": "relu"},
    ),
    "npg": ("npg", "CartPole-v1", {"critic_epochs": 2}),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def updated(which: Job, sizes: tuple[int, ...]) -> tuple[list[Metrics], torch.Tensor]:
    """Metrics of one update per rollout length, and all weights after them."""
    with opened(which) as session:
        metrics = []
        for steps in sizes:
            rollout, _ = session.collector.collect(steps, None, session.stopwatch)
            metrics.append(session.learner.update(rollout, remaining=0.5))
        weights = [*session.actor.parameters(), *session.critic.parameters()]
        return metrics, parameters_to_vector(weights).detach().clone()


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_compiled_and_eager_steps_agree(kind: str) -> None:
    """Two minibatches, the last of them smaller: the same metrics and weights."""
    algorithm, environment, hyperparameters = KINDS[kind]
    first_order = (
        {"epochs": 1, "minibatch_size": 60} if "critic_epochs" not in hyperparameters else {}
    )
    few = first_order | hyperparameters
    if algorithm in {"trpo", "npg"}:
        few["cg_iterations"] = 3  # each makes the difference of two roundings larger
    results = [
        updated(job(algorithm, few, environment=environment, compile=mode), (100,))
        for mode in ("never", "always")
    ]
    (eager, eager_weights), (compiled, compiled_weights) = results
    expected, got = torch.tensor(astuple(eager[0])), torch.tensor(astuple(compiled[0]))
    torch.testing.assert_close(got, expected, rtol=1e-3, atol=1e-5, equal_nan=True)
    torch.testing.assert_close(compiled_weights, eager_weights, rtol=1e-4, atol=1e-5)


def test_the_kl_limit_ends_both_at_the_same_step() -> None:
    """A high step size leaves the limit of 1.5 x 0.002 within five epochs."""
    few = {"target_kl": 0.002, "actor_learning_rate": 0.01, "minibatch_size": 50, "epochs": 5}
    (eager, one), (compiled, other) = (
        updated(job("ppo", few, compile=mode), (100,)) for mode in ("never", "always")
    )
    assert 0 < eager[0].steps_taken == compiled[0].steps_taken < 1
    torch.testing.assert_close(other, one, rtol=1e-4, atol=1e-5)
    assert eager[0].clip_fraction == pytest.approx(compiled[0].clip_fraction)


def test_a_shorter_batch_and_a_schedule_compile_nothing_anew() -> None:
    """Public bug: a float learning rate, or the last batch, recompiled."""
    which = job("ppo", {"learning_rate_schedule": "linear", "epochs": 2}, compile="always")
    with opened(which) as session:
        graphs = counters["stats"]["unique_graphs"]
        for steps, remaining in ((100, 1.0), (100, 0.5), (37, 0.25), (1, 0.1)):
            rollout, _ = session.collector.collect(steps, None, session.stopwatch)
            session.learner.update(rollout, remaining)
        assert counters["stats"]["unique_graphs"] == graphs > 0
        assert session.compile_s > 0.5


def test_compiling_takes_no_step() -> None:
    with opened(job(compile="never")) as eager, opened(job(compile="always")) as compiled:
        for one, other in zip(eager.actor.parameters(), compiled.actor.parameters(), strict=True):
            assert torch.equal(one, other)


def test_two_compiled_runs_are_equal_bit_by_bit(tmp_path: Path) -> None:
    for name in ("one", "two"):
        trained(job(compile="always"), tmp_path / name)
    rows = [repeatable(tmp_path / name) for name in ("one", "two")]
    for one, other in zip(rows[0].values(), rows[1].values(), strict=True):
        assert one.equals(other)
    facts = read_facts(tmp_path / "one")
    assert facts.compiled
    assert 0.5 < facts.compile_s <= facts.setup_s


def test_auto_compiles_where_it_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two epochs of four minibatches per 200 steps: 25 steps each."""
    few = {"epochs": 2, "minibatch_size": 50}
    long = 25 * PAYS_FROM_STEPS
    assert wants_compiled(job("ppo", few, total_steps=long))
    assert not wants_compiled(job("ppo", few, total_steps=long - 200))
    assert not wants_compiled(job("ppo", few, total_steps=long, compile="never"))
    critic = {"critic_epochs": 2, "critic_minibatch_size": 50}
    assert wants_compiled(job("trpo", critic, total_steps=long))
    assert not wants_compiled(job("trpo", critic, total_steps=long - 200))
    monkeypatch.setattr("rlbench.training.algorithms.compiler", lambda: None)
    assert not wants_compiled(job("ppo", few, total_steps=long))


@pytest.mark.parametrize(
    ("place", "found", "message"),
    [
        ("compiler", None, "got 'always', but no C.. compiler is on the PATH; install g"),
        ("why_nothing_compiled_runs", "noexec", "got 'always', but noexec; name another in TORCH"),
    ],
)
def test_where_nothing_can_be_compiled_auto_is_eager_and_always_an_error(
    place: str, found: object, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = {"epochs": 2, "minibatch_size": 50}
    monkeypatch.setattr(f"rlbench.training.algorithms.{place}", lambda: found)
    assert not wants_compiled(job("ppo", few, total_steps=25 * PAYS_FROM_STEPS))
    assert not wants_compiled(job("ppo", few, compile="never"))
    with pytest.raises(InputError, match=message):
        wants_compiled(job("ppo", few, compile="always"))
