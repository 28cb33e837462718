import math

import numpy as np
import pytest
import torch
from torch import nn

from rlbench.errors import RunFailed
from rlbench.spec.algorithms import PPO
from rlbench.training.algorithms.learner import minibatches, weighted_mean
from rlbench.training.algorithms.ppo import EagerSteps, PPOLearner
from rlbench.training.algorithms.ppo_loss import clipped_surrogate, standardised_by
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
    up = clipped_surrogate(ratio, torch.ones(3), 0.2)
    down = clipped_surrogate(ratio, -torch.ones(3), 0.2)
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
    objective = torch.minimum(ratio * advantage, ratio.clamp(0.8, 1.2) * advantage).mean()
    loss = -(objective + 0.1 * policy.entropy().sum(-1).mean())
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
    """Minibatches of 3 and 1 with values 1 and 5: (3 + 5) / 4."""
    mean = weighted_mean(
        [torch.tensor([1.0]), torch.tensor([5.0])], [torch.zeros(3), torch.zeros(1)]
    )
    assert mean.tolist() == [2.0]


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
    updated, actor, critic = learner(learning_rate_schedule="linear")
    batch = rollout(actor, critic, 64)
    before = [p.clone() for p in actor.parameters()]
    updated.update(batch, remaining=0.0)
    assert all(torch.equal(a, b) for a, b in zip(before, actor.parameters(), strict=True))
    updated.update(batch, remaining=0.5)
    assert isinstance(updated._steps, EagerSteps)
    assert [g["lr"] for g in updated._steps._optimiser.param_groups] == [1.5e-4, 5e-4]


def test_a_loss_that_is_not_finite_stops_the_run() -> None:
    updated, actor, critic = learner()
    batch = rollout(actor, critic, 64)
    batch.rewards[3] = float("inf")
    with pytest.raises(RunFailed, match=r"PPO's loss or gradient is not finite"):
        updated.update(batch, remaining=1.0)
