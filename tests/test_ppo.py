import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from rlbench.errors import RunFailed
from rlbench.spec.algorithms import PPO
from rlbench.training.algorithms.loss import ActorCriticLoss, standardised_by
from rlbench.training.algorithms.ppo import PPOLearner, clipped_surrogate, objective
from rlbench.training.algorithms.steps import Descent, EagerSteps, Mean, Plan, minibatches
from rlbench.training.envs.spaces import Continuous, EnvSpec
from rlbench.training.policy import Actor, Critic, GaussianActor, make_actor_critic
from rlbench.training.rollout import Rollout

SPEC = EnvSpec(3, Continuous((1,), np.array([-2.0]), np.array([2.0]), np.dtype("f4")))
CPU = torch.device("cpu")


def learner(**settings: object) -> tuple[PPOLearner, GaussianActor, Critic]:
    chosen = PPO.model_validate({"hidden_sizes": (8,)} | settings)
    actor, critic = make_actor_critic(SPEC, chosen, torch.Generator().manual_seed(0), CPU)
    assert isinstance(actor, GaussianActor)
    return PPOLearner(chosen, (actor, critic), torch.Generator().manual_seed(1)), actor, critic


def rollout(actor: Actor, critic: Critic, steps: int, num_envs: int = 1) -> Rollout:
    """Random experience under the actor; reward is the action, every step an episode."""
    torch.manual_seed(2)
    with torch.no_grad():
        observations = torch.randn(steps, num_envs, 3)
        policy = actor(observations)
        actions = policy.act(torch.randn(steps, num_envs, 1))
        return Rollout(
            observations=observations,
            actions=actions,
            log_probs=policy.log_prob(actions),
            rewards=actions.squeeze(-1),
            values=critic(observations),
            next_values=torch.zeros(steps, num_envs),
            ended=torch.ones(steps, num_envs, dtype=torch.bool),
        )


def test_the_clipped_surrogate_by_hand() -> None:
    """Ratios 0.5, 1, 1.5 and eps 0.2. A = 1: min(.5, .8), 1, min(1.5, 1.2); A = -1: the reverse."""
    ratio = torch.tensor([0.5, 1.0, 1.5])
    up = clipped_surrogate(ratio, torch.ones(3), torch.tensor(0.2))
    down = clipped_surrogate(ratio, -torch.ones(3), torch.tensor(0.2))
    torch.testing.assert_close(up, torch.tensor([0.5, 1.0, 1.2]))
    torch.testing.assert_close(down, -torch.tensor([0.8, 1.0, 1.5]))


def test_one_step_is_the_step_of_plain_torch() -> None:
    """One epoch, one minibatch: the textbook loss, clipped, through two Adams of torch's own."""
    updated, actor, critic = learner(epochs=1, minibatch_size=20, entropy_coefficient=0.1)
    _, actor_too, critic_too = learner()
    batch = rollout(actor, critic, 20)
    updated.update(batch, remaining=1.0)

    states, actions = batch.observations[:, 0], batch.actions[:, 0]
    returns = batch.rewards[:, 0]
    raw = returns - batch.values[:, 0]
    advantage = (raw - raw.mean()) / raw.std()
    mean = actor_too(states).mean
    policy = torch.distributions.Normal(mean, actor_too.log_std.exp())
    ratio = (policy.log_prob(actions).sum(-1) - batch.log_probs[:, 0]).exp()
    surrogate = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    loss = -(surrogate + 0.1 * policy.entropy().sum(-1).mean())
    for network, value, rate in (
        (actor_too, loss, 3e-4),
        (critic_too, (critic_too(states) - returns).square().mean(), 1e-3),
    ):
        optimiser = torch.optim.Adam(network.parameters(), lr=rate)
        value.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 0.5)
        optimiser.step()
    for mine, plain in ((actor, actor_too), (critic, critic_too)):
        for one, other in zip(mine.parameters(), plain.parameters(), strict=True):
            torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-5)


