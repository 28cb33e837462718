import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.spec.algorithms import TRPO
from rlbench.training.algorithms import natural_step
from rlbench.training.algorithms.natural_gradient import step_length, weights_of
from rlbench.training.algorithms.trpo import TRPOLearner
from rlbench.training.envs.spaces import Categories, EnvSpec
from rlbench.training.policy import Actor, Critic, make_actor_critic
from test_ppo import CPU, SPEC, rollout


def learner(spec: EnvSpec = SPEC, **settings: object) -> tuple[TRPOLearner, Actor, Critic]:
    chosen = TRPO.model_validate({"hidden_sizes": (8,)} | settings)
    actor, critic = make_actor_critic(spec, chosen, torch.Generator().manual_seed(0), CPU)
    return TRPOLearner(chosen, (actor, critic), torch.Generator().manual_seed(1)), actor, critic


def gaussian_of(actor: Actor, states: Tensor) -> torch.distributions.Normal:
    """The actor's distribution in float64, cut from the network."""
    policy = actor(states).frozen()
    return torch.distributions.Normal(policy.mean.double(), policy.log_std.double().exp())


@pytest.mark.parametrize("max_kl", [0.001, 0.01, 0.1])
@pytest.mark.parametrize("action_std", ["global", "state"])
def test_the_step_stays_in_the_trust_region(max_kl: float, action_std: str) -> None:
    """KL recomputed in float64 by torch.distributions, over three updates."""
    updated, actor, critic = learner(max_kl=max_kl, action_std=action_std, damping=0.01)
    for _ in range(3):
        batch = rollout(actor, critic, 256)
        states = batch.observations.flatten(0, 1)
        normal = [gaussian_of(actor, states)]
        metrics = updated.update(batch, remaining=1.0)
        normal.append(gaussian_of(actor, states))
        kl = float(torch.distributions.kl_divergence(*normal).sum(-1).mean())
        assert kl <= max_kl + 1e-6
        assert math.isclose(kl, metrics.kl_nats, rel_tol=1e-3, abs_tol=1e-7)
        assert metrics.line_search_success == 1
        assert metrics.surrogate > 0
        assert kl > 0.3 * max_kl


def test_the_first_step_tried_is_the_natural_gradient() -> None:
    """Against the explicit matrix of a tiny policy: step = sqrt(2 delta / s.As) s, As = g."""
    updated, actor, critic = learner(hidden_sizes=(2,), cg_iterations=100, damping=0.1, max_kl=1e-4)
    batch = rollout(actor, critic, 64)
    states, actions = batch.observations[:, 0], batch.actions[:, 0]
    names = [name for name, _ in actor.named_parameters()]
    start = weights_of(actor)
    shapes = [parameter.shape for parameter in actor.parameters()]

    def policy(flat: Tensor) -> torch.distributions.Normal:
        parts = torch.split(flat, [s.numel() for s in shapes])
        weights = {n: p.view(s) for n, p, s in zip(names, parts, shapes, strict=True)}
        found = torch.func.functional_call(actor, weights, (states,))
        return torch.distributions.Normal(found.mean, found.log_std.exp())

    raw = batch.rewards[:, 0] - batch.values[:, 0]
    advantage = (raw - raw.mean()) / raw.std()
    old = policy(start)

    def surrogate(flat: Tensor) -> Tensor:
        log_prob: Tensor = policy(flat).log_prob(actions).sum(-1)
        return ((log_prob - batch.log_probs[:, 0]).exp() * advantage).mean()

    def kl(flat: Tensor) -> Tensor:
        return torch.distributions.kl_divergence(old, policy(flat)).sum(-1).mean()

    g = torch.autograd.functional.jacobian(surrogate, start)
    matrix = torch.autograd.functional.hessian(kl, start) + 0.1 * torch.eye(len(start))
    s = torch.linalg.solve(matrix, g)
    step = torch.sqrt(2 * 1e-4 / (s @ matrix @ s)) * s
    metrics = updated.update(batch, remaining=1.0)
    assert metrics.step_scale == 1
    torch.testing.assert_close(weights_of(actor) - start, step, atol=2e-5, rtol=2e-2)


