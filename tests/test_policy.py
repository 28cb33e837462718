import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import torch

from rlbench.errors import InputError
from rlbench.spec.algorithms import PPO
from rlbench.training.algorithms.learner import example_batch
from rlbench.training.envs.spaces import Bits, Categories, Continuous, EnvSpec, MultiCategories
from rlbench.training.policy import GaussianActor, make_actor_critic

PLAIN = Continuous((2,), np.array([-1.0, -np.inf]), np.array([3.0, 1.0]), np.dtype("f4"))
BOX = EnvSpec(3, PLAIN)
DISCRETE = EnvSpec(3, Categories(4, 0))
MULTI = EnvSpec(3, MultiCategories((3,), (2, 4, 3), np.zeros(3, np.int64)))
BINARY = EnvSpec(3, Bits((2, 2)))
CPU = torch.device("cpu")
KINDS: dict[str, tuple[EnvSpec, dict[str, Any]]] = {
    "gaussian": (BOX, {}),
    "gaussian-state": (BOX, {"action_std": "state"}),
    "categorical": (DISCRETE, {}),
    "multi-categorical": (MULTI, {}),
    "bernoulli": (BINARY, {}),
}
each_kind = pytest.mark.parametrize("kind", sorted(KINDS))


def networks(spec: EnvSpec, seed: int = 0, **settings: object):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(seed)
    return make_actor_critic(spec, PPO.model_validate(settings), generator, CPU)


@each_kind
def test_one_state_and_many_give_the_same_numbers(kind: str) -> None:
    """Observations [O], [N, O] and [T, N, O]."""
    spec, settings = KINDS[kind]
    actor, critic = networks(spec, **settings)
    noise = actor.noise(5, 7, torch.Generator().manual_seed(1))
    states = torch.randn(5, 7, 3)
    policy, values = actor(states), critic(states)
    actions = policy.act(noise)
    log_probs = policy.log_prob(actions)
    assert values.shape == log_probs.shape == policy.entropy().shape == (5, 7)
    for index in (2, (2, 3)):
        part = actor(states[index])
        for few, many in zip(part.parameters, policy.parameters, strict=True):
            torch.testing.assert_close(few, many[index])
        torch.testing.assert_close(part.act(noise[index]), actions[index])
        torch.testing.assert_close(part.mode(), policy.mode()[index])
        torch.testing.assert_close(part.log_prob(actions[index]), log_probs[index])
        torch.testing.assert_close(critic(states[index]), values[index])


@each_kind
def test_an_example_batch_has_the_types_and_sizes_of_a_real_one(kind: str) -> None:
    spec, settings = KINDS[kind]
    actor, _ = networks(spec, **settings)
    example = example_batch(spec, 35, CPU)
    actions = actor(example.observations).act(actor.noise(1, 35, torch.Generator())[0])
    assert example.actions.shape == actions.shape
    assert example.actions.dtype == actions.dtype
    addresses = {column.data_ptr() for column in example.columns}
    assert len(addresses) == len(example.columns)


def test_categories_that_are_not_there_are_never_chosen() -> None:
    """Two, four and three categories; the network has 9 outputs, all equal to the bias here."""
    actor, _ = networks(MULTI)
    policy = actor(torch.zeros(1, 3))
    actions = policy.act(actor.noise(5000, 1, torch.Generator().manual_seed(0)))[:, 0]
    for choice, count in zip(actions.T, (2, 4, 3), strict=True):
        share = choice.bincount() / 5000
        torch.testing.assert_close(share, torch.full((count,), 1 / count), atol=0.03, rtol=0)
    entropy = math.log(2) + math.log(4) + math.log(3)
    assert policy.entropy().item() == pytest.approx(entropy, rel=1e-6)
    assert actor.body[-1].out_features == 9


