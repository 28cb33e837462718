"""Against Stable-Baselines3 and sb3-contrib: the same numbers in, the same numbers out.

Their policies, ours with a copy of their weights, and one made-up rollout for both.
"""

import copy
from dataclasses import dataclass
from functools import partial
from typing import Any

import gymnasium as gym
import pytest
import sb3_contrib
import stable_baselines3
import torch
from sb3_contrib.common.utils import conjugate_gradient_solver
from stable_baselines3.common.buffers import RolloutBuffer
from stable_baselines3.common.distributions import kl_divergence
from stable_baselines3.common.logger import Logger
from stable_baselines3.common.policies import ActorCriticPolicy
from stable_baselines3.common.vec_env import DummyVecEnv
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from rlbench.records import Metrics
from rlbench.spec.algorithms import PPO, TRPO
from rlbench.training.advantages import advantages
from rlbench.training.algorithms import make_learner
from rlbench.training.algorithms.natural_gradient import (
    Product,
    conjugate_gradients,
    fisher_product,
    gradient,
    step_length,
)
from rlbench.training.envs.vector import inspect
from rlbench.training.policy import Actor, Critic, make_actor_critic
from rlbench.training.rollout import Rollout

STEPS, ENVS = 32, 4
GAMMA, LAMBDA = 0.97, 0.9
HIDDEN = (16, 16)
SHARED = {"gamma": GAMMA, "gae_lambda": LAMBDA, "hidden_sizes": HIDDEN, "action_mean": "free"}
ADAM_EPS = 1e-8
each_policy = pytest.mark.parametrize("environment", ["BipedalWalker-v3", "CartPole-v1"])
"""A Gaussian over four numbers, and a categorical policy."""

Networks = tuple[Actor, Critic]


# -- what is ours ------------------------------------------------------------------------------


def our_update(settings: PPO | TRPO, networks: Networks, rollout: Rollout) -> Metrics:
    """One update of our networks."""
    learner = make_learner(settings, networks, torch.Generator().manual_seed(0))
    return learner.update(rollout, remaining=1.0)


def copied(policy: ActorCriticPolicy, environment: str) -> Networks:
    """Our networks with the weights of theirs."""
    spec, _ = inspect(environment, "sync", 1)
    settings = PPO.model_validate(SHARED)
    networks = make_actor_critic(spec, settings, torch.Generator(), torch.device("cpu"))
    for ours, theirs in zip(networks, parts(policy), strict=True):
        for one, other in zip(ours.parameters(), theirs, strict=True):
            one.data.copy_(other.data)
    return networks


# -- what is theirs ----------------------------------------------------------------------------


def made(kind: Any, environment: str, **settings: Any) -> Any:
    """A model of theirs whose networks share nothing."""
    model = kind(
        "MlpPolicy",
        DummyVecEnv([lambda: gym.make(environment)] * ENVS),
        n_steps=STEPS,
        batch_size=STEPS * ENVS,
        gamma=GAMMA,
        gae_lambda=LAMBDA,
        policy_kwargs={
            "net_arch": list(HIDDEN),
            "log_std_init": -0.5,
            "optimizer_kwargs": {"eps": ADAM_EPS},
        },
        seed=0,
        device="cpu",
        **settings,
    )
    model.set_logger(Logger(None, []))
    return model


def parts(policy: ActorCriticPolicy) -> tuple[list[nn.Parameter], list[nn.Parameter]]:
    """The weights of their actor and of their critic, in the order of ours."""
    named = list(policy.named_parameters())
    return [p for n, p in named if "value" not in n], [p for n, p in named if "value" in n]


# -- what both are given -----------------------------------------------------------------------


