"""Other libraries' algorithms as cells of the grid."""

import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from jobs import job, repeatable, trained
from rlbench.errors import InputError
from rlbench.records import read_facts
from rlbench.spec.presets import resolve
from rlbench.training.envs.vector import Environments
from rlbench.training.peers.agent import ForeignAgent
from rlbench.training.peers.vec_env import CountedVecEnv
from rlbench.training.replay import replay
from rlbench.training.session import opened

PEERS = ("sb3-ppo", "sb3-trpo", "sbx-ppo")
SEEDS = [11, 12, 13]
each_peer = pytest.mark.parametrize("algorithm", PEERS)
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")  # at their import


def model_of(session: Any) -> Any:
    assert isinstance(session.learner, ForeignAgent)
    return session.learner._model


@each_peer
@pytest.mark.parametrize("environment", ["Pendulum-v1", "CartPole-v1"])
def test_our_networks_are_theirs(algorithm: str, environment: str) -> None:
    """Before and after an update: the same action for each state, by their own `predict`."""
    with opened(job(algorithm, environment=environment)) as session:
        for _ in range(2):
            states = np.random.default_rng(0).normal(
                size=(64, session.envs.spec.observation_size)
            )  # fmt: skip
            seen = torch.tensor(states, dtype=torch.float32)
            with torch.no_grad():
                ours = session.envs.spec.action.to_env(session.actor(seen).mode().numpy())
            theirs, _ = model_of(session).predict(seen.numpy(), deterministic=True)
            np.testing.assert_allclose(ours, theirs, atol=1e-6)
            rollout, _ = session.collector.collect(100, None, session.stopwatch)
            session.learner.update(rollout, remaining=1.0)


@each_peer
def test_a_run_has_the_same_rows_twice_and_can_be_evaluated_again(
    algorithm: str, tmp_path: Path
) -> None:
    """The last batch is shorter than the others: 500 steps in batches of 200."""
    for name in ("one", "two"):
        trained(job(algorithm, total_steps=500), tmp_path / name)
    rows = [repeatable(tmp_path / name) for name in ("one", "two")]
    for one, other in zip(rows[0].values(), rows[1].values(), strict=True):
        assert one.equals(other)
    assert rows[0]["UpdateRow"]["env_steps"].tolist() == [200, 400, 500]
    assert rows[0]["UpdateRow"]["kl_nats"].notna().all()
    assert replay(tmp_path / "one", "last").difference == ""
    facts = read_facts(tmp_path / "one")
    assert facts.vector_mode == "sync"
    assert facts.compiled == (algorithm == "sbx-ppo")


@each_peer
def test_phases_add_up_to_the_work(algorithm: str) -> None:
    with opened(job(algorithm)) as session:
        watch = session.stopwatch
        session.collector.collect(100, None, watch)
        watch.take()
        start = watch.now()
        session.collector.collect(100, None, watch)
        wall_s, seconds = watch.now() - start, watch.take()
    assert 0 < seconds["env"] < wall_s
    assert 0.8 * wall_s < seconds["env"] + seconds["policy"] <= wall_s


def test_compiling_leaves_no_trace() -> None:
    """The first rollout of SBX starts from the seeds, with nothing counted."""
    with opened(job("sbx-ppo")) as session, opened(job("ppo")) as ours:
        assert session.collector.tally.env_steps == 0
        assert model_of(session).num_timesteps == 0
        np.testing.assert_array_equal(model_of(session)._last_obs, ours.envs.reset())
        assert session.compile_s > 0.5


def test_episodes_are_those_of_our_environments() -> None:
    """A pole that falls and one that is cut off: final observations, and which of them is which."""
    with (
        Environments("CartPole-v1", "sync", SEEDS) as one,
        Environments("CartPole-v1", "sync", SEEDS) as other,
    ):
        theirs = CountedVecEnv(other, reward_scale=0.5)
        np.testing.assert_array_equal(theirs.reset(), one.reset())
        drawn = np.random.default_rng(0)
        ends = 0
        for _ in range(100):
            actions = drawn.integers(0, 2, size=3)
            step = one.step(actions)
            observations, rewards, done, infos = theirs.step(actions)
            np.testing.assert_array_equal(observations, step.observations)
            np.testing.assert_array_equal(rewards, 0.5 * step.rewards)
            np.testing.assert_array_equal(done, step.ended)
            for i in np.flatnonzero(done):
                final = step.final_observations[list(np.flatnonzero(done)).index(i)]
                np.testing.assert_array_equal(infos[i]["terminal_observation"], final)
                assert not infos[i]["TimeLimit.truncated"]
                ends += 1
        assert len(theirs.take()[1]) == ends > 3


def test_a_time_limit_is_no_death() -> None:
    with Environments("Pendulum-v1", "sync", SEEDS) as envs:
        theirs = CountedVecEnv(envs, reward_scale=1.0)
        theirs.reset()
        for _ in range(200):
            _, _, done, infos = theirs.step(np.zeros((3, 1), np.float32))
    assert done.all()
    assert all(info["TimeLimit.truncated"] for info in infos)


def test_settings_reach_their_model() -> None:
    few = {
        "learning_rate_schedule": "linear", "actor_learning_rate": 0.01, "clip_range": 0.3,
        "clip_range_schedule": "linear", "epochs": 3, "minibatch_size": 50, "gamma": 0.9,
        "gae_lambda": 0.8, "target_kl": 0.02, "max_grad_norm": 0.7, "critic_coefficient": 0.6,
        "advantage_norm": "none", "activation": "relu", "log_std_init": -1.0,
    }  # fmt: skip
    with opened(job("sb3-ppo", few)) as session:
        model = model_of(session)
        assert (model.lr_schedule(0.5), model.clip_range(0.5)) == (0.005, 0.15)
        assert (model.n_epochs, model.batch_size, model.n_steps) == (3, 50, 100)
        assert (model.gamma, model.gae_lambda, model.target_kl) == (0.9, 0.8, 0.02)
        assert (model.max_grad_norm, model.vf_coef, model.normalize_advantage) == (0.7, 0.6, False)
        assert model.clip_range_vf is None
        assert model.policy.log_std.item() == -1.0
        assert "ReLU" in str(model.policy.mlp_extractor)
    natural = {"damping": 0.2, "max_kl": 0.03, "fisher_share": 0.25, "critic_minibatch_size": 0}
    with opened(job("sb3-trpo", natural)) as session:
        model = model_of(session)
        assert (model.cg_damping, model.target_kl, model.sub_sampling_factor) == (0.2, 0.03, 4)
        assert model.batch_size == 200


@pytest.mark.parametrize(
    ("algorithm", "key", "value"),
    [
        ("sb3-ppo", "action_std", "state"),
        ("sb3-ppo", "noise_colour", 1.0),
        ("sb3-ppo", "optimiser", "separate"),
        ("sbx-ppo", "target_kl", 0.01),
        ("sb3-trpo", "max_kl_schedule", "linear"),
        ("sb3-trpo", "observation_norm", "running"),
    ],
)
def test_what_they_cannot_do_is_refused(algorithm: str, key: str, value: object) -> None:
    with pytest.raises(InputError, match=rf"{key}: got .*"):
        resolve(algorithm, "Pendulum-v1", {key: value}, "test")


def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sb3_contrib", None)
    with (
        pytest.raises(InputError, match=r"'sb3-trpo': .*; pip install 'rlbench\[peers\]'"),
        opened(job("sb3-trpo")),
    ):
        pass