def test_a_rejected_step_is_the_zero_step(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public bug: the KL of a rejected step was logged. Every length tried is far too long."""
    monkeypatch.setattr(natural_step, "step_length", lambda *_: torch.tensor(1e4))
    updated, actor, critic = learner(line_search_steps=3)
    before = weights_of(actor)
    metrics = updated.update(rollout(actor, critic, 64), remaining=1.0)
    assert torch.equal(weights_of(actor), before)
    assert (metrics.line_search_success, metrics.step_scale) == (0, 0)
    assert (metrics.kl_nats, metrics.surrogate, metrics.skipped) == (0, 0, 0)


def test_a_worse_surrogate_is_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    """The step is turned around, so that every length of it is worse."""
    real = step_length

    def backwards(*arguments: Any) -> Tensor:
        return -real(*arguments)

    monkeypatch.setattr(natural_step, "step_length", backwards)
    updated, actor, critic = learner()
    before = weights_of(actor)
    metrics = updated.update(rollout(actor, critic, 64), remaining=1.0)
    assert torch.equal(weights_of(actor), before)
    assert (metrics.line_search_success, metrics.kl_nats, metrics.surrogate) == (0, 0, 0)
    assert metrics.skipped == 0


def test_a_step_beyond_the_bound_is_shortened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Public bug: acceptance without a KL test. The step is made 8 times too long."""
    real = step_length

    def too_long(*arguments: Any) -> Tensor:
        return 8 * real(*arguments)

    monkeypatch.setattr(natural_step, "step_length", too_long)
    updated, actor, critic = learner(damping=0.0)
    metrics = updated.update(rollout(actor, critic, 256), remaining=1.0)
    assert metrics.step_scale in {1 / 16, 1 / 8, 1 / 4}
    assert metrics.kl_nats <= 0.01


@pytest.mark.parametrize("fault", ["zero", "nan", "indefinite"])
def test_an_unusable_gradient_or_curvature_changes_nothing_and_is_counted(
    fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    updated, actor, critic = learner(advantage_norm="none")
    batch = rollout(actor, critic, 64)
    if fault == "zero":
        batch = replace(batch, rewards=batch.values.clone(), next_values=batch.values * 0)
    if fault == "nan":
        monkeypatch.setattr(natural_step, "gradient", lambda *_: torch.full((50,), math.nan))
    if fault == "indefinite":
        monkeypatch.setattr(natural_step, "fisher_product", lambda *_: lambda vector: -vector)
    before = weights_of(actor)
    metrics = updated.update(batch, remaining=1.0)
    assert torch.equal(weights_of(actor), before)
    assert metrics.skipped == 1
    assert (metrics.kl_nats, metrics.line_search_success, metrics.step_scale) == (0, 0, 0)
    assert all(p.isfinite().all() for p in critic.parameters())


@pytest.mark.parametrize("minibatch", [0, 7])
def test_the_critic_learns_the_targets(minibatch: int) -> None:
    """Targets are a linear function of the state; the error falls by more than half."""
    updated, actor, critic = learner(critic_minibatch_size=minibatch, critic_learning_rate=0.01)
    batch = rollout(actor, critic, 64)
    batch = replace(batch, rewards=batch.observations.sum(-1))
    first = updated.update(batch, remaining=1.0)
    for _ in range(5):
        last = updated.update(batch, remaining=1.0)
    assert last.critic_loss < first.critic_loss / 2


def test_categories_work_too() -> None:
    updated, actor, _ = learner(EnvSpec(3, Categories(4, 0)))
    continuous = rollout(*learner()[1:], 64)
    noise = torch.from_numpy(np.random.default_rng(0).gumbel(size=(64, 1, 4)))
    with torch.no_grad():
        policy = actor(continuous.observations)
        actions = policy.act(noise)
        batch = replace(continuous, actions=actions, log_probs=policy.log_prob(actions))
    metrics = updated.update(batch, remaining=1.0)
    assert metrics.line_search_success == 1
    assert metrics.kl_nats <= 0.01