@dataclass(frozen=True)
class Played:
    """Made-up experience, [T, N] unless said otherwise."""

    observations: Tensor  # [T, N, O]
    actions: Tensor  # [T, N, A] or [T, N]
    log_probs: Tensor  # of a policy somewhat different, so that ratios leave the clip range
    rewards: Tensor
    values: Tensor
    last_values: Tensor  # [N]
    final_values: Tensor  # of the state in which an episode ended, where one did
    terminated: Tensor
    truncated: Tensor

    def rollout(self) -> Rollout:
        """As our collector gives it."""
        following = torch.cat([self.values[1:], self.last_values[None]])
        reached = torch.where(self.truncated, self.final_values, following)
        return Rollout(
            observations=self.observations,
            actions=self.actions,
            log_probs=self.log_probs,
            rewards=self.rewards,
            values=self.values,
            next_values=reached.masked_fill(self.terminated, 0.0),
            ended=self.terminated | self.truncated,
        )

    def fill(self, buffer: RolloutBuffer) -> None:
        """As `OnPolicyAlgorithm.collect_rollouts` gives it, a time limit as part of the reward."""
        ended = self.terminated | self.truncated
        bootstrap = torch.where(self.truncated & ~self.terminated, self.final_values, 0.0)
        rewards = (self.rewards + buffer.gamma * bootstrap).numpy()
        starts = torch.cat([torch.ones(1, ENVS), ended[:-1].float()]).numpy()
        observations, actions = self.observations.numpy(), self.actions.numpy()
        buffer.reset()
        for t in range(STEPS):
            buffer.add(
                observations[t],
                actions[t],
                rewards[t],
                starts[t],
                self.values[t],
                self.log_probs[t],
            )
        buffer.compute_returns_and_advantage(self.last_values, ended[-1].numpy())


@torch.no_grad()
def played(networks: Networks) -> Played:
    """Random states, the actor's actions in them, and random ends of episodes."""
    actor, critic = networks
    generator = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    def happens() -> Tensor:
        return torch.rand(STEPS, ENVS, generator=generator) < 0.25

    observations = normal(STEPS, ENVS, critic.body[0].get_parameter("weight").shape[1])
    policy = actor(observations)
    actions = policy.act(actor.noise(STEPS, ENVS, generator))
    return Played(
        observations=observations,
        actions=actions,
        log_probs=policy.log_prob(actions) + 0.2 * normal(STEPS, ENVS),
        rewards=normal(STEPS, ENVS),
        values=critic(observations) + 0.1 * normal(STEPS, ENVS),
        last_values=normal(ENVS),
        final_values=normal(STEPS, ENVS),
        terminated=happens(),
        truncated=happens(),
    )


def close(ours: Tensor | float, theirs: Tensor | float) -> bool:
    """Whether two results are equal, up to 1e-5 of the largest number in them."""
    one, other = (torch.as_tensor(x).detach().double() for x in (ours, theirs))
    torch.testing.assert_close(one, other, rtol=0, atol=1e-5 * float(other.abs().max()))
    return True


# -- tests -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("gamma", "gae_lambda"), [(0.9, 0.8), (0.99, 0.0), (1.0, 1.0)])
def test_advantages_and_returns_across_deaths_and_time_limits(
    gamma: float, gae_lambda: float
) -> None:
    model = made(stable_baselines3.PPO, "Pendulum-v1")
    experience = played(copied(model.policy, "Pendulum-v1"))
    terminated, truncated = experience.terminated, experience.truncated
    for kind in (terminated & ~truncated, truncated & ~terminated, terminated & truncated):
        assert kind.any()
    assert (terminated | truncated)[-1].any()
    assert not (terminated | truncated)[-1].all()

    buffer = model.rollout_buffer
    buffer.gamma, buffer.gae_lambda = gamma, gae_lambda
    experience.fill(buffer)
    rollout = experience.rollout()
    estimates = advantages(rollout, gamma, gae_lambda)
    assert close(estimates, torch.from_numpy(buffer.advantages))
    assert close(estimates + rollout.values, torch.from_numpy(buffer.returns))


