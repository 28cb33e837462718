"""Running scales against NumPy on the whole stream, and against numbers by hand."""

from pathlib import Path

import numpy as np
import pytest
import torch

import probes  # noqa: F401 (registers the environments)
from jobs import job, trained
from rlbench.records import EpisodeRow, read_rows
from rlbench.spec.algorithms import PPO
from rlbench.training.checkpoint import load_policy
from rlbench.training.envs.vector import Environments
from rlbench.training.evaluate import Evaluator
from rlbench.training.normalise import Moments, discounted_returns, normalised, nothing_seen
from rlbench.training.policy import Actor, Critic, make_actor_critic
from rlbench.training.rollout import Collector
from rlbench.training.session import opened
from rlbench.training.stopwatch import Stopwatch

CPU = torch.device("cpu")


def started(envs: Environments, **hyperparameters: object) -> tuple[Collector, Actor, Critic]:
    settings = PPO.model_validate({"hidden_sizes": (8,), **hyperparameters})
    generator = torch.Generator().manual_seed(0)
    networks = make_actor_critic(envs.spec, settings, generator, CPU)
    return Collector(envs, networks, generator, settings), *networks


def seen_by(collector: Collector) -> Moments:
    moments = collector.scales.observations
    assert moments is not None
    return moments


@pytest.mark.parametrize("sizes", [[1] * 60, [60], [7, 53], [2, 1, 30, 27]])
def test_moments_are_those_of_the_whole_stream_however_it_is_split(sizes: list[int]) -> None:
    """Far from 0, where a sum of squares would lose all digits."""
    stream = np.random.default_rng(0).normal([1e6, -3, 0], [1, 1e-3, 1e3], (60, 3))
    moments = nothing_seen(3)
    for rows in np.split(stream, np.cumsum(sizes)[:-1]):
        moments = moments.updated(rows)
    assert moments.count == 60
    np.testing.assert_allclose(moments.mean, np.mean(stream, 0), rtol=1e-12)
    np.testing.assert_allclose(moments.squares / 60, np.var(stream, 0), rtol=1e-9)


def test_normalised_numbers_have_mean_0_and_deviation_1_and_are_clipped() -> None:
    stream = np.random.default_rng(1).normal([100, -2], [5, 0.1], (1000, 2)).astype(np.float32)
    moments = nothing_seen(2).updated(stream)
    scaled = normalised(stream, moments)
    assert scaled.dtype == np.float32
    np.testing.assert_allclose(scaled.mean(0), [0, 0], atol=1e-4)
    np.testing.assert_allclose(scaled.std(0), [1, 1], rtol=1e-4)
    assert normalised(np.array([[1e6, -1e6]], np.float32), moments).tolist() == [[10, -10]]


def test_before_anything_is_seen_numbers_are_as_they_are() -> None:
    assert normalised(np.array([[3.0, -4.0]], np.float32), nothing_seen(2)).tolist() == [[3, -4]]


def test_a_number_that_never_changes_is_0() -> None:
    constant = np.full((50, 1), 0.1, np.float32)
    assert normalised(constant, nothing_seen(1).updated(constant)) == pytest.approx(0, abs=1e-6)


def test_the_statistic_is_that_of_every_observation_acted_on_over_all_environments() -> None:
    """The same stream is collected raw: with weights of 0 the policy does not see its input."""
    streams = {}
    for norm in ("none", "running"):
        with Environments("Pendulum-v1", "sync", [1, 2, 3]) as envs:
            collector, actor, _ = started(envs, observation_norm=norm)
            torch.nn.init.zeros_(actor.body[-1].get_parameter("weight"))
            parts = [collector.collect(steps, None, Stopwatch(CPU))[0] for steps in (150, 90)]
            streams[norm] = torch.cat([part.observations for part in parts]).double().numpy()
            last = collector
    pooled = streams["none"].reshape(-1, 3)
    moments = seen_by(last)
    assert moments.count == 3 * 240
    np.testing.assert_allclose(moments.mean, pooled.mean(0), rtol=1e-9)
    np.testing.assert_allclose(moments.squares / moments.count, pooled.var(0), rtol=1e-9)
    first = streams["none"][:100].reshape(-1, 3)
    by_hand = (streams["none"][99] - first.mean(0)) / first.std(0)
    np.testing.assert_allclose(streams["running"][99], by_hand, atol=1e-5)


def test_what_is_stored_is_what_acted() -> None:
    with Environments("Pendulum-v1", "sync", [1, 2]) as envs:
        collector, actor, critic = started(envs, observation_norm="running")
        rollout, _ = collector.collect(250, None, Stopwatch(CPU))
    with torch.no_grad():
        again = actor(rollout.observations).log_prob(rollout.actions)
        torch.testing.assert_close(rollout.values, critic(rollout.observations))
    torch.testing.assert_close(rollout.log_probs, again, atol=1e-6, rtol=1e-6)


