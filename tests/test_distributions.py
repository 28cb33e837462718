"""Against torch.distributions and against derivatives taken by autograd."""

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributions import Categorical as TorchCategorical
from torch.distributions import Independent, Normal, kl_divergence

from rlbench.training.distributions import Categorical, DiagonalGaussian, Distribution

torch.set_default_dtype(torch.float32)


def gaussian(seed: int) -> DiagonalGaussian:
    generator = torch.Generator().manual_seed(seed)
    mean, log_std = torch.randn(2, 5, 3, generator=generator, dtype=torch.float64)
    return DiagonalGaussian(mean, 0.3 * log_std)


def categorical(seed: int) -> Categorical:
    generator = torch.Generator().manual_seed(seed)
    return Categorical(torch.randn(5, 4, generator=generator, dtype=torch.float64))


def peer(policy: DiagonalGaussian | Categorical) -> Any:
    """The same distribution as torch.distributions has it."""
    if isinstance(policy, Categorical):
        return TorchCategorical(logits=policy.logits)
    return Independent(Normal(policy.mean, policy.log_std.exp()), 1)


@pytest.mark.parametrize("make", [gaussian, categorical])
def test_numbers_are_those_of_torch_distributions(make) -> None:  # type: ignore[no-untyped-def]
    old, new = make(0), make(1)
    actions = peer(old).sample()
    torch.testing.assert_close(old.log_prob(actions), peer(old).log_prob(actions))
    torch.testing.assert_close(old.entropy(), peer(old).entropy())
    torch.testing.assert_close(old.kl_to(new), kl_divergence(peer(old), peer(new)))
    assert (old.kl_to(old).abs() < 1e-12).all()


@pytest.mark.parametrize("make", [gaussian, categorical])
def test_fisher_matrix_is_the_curvature_of_kl(make) -> None:  # type: ignore[no-untyped-def]
    """Hessian of KL(old || new) in the new parameters, at new = old."""
    policy: DiagonalGaussian | Categorical = make(0)
    kind = type(policy)
    first = tuple(parameter[0] for parameter in policy.parameters)

    def kl(*parameters: Tensor) -> Tensor:
        return kind(*first).kl_to(kind(*parameters))  # type: ignore[arg-type]

    hessian = torch.autograd.functional.hessian(kl, first)
    tangents = tuple(torch.linspace(-1, 1, len(p), dtype=torch.float64) for p in first)
    got = kind(*first).fisher_product(tangents)
    for row, product in zip(hessian, got, strict=True):
        expected = sum(block @ tangent for block, tangent in zip(row, tangents, strict=True))
        torch.testing.assert_close(product, expected)


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


@pytest.mark.parametrize("policy", [gaussian(0), categorical(0)])
def test_the_mode_is_the_most_probable_action(policy: Distribution) -> None:
    best = policy.log_prob(policy.mode())
    for seed in range(20):
        noise = torch.randn(
            5, policy.parameters[0].shape[1], generator=torch.Generator().manual_seed(seed)
        )
        assert (policy.log_prob(policy.act(noise)) <= best).all()