@each_policy
@pytest.mark.parametrize("entropy_coefficient", [0.0, 0.02])
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("epochs", [1, 3])
def test_ppo(environment: str, entropy_coefficient: float, normalised: bool, epochs: int) -> None:
    """Losses, gradients and weights after one or three Adam steps on the whole batch."""
    theirs = made(
        stable_baselines3.PPO,
        environment,
        learning_rate=1e-3,
        n_epochs=epochs,
        vf_coef=1.0,
        ent_coef=entropy_coefficient,
        normalize_advantage=normalised,
        max_grad_norm=1e6,
    )
    networks = copied(theirs.policy, environment)
    experience = played(networks)
    experience.fill(theirs.rollout_buffer)
    theirs.train()
    settings = PPO.model_validate(
        SHARED
        | {
            "actor_learning_rate": 1e-3,
            "critic_learning_rate": 1e-3,
            "epochs": epochs,
            "minibatch_size": STEPS * ENVS,
            "entropy_coefficient": entropy_coefficient,
            "advantage_norm": "batch" if normalised else "none",
            "max_grad_norm": 1e6,
        }
    )
    ours = our_update(settings, networks, experience.rollout())
    logged = theirs.logger.name_to_value
    assert close(ours.surrogate, -logged["train/policy_gradient_loss"])
    assert close(ours.critic_loss, logged["train/value_loss"])
    assert ours.clip_fraction == pytest.approx(logged["train/clip_fraction"], abs=1e-6)
    assert 0.1 < ours.clip_fraction < 0.9
    norms = [ours.actor_grad_norm, ours.critic_grad_norm]
    for network, norm, weights in zip(networks, norms, parts(theirs.policy), strict=True):
        assert close(parameters_to_vector(network.parameters()), parameters_to_vector(weights))
        if epochs == 1:
            gradients = [w.grad for w in weights if w.grad is not None]
            assert close(norm, nn.utils.get_total_norm(gradients))


@each_policy
def test_ppo_clips_the_norm_of_the_gradient(environment: str) -> None:
    """Theirs is one norm for both networks, so their critic is left out of it."""
    limit = 0.01
    theirs = made(
        stable_baselines3.PPO,
        environment,
        learning_rate=1e-3,
        n_epochs=2,
        vf_coef=0.0,
        max_grad_norm=limit,
    )
    networks = copied(theirs.policy, environment)
    experience = played(networks)
    experience.fill(theirs.rollout_buffer)
    theirs.train()
    settings = PPO.model_validate(
        SHARED
        | {
            "actor_learning_rate": 1e-3,
            "epochs": 2,
            "minibatch_size": STEPS * ENVS,
            "max_grad_norm": limit,
        }
    )
    ours = our_update(settings, networks, experience.rollout())
    assert ours.actor_grad_norm > 2 * limit
    actor, _ = parts(theirs.policy)
    assert close(parameters_to_vector(networks[0].parameters()), parameters_to_vector(actor))


@each_policy
def test_ppo_with_one_optimiser_ends_an_update_at_the_same_kl(environment: str) -> None:
    """Their way: one Adam, one gradient norm, half the critic's error, an end at 1.5 target_kl."""
    theirs = made(
        stable_baselines3.PPO,
        environment,
        learning_rate=0.01,
        n_epochs=50,
        vf_coef=0.5,
        max_grad_norm=0.5,
        target_kl=0.03,
    )
    networks = copied(theirs.policy, environment)
    experience = played(networks)
    experience.fill(theirs.rollout_buffer)
    theirs.train()
    settings = PPO.model_validate(
        SHARED
        | {
            "actor_learning_rate": 0.01,
            "epochs": 50,
            "minibatch_size": STEPS * ENVS,
            "optimiser": "shared",
            "target_kl": 0.03,
        }
    )
    ours = our_update(settings, networks, experience.rollout())
    assert 1 < round(ours.steps_taken * 50) == theirs._n_updates - 1 < 50
    for network, weights in zip(networks, parts(theirs.policy), strict=True):
        assert close(parameters_to_vector(network.parameters()), parameters_to_vector(weights))


@dataclass(frozen=True)
class Natural:
    """One policy's gradient and Fisher products, theirs and ours."""

    their_gradient: Tensor  # [P]
    their_product: Product
    our_gradient: Tensor  # [P]
    our_product: Product