def test_final_and_last_observations_take_the_scale_of_their_moment_and_are_not_counted() -> None:
    """Fixed3 says 0, 1, 2 and 3 at its time limit; the critic says what it sees.

    After 0, 1, 2 the mean is 1 and the variance 2/3: the final 3 is 2 / sqrt(2/3). After
    0, 1, 2, 0 it is 3/4 and 11/16: the 1 that follows, the last, is (1/4) / sqrt(11/16).
    """
    with Environments("probes:Fixed3-v0", "sync", [1]) as envs:
        collector, _, critic = started(envs, observation_norm="running")
        critic.body = torch.nn.Sequential(torch.nn.Identity())
        rollout, _ = collector.collect(4, None, Stopwatch(CPU))
    assert rollout.next_values[2].item() == pytest.approx(2 / (2 / 3) ** 0.5, rel=1e-5)
    assert rollout.next_values[3].item() == pytest.approx(0.25 / (11 / 16) ** 0.5, rel=1e-5)
    assert (seen_by(collector).count, seen_by(collector).mean.item()) == (4, 0.75)


def test_discounted_returns_by_hand() -> None:
    """Gamma 1/2, 4 carried over: 1 + 2, 1 + 3/2, then the episode ends; 1 alone."""
    ended = np.array([[False], [True], [False]])
    got = discounted_returns(np.ones((3, 1)), ended, 0.5, np.array([4.0]))
    assert got.flatten().tolist() == [3, 2.5, 1]


def test_rewards_are_divided_by_the_deviation_of_the_returns_so_far() -> None:
    """Fixed3, gamma 1/2: returns 1, 3/2, 7/4, over and over, cut where an episode ends.

    The second rollout goes on with the episode that the first has left.
    """
    returns = np.array([1, 1.5, 1.75] * 3)[:8]
    with Environments("probes:Fixed3-v0", "sync", [1, 2]) as envs:
        collector, _, _ = started(envs, reward_norm="returns", gamma=0.5, reward_scale=3.0)
        first, _ = collector.collect(5, None, Stopwatch(CPU))
        second, rows = collector.collect(3, None, Stopwatch(CPU))
    expected = torch.full((5, 2), 3 / returns[:5].std())
    torch.testing.assert_close(first.rewards, expected.float(), rtol=1e-6, atol=0)
    expected = torch.full((3, 2), 3 / returns.std())
    torch.testing.assert_close(second.rewards, expected.float(), rtol=1e-6, atol=0)
    assert [row.episode_return for row in rows] == [3, 3]


def test_a_rare_large_reward_is_clipped() -> None:
    """One step, all returns the same: nothing to divide by."""
    with Environments("probes:Target-v0", "sync", [1]) as envs:
        collector, actor, _ = started(envs, reward_norm="returns", log_std_init=-5)
        torch.nn.init.zeros_(actor.body[-1].get_parameter("weight"))
        rollout, _ = collector.collect(1, None, Stopwatch(CPU))
    assert rollout.rewards.item() == -10


def test_reported_returns_stay_raw(tmp_path: Path) -> None:
    """Public bug: the normalised reward is reported. Each episode of Fixed3 returns 3."""
    which = job(
        environment="probes:Fixed3-v0",
        hyperparameters={"reward_norm": "returns", "observation_norm": "running"},
    )
    log = trained(which, tmp_path).log
    assert {row.episode_return for row in log.evaluations} == {3.0}
    assert set(read_rows(EpisodeRow, tmp_path)["episode_return"]) == {3.0}


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_scales_are_saved_with_the_policy_and_frozen_in_evaluation(
    algorithm: str, tmp_path: Path
) -> None:
    both = {"observation_norm": "running", "reward_norm": "returns"}
    trained(job(algorithm, both), tmp_path)
    with opened(job(algorithm, both)) as session:
        saved = load_policy(tmp_path / "policy.pt", (session.actor, session.critic))
        seen, returns = saved.scales.observations, saved.scales.returns
        assert seen is not None
        assert returns is not None
        assert saved.env_steps == seen.count == returns.count == 600
        before = (seen.count, *seen.mean, *seen.squares)
        with Evaluator(session.job, [5, 6], CPU) as evaluator:
            runs = [evaluator.evaluate(session.actor, seen) for _ in range(2)]
            blind = evaluator.evaluate(session.actor, None)
    assert runs[0] == runs[1] != blind
    assert (seen.count, *seen.mean, *seen.squares) == before
