import math

import numpy as np
import pytest
import torch

from rlbench.spec.algorithms import PPO
from rlbench.training.envs.spaces import Categories, Continuous, EnvSpec
from rlbench.training.policy import GaussianActor, make_actor_critic

BOX = EnvSpec(3, Continuous((2,), np.array([-1.0, -np.inf]), np.array([3.0, 1.0]), np.dtype("f4")))
DISCRETE = EnvSpec(3, Categories(4, 0))


def networks(spec: EnvSpec, seed: int = 0, **settings: object):  # type: ignore[no-untyped-def]
    generator = torch.Generator().manual_seed(seed)
    return make_actor_critic(spec, PPO.model_validate(settings), generator, torch.device("cpu"))


@pytest.mark.parametrize("spec", [BOX, DISCRETE])
def test_one_state_and_many_give_the_same_numbers(spec: EnvSpec) -> None:
    actor, critic = networks(spec)
    states = torch.randn(7, 3)
    for one, many in zip(actor(states[2]).parameters, actor(states).parameters, strict=True):
        torch.testing.assert_close(one, many[2])
    torch.testing.assert_close(critic(states[2]), critic(states)[2])
    assert critic(states).shape == (7,)


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


@pytest.mark.parametrize("kind", ["global", "state"])
def test_the_initial_deviation_is_the_one_asked_for(kind: str) -> None:
    actor, _ = networks(BOX, action_std=kind, log_std_init=-0.7)
    log_std = actor(torch.randn(50, 3)).log_std
    torch.testing.assert_close(log_std, torch.full((50, 2), -0.7), atol=0.1, rtol=0)
