"""Against torch.distributions and against derivatives taken by autograd."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch import distributions as peers
from torch.distributions import Independent, kl_divergence

from rlbench.training.distributions import (
    ABSENT,
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    Distribution,
    MultiCategorical,
    stacked,
)

torch.set_default_dtype(torch.float32)


def gaussian(seed: int) -> DiagonalGaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_std = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    return DiagonalGaussian(mean, 0.3 * log_std)


def categorical(seed: int) -> Categorical:
    generator = torch.Generator().manual_seed(seed)
    return Categorical(torch.randn(5, 4, generator=generator, dtype=torch.float64))


def multi_categorical(seed: int) -> MultiCategorical:
    """Three choices, of four, of two and of three categories."""
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(5, 3, 4, generator=generator, dtype=torch.float64)
    logits[:, 1, 2:] = logits[:, 2, 3:] = ABSENT
    return MultiCategorical(logits)


def bernoulli(seed: int) -> Bernoulli:
    generator = torch.Generator().manual_seed(seed)
    return Bernoulli(2 * torch.randn(5, 3, generator=generator, dtype=torch.float64))


MAKERS: list[Callable[[int], Any]] = [gaussian, categorical, multi_categorical, bernoulli]
each_kind = pytest.mark.parametrize("make", MAKERS)


def peer(policy: Distribution) -> Any:
    """The same distribution as torch.distributions has it."""
    match policy:
        case Categorical():
            return peers.Categorical(logits=policy.logits)
        case MultiCategorical():
            return Independent(peers.Categorical(logits=policy.logits), 1)
        case Bernoulli():
            return Independent(peers.Bernoulli(logits=policy.logits), 1)
        case DiagonalGaussian():
            return Independent(peers.Normal(policy.mean, policy.log_std.exp()), 1)
    raise ValueError(policy)


@each_kind
def test_numbers_are_those_of_torch_distributions(make: Callable[[int], Any]) -> None:
    old, new = make(0), make(1)
    torch.manual_seed(0)
    actions = peer(old).sample()
    torch.testing.assert_close(old.log_prob(actions), peer(old).log_prob(actions))
    torch.testing.assert_close(old.entropy(), peer(old).entropy())
    torch.testing.assert_close(old.kl_to(new), kl_divergence(peer(old), peer(new)))
    assert (old.kl_to(old).abs() < 1e-12).all()


@each_kind
def test_fisher_matrix_is_the_curvature_of_kl(make: Callable[[int], Any]) -> None:
    """Hessian of KL(old || new) in the new parameters, at new = old."""
    policy = make(0)
    kind = type(policy)
    first = tuple(parameter[0] for parameter in policy.parameters)

    def kl(*parameters: Tensor) -> Tensor:
        divergence: Tensor = kind(*first).kl_to(kind(*parameters))
        return divergence

    hessian = torch.autograd.functional.hessian(kl, first)
    tangents = tuple(torch.linspace(-1, 1, p.numel(), dtype=p.dtype).view_as(p) for p in first)
    got = kind(*first).fisher_product(tangents)
    for row, product in zip(hessian, got, strict=True):
        expected = sum(
            torch.tensordot(block, tangent, tangent.ndim)
            for block, tangent in zip(row, tangents, strict=True)
        )
        torch.testing.assert_close(product, expected)


@each_kind
def test_steps_are_stacked_into_one_distribution(make: Callable[[int], Any]) -> None:
    steps = [make(0), make(1)]
    both = stacked(steps)
    actions = torch.stack([step.mode() for step in steps])
    expected = torch.stack([step.log_prob(step.mode()) for step in steps])
    torch.testing.assert_close(both.log_prob(actions), expected)


@each_kind
def test_a_frozen_copy_has_no_gradient_and_does_not_follow(make: Callable[[int], Any]) -> None:
    moving = type(make(0))(*(p.clone().requires_grad_() for p in make(0).parameters))
    frozen = moving.frozen()
    with torch.no_grad():
        for parameter in moving.parameters:
            parameter.fill_(0.0)
    for parameter, start in zip(frozen.parameters, make(0).parameters, strict=True):
        assert not parameter.requires_grad
        assert torch.equal(parameter, start)


def test_gaussian_actions_have_the_moments() -> None:
    policy = DiagonalGaussian(torch.tensor([[1.0, -2.0]]), torch.tensor([[0.0, -1.0]]))
    noise = torch.randn(200_000, 2, generator=torch.Generator().manual_seed(0))
    actions = policy.act(noise)
    torch.testing.assert_close(actions.mean(0), torch.tensor([1.0, -2.0]), atol=0.01, rtol=0)
    torch.testing.assert_close(actions.std(0), torch.tensor([1.0, 0.3679]), atol=0.01, rtol=0)


def test_gumbel_noise_draws_the_probabilities() -> None:
    policy = Categorical(torch.tensor([0.5, 0.3, 0.2]).log())
    uniform = torch.rand(200_000, 3, generator=torch.Generator().manual_seed(0))
    share = policy.act(-(-uniform.log()).log()).bincount() / 200_000
    torch.testing.assert_close(share, torch.tensor([0.5, 0.3, 0.2]), atol=0.005, rtol=0)


def test_each_choice_is_drawn_with_its_own_probabilities() -> None:
    """Three categories and two: the third of the second choice is not there."""
    p = torch.tensor([[0.5, 0.3, 0.2], [0.9, 0.1, 0.0]])
    policy = MultiCategorical(p.log().clamp(min=ABSENT))
    uniform = torch.rand(200_000, 2, 3, generator=torch.Generator().manual_seed(0))
    actions = policy.act(-(-uniform.log()).log())
    for choice, expected in zip(actions.T, p, strict=True):
        share = choice.bincount(minlength=3) / 200_000
        torch.testing.assert_close(share, expected, atol=0.005, rtol=0)
    together = ((actions[:, 0] == 0) & (actions[:, 1] == 1)).float().mean().item()
    assert together == pytest.approx(0.5 * 0.1, abs=0.005)


def test_logistic_noise_draws_the_probabilities() -> None:
    p = torch.tensor([0.9, 0.5, 0.2])
    uniform = torch.rand(200_000, 3, generator=torch.Generator().manual_seed(0))
    actions = Bernoulli(p.logit()).act(uniform.logit())
    assert set(actions.unique().tolist()) == {0, 1}
    torch.testing.assert_close(actions.mean(0), p, atol=0.005, rtol=0)


def test_a_policy_that_is_almost_sure_keeps_its_last_digits() -> None:
    """At logit 20, q = e^-20 to 2e-9 of it: -log p = q, and H = q (1 + 20); in float32."""
    q = 2.0611536e-9
    sure, draw = Bernoulli(torch.tensor([[20.0]])), torch.ones(1, 1)
    assert sure.log_prob(draw).item() == pytest.approx(-q, rel=1e-5)
    assert sure.entropy().item() == pytest.approx(21 * q, rel=1e-5)
    assert sure.log_prob(1 - draw).item() == pytest.approx(-20, rel=1e-5)
    assert sure.fisher_product((draw,))[0].item() == pytest.approx(q, rel=1e-5)


@each_kind
def test_the_mode_is_the_most_probable_action(make: Callable[[int], Any]) -> None:
    policy = make(0)
    best = policy.log_prob(policy.mode())
    for seed in range(20):
        generator = torch.Generator().manual_seed(seed)
        noise = torch.randn(policy.parameters[0].shape, generator=generator)
        assert (policy.log_prob(policy.act(noise)) <= best).all()