def test_bits_are_fair_at_the_start() -> None:
    actor, _ = networks(BINARY)
    noise = actor.noise(5000, 1, torch.Generator().manual_seed(0))
    share = actor(torch.zeros(1, 3)).act(noise).mean((0, 1))
    torch.testing.assert_close(share, torch.full((4,), 0.5), atol=0.03, rtol=0)


@pytest.mark.parametrize("spec", [DISCRETE, MULTI, BINARY])
def test_a_colour_is_refused_where_noise_is_not_gaussian(spec: EnvSpec) -> None:
    with pytest.raises(InputError, match=r"noise_colour: got 0\.5, but .* allowed here: 0\."):
        networks(spec, noise_colour=0.5)


def test_a_colour_reaches_the_noise() -> None:
    """Neighbouring steps: correlation 0 if white; of red noise over 100 steps, above 0.9."""
    for colour, lowest, highest in ((0.0, -0.05, 0.05), (2.0, 0.9, 1.0)):
        actor, _ = networks(BOX, noise_colour=colour)
        x = actor.noise(100, 500, torch.Generator().manual_seed(0))
        assert lowest < (x[1:] * x[:-1]).mean().item() < highest


def test_the_same_stream_gives_the_same_networks_and_another_gives_others() -> None:
    same = [networks(BOX, seed)[0].state_dict() for seed in (1, 1, 2)]
    assert all(torch.equal(same[0][k], same[1][k]) for k in same[0])
    assert not torch.equal(same[0]["body.0.weight"], same[2]["body.0.weight"])


def test_layers_are_orthogonal_with_the_usual_gains() -> None:
    actor, critic = networks(BOX, hidden_sizes=(16, 16))
    for network, gain in ((actor, 0.01), (critic, 1.0)):
        hidden, output = network.body[2].weight, network.body[4].weight
        torch.testing.assert_close(hidden @ hidden.T, 2 * torch.eye(16), atol=1e-5, rtol=0)
        expected = gain**2 * torch.eye(len(output))
        torch.testing.assert_close(output @ output.T, expected, atol=1e-5, rtol=0)
        assert not network.body[2].bias.any()


def test_means_follow_the_bounds() -> None:
    """Dimension 0 is bounded by -1 and 3: centre 1, half range 2. Dimension 1 has one bound."""
    raw = torch.tensor([[0.5, 0.5], [100.0, 100.0]])
    expected = {
        "free": [[0.5, 0.5], [100, 100]],
        "scaled": [[2.0, 0.5], [201, 100]],
        "bounded": [[1 + 2 * math.tanh(0.5), 0.5], [3, 100]],
    }
    for kind, means in expected.items():
        actor, _ = networks(BOX, action_mean=kind)
        assert isinstance(actor, GaussianActor)
        actor.body = torch.nn.Sequential(torch.nn.Identity())
        torch.testing.assert_close(actor(raw).mean, torch.tensor(means))


def test_means_of_a_rescaled_policy_follow_its_own_bounds() -> None:
    """Dimension 0 acts in [-1, 1], whatever the bounds of the space; dimension 1 has one bound."""
    rescaled = EnvSpec(3, dataclasses.replace(PLAIN, rescaled=True))
    raw = torch.tensor([[0.5, 0.5]])
    expected = {"free": [[0.5, 0.5]], "scaled": [[0.5, 0.5]], "bounded": [[math.tanh(0.5), 0.5]]}
    for kind, means in expected.items():
        actor, _ = networks(rescaled, action_mean=kind)
        actor.body = torch.nn.Sequential(torch.nn.Identity())
        torch.testing.assert_close(actor(raw).mean, torch.tensor(means))


@pytest.mark.parametrize("kind", ["global", "state"])
def test_the_initial_deviation_is_the_one_asked_for(kind: str) -> None:
    actor, _ = networks(BOX, action_std=kind, log_std_init=-0.7)
    log_std = actor(torch.randn(50, 3)).log_std
    torch.testing.assert_close(log_std, torch.full((50, 2), -0.7), atol=0.1, rtol=0)