def test_a_shared_optimiser_has_one_step_size_and_one_limit() -> None:
    """One minibatch: the sum of the losses, the critic's halved, through one Adam of torch's own.

    Gradients are far above the limit, so that clipping them apart would give other steps.
    """
    settings = {"optimiser": "shared", "max_grad_norm": 1e-3, "actor_learning_rate": 0.01}
    updated, actor, critic = learner(epochs=1, minibatch_size=20, **settings)
    _, actor_too, critic_too = learner()
    batch = rollout(actor, critic, 20)
    updated.update(batch, remaining=1.0)

    states, returns = batch.observations[:, 0], batch.rewards[:, 0]
    raw = returns - batch.values[:, 0]
    policy = torch.distributions.Normal(actor_too(states).mean, actor_too.log_std.exp())
    ratio = (policy.log_prob(batch.actions[:, 0]).sum(-1) - batch.log_probs[:, 0]).exp()
    surrogate = (ratio * (raw - raw.mean()) / raw.std()).mean()  # at ratio 1 nothing is clipped
    loss = 0.5 * (critic_too(states) - returns).square().mean() - surrogate
    weights = [*actor_too.parameters(), *critic_too.parameters()]
    optimiser = torch.optim.Adam(weights, lr=0.01)
    loss.backward()
    nn.utils.clip_grad_norm_(weights, 1e-3)
    optimiser.step()
    for one, other in zip([*actor.parameters(), *critic.parameters()], weights, strict=True):
        torch.testing.assert_close(one, other, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize(
    ("limit", "expected"), [(0.0, [4.0, 0.25, 1.0]), (0.5, [6.25, 0.25, 2.25])]
)
def test_the_clipped_error_of_values_by_hand(limit: float, expected: list[float]) -> None:
    """Old values 0, targets 3, 0.75, -2; values 1, 0.25, -1; a move beyond 0.5 counts as 0.5.

    Clipped values 0.5, 0.25, -0.5 have errors 6.25, 0.25, 2.25; the worse of the two counts.
    """
    loss = ActorCriticLoss(PPO(value_clip_range=limit), objective)
    values, targets = torch.tensor([1.0, 0.25, -1.0]), torch.tensor([3.0, 0.75, -2.0])
    assert loss._squared_error(values, targets, torch.zeros(3)).tolist() == expected


def test_a_linear_clip_range_shrinks_with_the_budget() -> None:
    """With a quarter of the budget left, a range of 0.4 is one of 0.1."""
    steps: dict[str, object] = {"epochs": 3, "minibatch_size": 32, "actor_learning_rate": 0.01}
    scheduled, actor, critic = learner(clip_range=0.4, clip_range_schedule="linear", **steps)
    constant, _, _ = learner(clip_range=0.1, **steps)
    batch = rollout(actor, critic, 64)
    one, other = (x.update(batch, remaining=0.25) for x in (scheduled, constant))
    assert one == other
    assert one.clip_fraction > 0


def test_the_kl_limit_ends_an_update_before_the_step_that_is_too_far() -> None:
    """Minibatches are whole batches, so that the estimate is that of the policy so far."""
    far = {"epochs": 50, "minibatch_size": 64, "actor_learning_rate": 0.01}
    limited, actor, critic = learner(target_kl=0.01, **far)
    batch = rollout(actor, critic, 64)
    metrics = limited.update(batch, remaining=1.0)
    steps = round(metrics.steps_taken * 50)
    assert 1 < steps < 50
    free, actor_too, _ = learner(**far | {"epochs": steps})
    free.update(batch, remaining=1.0)
    for one, other in zip(actor.parameters(), actor_too.parameters(), strict=True):
        assert torch.equal(one, other)
    with torch.no_grad():
        log_ratio = actor(batch.observations).log_prob(batch.actions) - batch.log_probs
        assert (log_ratio.exp() - 1 - log_ratio).mean() > 1.5 * 0.01


@pytest.mark.parametrize(("steps", "minibatch"), [(65, 64), (1, 1), (10, 3)])
@pytest.mark.parametrize("norm", ["batch", "minibatch", "none"])
def test_a_last_minibatch_of_one_is_harmless(steps: int, minibatch: int, norm: str) -> None:
    """Public bug: 65 samples in minibatches of 64 gave NaN weights."""
    updated, actor, critic = learner(minibatch_size=minibatch, advantage_norm=norm)
    metrics = updated.update(rollout(actor, critic, steps), remaining=1.0)
    assert all(p.isfinite().all() for p in [*actor.parameters(), *critic.parameters()])
    assert math.isfinite(metrics.surrogate)


def test_a_minibatch_is_standardised_and_one_sample_is_left_alone() -> None:
    """Values 1 and 3: mean 2, deviation 1."""
    pair = standardised_by(torch.mean, torch.tensor([1.0, 3.0]))
    torch.testing.assert_close(pair, torch.tensor([-1.0, 1.0]))
    assert standardised_by(torch.mean, torch.tensor([5.0])).tolist() == [5.0]


def test_every_sample_is_used_once_per_epoch() -> None:
    parts = minibatches(10, 4, 3, torch.Generator().manual_seed(0))
    assert [len(part) for part in parts] == [4, 4, 2] * 3
    for epoch in range(3):
        assert sorted(torch.cat(parts[3 * epoch : 3 * epoch + 3]).tolist()) == list(range(10))
    assert parts[0].tolist() != parts[3].tolist()


def test_means_over_minibatches_weigh_by_size() -> None:
    """Minibatches of 3 and 1 whose loss reports 1 and 5: (3 + 5) / 4; step size 0."""
    network = nn.Linear(1, 1)

    def loss(
        outputs: Sequence[Any], sample: Sequence[Tensor], coefficient: Tensor, mean: Mean
    ) -> tuple[Tensor, Tensor]:
        return coefficient * outputs[0].mean(), mean(sample[0]).reshape(1)

    columns = torch.zeros(4, 1), torch.tensor([1.0, 1.0, 1.0, 5.0])
    plan = Plan([torch.arange(3), torch.tensor([3])], (0.0,))
    taken = EagerSteps(Descent((network,), loss, reported=1)).take(columns, plan)
    assert taken.steps == 2
    assert taken.means[0] == 2.0


def test_the_metrics_are_of_the_step_that_was_taken() -> None:
    updated, actor, critic = learner(actor_learning_rate=0.01)
    batch = rollout(actor, critic, 128)
    states = batch.observations.flatten(0, 1)
    with torch.no_grad():
        before = torch.distributions.Normal(actor(states).mean, actor.log_std.exp())
    metrics = updated.update(batch, remaining=1.0)
    with torch.no_grad():
        after = torch.distributions.Normal(actor(states).mean, actor.log_std.exp())
    expected = torch.distributions.kl_divergence(before, after).sum(-1).mean()
    assert math.isclose(metrics.kl_nats, float(expected), rel_tol=1e-3)
    assert math.isclose(metrics.entropy_nats, float(after.entropy().sum(-1).mean()), rel_tol=1e-5)
    assert 0 < metrics.clip_fraction < 1
    assert metrics.kl_nats > 0
    assert math.isnan(metrics.step_scale)


def test_a_linear_schedule_ends_at_zero() -> None:
    """The first step of Adam moves each weight with a gradient by the step size, and none more."""

    def longest(remaining: float) -> list[float]:
        rates = {"learning_rate_schedule": "linear", "epochs": 1, "minibatch_size": 64}
        updated, actor, critic = learner(**rates)
        before = [parameters_to_vector(network.parameters()) for network in (actor, critic)]
        updated.update(rollout(actor, critic, 64), remaining)
        after = [parameters_to_vector(network.parameters()) for network in (actor, critic)]
        return [float((b - a).detach().abs().max()) for a, b in zip(before, after, strict=True)]

    assert longest(remaining=0.0) == [0.0, 0.0]
    assert longest(remaining=0.5) == pytest.approx([1.5e-4, 5e-4], rel=1e-3)


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    updated, actor, critic = learner()
    batch = rollout(actor, critic, 64)
    batch.rewards[3] = float("inf")
    with pytest.raises(RunFailed, match=r"the loss or its gradient is not finite"):
        updated.update(batch, remaining=1.0)