def natural(environment: str, damping: float) -> Natural:
    """Gradient of the surrogate and Fisher product, as both libraries make them."""
    model = made(sb3_contrib.TRPO, environment, cg_damping=damping)
    networks = copied(model.policy, environment)
    actor, experience = networks[0], played(networks)
    states, actions = experience.observations.flatten(0, 1), experience.actions.flatten(0, 1)
    old_log_probs, weights = experience.log_probs.flatten(), experience.rewards.flatten()

    with torch.no_grad():
        old = copy.copy(model.policy.get_distribution(states))
    new = model.policy.get_distribution(states)
    objective = ((new.log_prob(actions) - old_log_probs).exp() * weights).mean()
    kl = kl_divergence(new, old).mean(0).sum()
    parameters, their_gradient, kl_gradient, _ = model._compute_actor_grad(kl, objective)

    policy = actor(states)
    surrogate = ((policy.log_prob(actions) - old_log_probs).exp() * weights).mean()
    return Natural(
        their_gradient=their_gradient,
        their_product=partial(model.hessian_vector_product, parameters, kl_gradient),
        our_gradient=gradient(surrogate, actor),
        our_product=fisher_product(policy, actor, damping),
    )


@each_policy
@pytest.mark.parametrize("damping", [0.0, 0.1])
def test_trpo_fisher_products(environment: str, damping: float) -> None:
    both = natural(environment, damping)
    assert close(both.our_gradient, both.their_gradient)
    for seed in range(5):
        size = both.our_gradient.shape
        vector = torch.randn(size, generator=torch.Generator().manual_seed(seed))
        assert close(both.our_product(vector), both.their_product(vector))


@each_policy
def test_trpo_search_direction_and_step(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """They start conjugate gradients from noise of 1e-4, which is made 0 here."""
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    both = natural(environment, 0.1)
    max_kl, iterations = 0.01, 10
    theirs = conjugate_gradient_solver(both.their_product, both.their_gradient, iterations)
    ours = conjugate_gradients(both.our_product, both.our_gradient, iterations, 1e-10)
    assert close(ours.vector, theirs)
    length = step_length(both.our_product, ours.vector, max_kl)
    assert close(length, (2 * max_kl / (theirs @ both.their_product(theirs))).sqrt())


@each_policy
def test_trpo(environment: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A whole update: search direction, line search, and a step of the critic.

    Their KL is a mean over the A numbers of an action, not their sum: their bound and damping are
    given as a share of A.
    """
    monkeypatch.setattr(torch, "randn_like", torch.zeros_like)
    share = {"BipedalWalker-v3": 4, "CartPole-v1": 1}[environment]
    theirs = made(
        sb3_contrib.TRPO,
        environment,
        learning_rate=1e-3,
        n_critic_updates=1,
        cg_max_steps=10,
        cg_damping=0.1 / share,
        target_kl=0.01 / share,
        line_search_shrinking_factor=0.5,
    )
    networks = copied(theirs.policy, environment)
    before = parameters_to_vector(networks[0].parameters()).detach().clone()
    experience = played(networks)
    experience.fill(theirs.rollout_buffer)
    theirs.train()
    settings = TRPO.model_validate(
        SHARED
        | {
            "critic_learning_rate": 1e-3,
            "critic_epochs": 1,
            "cg_iterations": 10,
            "damping": 0.1,
            "max_kl": 0.01,
            "line_search_shrink": 0.5,
        }
    )
    ours = our_update(settings, networks, experience.rollout())
    logged = theirs.logger.name_to_value
    assert ours.line_search_success == logged["train/is_line_search_success"] == 1
    assert close(ours.critic_loss, logged["train/value_loss"])
    for network, weights in zip(networks, parts(theirs.policy), strict=True):
        assert close(parameters_to_vector(network.parameters()), parameters_to_vector(weights))
    assert (parameters_to_vector(networks[0].parameters()) - before).norm() > 0.01
