import numpy as np
import pytest
import torch

import probes  # noqa: F401 (registers the environments)
from rlbench.spec.algorithms import PPO
from rlbench.spec.job import VectorMode
from rlbench.training.advantages import advantages
from rlbench.training.envs.vector import Environments
from rlbench.training.policy import Actor, Critic, make_actor_critic
from rlbench.training.rollout import Collector
from rlbench.training.stopwatch import Stopwatch

CPU = torch.device("cpu")


def opened(envs: Environments, **hyperparameters: object) -> tuple[Collector, Actor, Critic]:
    generator = torch.Generator().manual_seed(0)
    settings = PPO.model_validate(hyperparameters)
    actor, critic = make_actor_critic(envs.spec, settings, generator, CPU)
    return Collector(envs, (actor, critic), generator, settings), actor, critic


def knows(critic: Critic, value: float) -> None:
    """Make the critic say the same value everywhere."""
    for parameter in critic.parameters():
        torch.nn.init.zeros_(parameter)
    last = critic.body[-1]
    torch.nn.init.constant_(last.get_parameter("bias"), value)


@pytest.mark.parametrize("reward_scale", [1.0, 0.25])
def test_a_time_limit_is_not_a_death(reward_scale: float) -> None:
    """A critic that knows V = 1 / (1 - gamma) has nothing to learn, across time limits too."""
    gamma = 0.9
    with Environments("probes:Inf50-v0", "sync", [1, 2, 3]) as envs:
        collector, _, critic = opened(envs, reward_scale=reward_scale)
        knows(critic, reward_scale / (1 - gamma))
        rollout, _ = collector.collect(120, None, Stopwatch(CPU))
    assert rollout.ended.sum() == 3 * 2
    got = advantages(rollout, gamma, 0.95)
    torch.testing.assert_close(got, torch.zeros(120, 3), atol=1e-5, rtol=0)


def test_nothing_is_expected_after_a_death() -> None:
    """Reward 1, death at step 3, V = 8, gamma 1/2: deltas 1 + 4 - 8, 1 + 4 - 8, 1 + 0 - 8."""
    with Environments("probes:Dies3-v0", "sync", [1]) as envs:
        collector, _, critic = opened(envs)
        knows(critic, 8.0)
        rollout, _ = collector.collect(6, None, Stopwatch(CPU))
    assert advantages(rollout, 0.5, 0.0).flatten().tolist() == [-3, -3, -7] * 2


def test_the_value_of_the_true_final_observation_is_used() -> None:
    """The critic says the observation: 0, 1, 2 in an episode and 3 at its end."""
    with Environments("probes:Fixed3-v0", "sync", [1]) as envs:
        collector, _, critic = opened(envs)
        critic.body = torch.nn.Sequential(torch.nn.Identity())
        rollout, _ = collector.collect(5, None, Stopwatch(CPU))
    assert rollout.values.flatten().tolist() == [0, 1, 2, 0, 1]
    assert rollout.next_values.flatten().tolist() == [1, 2, 3, 1, 2]


def test_only_real_transitions_and_whole_episodes_are_counted() -> None:
    """Public bug: a dummy transition per episode, returns of 4 or 2 instead of 3."""
    with Environments("probes:Fixed3-v0", "sync", [1, 2]) as envs:
        collector, _, _ = opened(envs)
        rollout, rows = collector.collect(12, None, Stopwatch(CPU))
    assert rollout.size == collector.tally.env_steps == 24
    assert [(r.episode_return, r.length, r.env) for r in rows] == [(3, 3, 0), (3, 3, 1)] * 4
    assert [r.env_steps for r in rows] == [6, 6, 12, 12, 18, 18, 24, 24]


def test_an_episode_goes_on_across_rollouts_and_its_return_stays_raw() -> None:
    with Environments("probes:Fixed3-v0", "sync", [1]) as envs:
        collector, _, _ = opened(envs, reward_scale=0.1)
        _, none = collector.collect(2, None, Stopwatch(CPU))
        rollout, one = collector.collect(2, None, Stopwatch(CPU))
    assert none == []
    assert [(r.episode_return, r.length) for r in one] == [(3, 3)]
    torch.testing.assert_close(rollout.rewards, torch.full((2, 1), 0.1))


def test_an_episode_budget_keeps_exactly_so_many() -> None:
    """Three environments end in the same step; the budget is four episodes."""
    with Environments("probes:Fixed3-v0", "sync", [1, 2, 3]) as envs:
        collector, _, _ = opened(envs)
        rollout, rows = collector.collect(100, 4, Stopwatch(CPU))
    assert len(rows) == collector.tally.episodes == 4
    assert len(rollout.rewards) == 6


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_log_probabilities_are_those_of_the_raw_actions(mode: VectorMode) -> None:
    """Public bug: the clipped action was stored, with the density of another one."""
    with Environments("Pendulum-v1", mode, [1, 2]) as envs:
        collector, actor, _ = opened(envs, log_std_init=1.0)
        rollout, _ = collector.collect(200, None, Stopwatch(CPU))
    assert (rollout.actions.abs() > 2).any()
    with torch.no_grad():
        again = actor(rollout.observations).log_prob(rollout.actions)
    torch.testing.assert_close(rollout.log_probs, again, atol=1e-6, rtol=1e-6)


def test_observations_follow_each_other() -> None:
    """Pendulum's own equations, from one stored state and action to the next state."""
    with Environments("Pendulum-v1", "sync", [3]) as envs:
        collector, _, _ = opened(envs)
        rollout, _ = collector.collect(150, None, Stopwatch(CPU))
    cosine, sine, speed = rollout.observations[:, 0].double().numpy().T
    torque = np.clip(rollout.actions[:, 0, 0].double().numpy(), -2, 2)
    expected = np.clip(speed + (15 * sine + 3 * torque) * 0.05, -8, 8)
    np.testing.assert_allclose(speed[1:], expected[:-1], atol=1e-5)
    angle = np.arctan2(sine, cosine)
    cost = angle**2 + 0.1 * speed**2 + 0.001 * torque**2
    np.testing.assert_allclose(rollout.rewards[:, 0], -cost, atol=1e-4)


def test_discrete_actions_arrive_with_their_offset() -> None:
    with Environments("probes:Bandit-v0", "sync", [1, 2]) as envs:
        collector, _, _ = opened(envs)
        rollout, _ = collector.collect(50, None, Stopwatch(CPU))
    assert set(rollout.actions.flatten().tolist()) == {0, 1, 2}
    torch.testing.assert_close(rollout.rewards, (rollout.actions == 2).float())
