"""Rollouts as one program against the same rollouts step by step. It needs a C++ compiler."""

from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
import torch
from pydantic import ValidationError

from jobs import job, repeatable, trained
from rlbench.errors import InputError, RunFailed
from rlbench.records import EpisodeRow, read_facts
from rlbench.spec.job import VectorMode
from rlbench.training.envs.native import NATIVE
from rlbench.training.envs.spaces import Continuous
from rlbench.training.fused import FusedCollector
from rlbench.training.rollout import Rollout
from rlbench.training.session import opened
from test_native import STATES, random_actions

SETTINGS: dict[str, dict[str, Any]] = {
    "Pendulum-v1": {
        "observation_norm": "running",
        "reward_norm": "returns",
        "action_bounds": "rescale",
        "noise_colour": 0.5,
    },
    "CartPole-v1": {"observation_norm": "running"},
    "MountainCarContinuous-v0": {"action_std": "state", "action_mean": "bounded"},
    "Acrobot-v1": {"activation": "relu"},
}
each = pytest.mark.parametrize("environment", sorted(NATIVE))


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def played(
    environment: str, mode: VectorMode
) -> tuple[list[tuple[Rollout, list[EpisodeRow]]], Any, int]:
    """Rollouts of 4 environments: whole ones, one ended by episodes, one by the budget."""
    settings = SETTINGS[environment]
    run = job("ppo", settings, environment=environment, vector_mode=mode, num_envs=4, seed=3)
    run = run.model_copy(update={"batch_size": 4 * 350})
    with opened(run) as session:
        session.collector.tally.env_steps = 40  # as after a rollout before
        parts = [(350, None), (350, None), (350, 2), (70, None)]
        got = [session.collector.collect(*part, session.stopwatch) for part in parts]
        return got, session.collector.scales, session.collector.tally.env_steps


@each
def test_a_program_plays_what_is_played_step_by_step(environment: str) -> None:
    """The same shapes, numbers up to rounding, episodes, scales, and count of steps."""
    (fused, scales, steps), (native, expected_scales, expected_steps) = (
        played(environment, mode) for mode in ("fused", "native")
    )
    for (rollout, episodes), (expected, expected_episodes) in zip(fused, native, strict=True):
        for column in fields(Rollout):
            got, wanted = getattr(rollout, column.name), getattr(expected, column.name)
            assert got.dtype == wanted.dtype
            torch.testing.assert_close(got, wanted, atol=2e-4, rtol=1e-4)
        assert [(r.env, r.env_steps, r.length) for r in episodes] == [
            (r.env, r.env_steps, r.length) for r in expected_episodes
        ]
        assert [r.episode_return for r in episodes] == pytest.approx(
            [r.episode_return for r in expected_episodes], rel=1e-5
        )
    assert len(native[2][1]) == 2, "no rollout ended by episodes: its end was not compared"
    assert steps == expected_steps
    for name in ("observations", "returns"):
        seen, wanted_seen = getattr(scales, name), getattr(expected_scales, name)
        assert (seen is None) == (wanted_seen is None)
        if seen is not None:
            assert seen.count == wanted_seen.count
            np.testing.assert_allclose(seen.mean, wanted_seen.mean, rtol=1e-4, atol=1e-5)
            np.testing.assert_allclose(seen.squares, wanted_seen.squares, rtol=1e-4)


@each
def test_compiled_equations_are_the_equations(environment: str) -> None:
    """3,000 states and actions of the whole space: equal up to rounding in float64."""
    dynamics, (low, high) = NATIVE[environment][1], STATES[environment]
    rng = np.random.default_rng(1)
    width = len(dynamics.starts(rng, 1))
    state = np.zeros((width, 3000))
    state[: len(low)] = rng.uniform(low, high, (3000, len(low))).T
    if environment.startswith("Mountain"):
        state = state.astype(np.float32).astype(np.float64)
    if width > len(low):
        state[-1] = rng.integers(0, 2, 3000)  # fresh or not
    space = gym.make(environment).action_space
    actions = random_actions(environment, 1, 3000)[0]
    if isinstance(space, gym.spaces.Box):
        actions = np.clip(actions, space.low, space.high)

    def step(state: torch.Tensor, actions: torch.Tensor) -> tuple[torch.Tensor, ...]:
        following, rewards, died = dynamics.step(state.numpy(), actions.numpy())
        return tuple(map(torch.as_tensor, (following, rewards, died, dynamics.observe(following))))

    compiled = torch.compile(step, fullgraph=True, dynamic=False)
    got = compiled(torch.tensor(state), torch.tensor(actions))
    for one, other in zip(got, step(torch.tensor(state), torch.tensor(actions)), strict=True):
        torch.testing.assert_close(one.double(), other.double(), atol=1e-6, rtol=1e-6)


def test_two_runs_are_equal_to_the_last_bit(tmp_path: Path) -> None:
    which = job("trpo", vector_mode="fused", num_envs=3)
    for name in ("one", "other"):
        trained(which, tmp_path / name)
    one, other = repeatable(tmp_path / "one"), repeatable(tmp_path / "other")
    for name, rows in one.items():
        assert rows.equals(other[name]), name
    facts = read_facts(tmp_path / "one")
    assert (facts.vector_mode, facts.compiled) == ("fused", True)
    assert facts.compile_s > 0
    assert facts.actual_steps == 600


def test_auto_is_fused_where_gradient_steps_are_compiled() -> None:
    for compile_, mode in (("always", "fused"), ("never", "native")):
        with opened(job(vector_mode="auto", compile=compile_)) as session:
            assert session.envs.mode == mode
            assert isinstance(session.collector, FusedCollector) == (mode == "fused")
    with opened(
        job(vector_mode="auto", compile="always", environment="probes:Dies3-v0")
    ) as session:
        assert session.envs.mode == "sync"


def test_a_number_that_is_not_finite_ends_the_run() -> None:
    with opened(job(vector_mode="fused")) as session:
        collector = session.collector
        assert isinstance(collector, FusedCollector)
        collector._going[0][0, 0] = torch.nan
        with pytest.raises(RunFailed, match="non-finite"):
            collector.collect(100, None, session.stopwatch)


def test_fused_asked_for_and_impossible_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValidationError, match="compile is 'never'"):
        job(vector_mode="fused", compile="never")
    with pytest.raises(ValidationError, match="'sb3-ppo' gathers"):
        job("sb3-ppo", vector_mode="fused")
    with (
        pytest.raises(InputError, match="got 'fused', which 'MountainCar-v0' does not have"),
        opened(job(vector_mode="fused", environment="MountainCar-v0")),
    ):
        pass
    monkeypatch.setattr("rlbench.training.session.why_not_compiled", lambda: "no compiler")
    with (
        pytest.raises(InputError, match="got 'fused', but no compiler"),
        opened(job(vector_mode="fused")),
    ):
        pass


@each
def test_everything_of_a_program_is_on_one_device(environment: str) -> None:
    """Read with all tensors on a device of its own, where one from elsewhere is an error."""
    settings = {"observation_norm": "running", "action_bounds": "rescale"}
    with opened(job("ppo", settings, environment=environment, vector_mode="native")) as session:
        collector = object.__new__(FusedCollector)  # without its program, which needs a real device
        envs, device = session.envs, torch.device("meta")
        collector._envs, collector._native, collector._actor = envs, envs.native, session.actor
        session.actor.to(device)
        action = envs.spec.action
        limits = action.limits if isinstance(action, Continuous) else ()
        collector._limits = [torch.tensor(limit, device=device) for limit in limits]
        state = torch.tensor(envs.native.state, device=device)
        counts = torch.zeros(envs.count, dtype=torch.int64, device=device)
        size = envs.spec.observation_size
        seen = (counts[0].clone(), *(counts.new_zeros(size).double() for _ in range(2)))
        noise = session.actor.noise(1, envs.count, torch.Generator())[0].to(device)
        read = torch.compile(collector._step, backend="eager", fullgraph=True)
        with torch.no_grad():
            following, ended, gained = read(
                (state, counts, counts.double(), *seen), state.unsqueeze(0), counts, noise
            )
    assert {part.device.type for part in (*following, ended, *gained)} == {"meta"}
    assert following[0].shape == state.shape
