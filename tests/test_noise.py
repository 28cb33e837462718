"""Against the closed form of the covariance, and against white noise."""

import numpy as np
import pytest
import torch

from rlbench.training.noise import coloured_noise

T = pytest.mark.parametrize("steps", [1, 2, 3, 8, 15, 64])
BETA = pytest.mark.parametrize("beta", [0.0, 0.5, 1.0, 2.0])


def drawn(shape: tuple[int, int, int], beta: float, seed: int = 0) -> torch.Tensor:
    return coloured_noise(shape, beta, torch.Generator().manual_seed(seed))


def covariance(steps: int, beta: float) -> np.ndarray:
    """Cov(x_t, x_u) [T, T] of the real sum over frequencies f_k of sqrt(S_k) (a cos + b sin)."""
    k = np.arange(steps)
    f = np.maximum(np.minimum(k, steps - k), 1) / steps
    share = f**-beta / (f**-beta).sum()
    lag = np.subtract.outer(k, k)
    result: np.ndarray = (share * np.cos(2 * np.pi * lag[..., None] * k / steps)).sum(-1)
    return result


@T
@BETA
def test_every_step_has_unit_variance_and_the_covariance_of_the_spectrum(
    steps: int, beta: float
) -> None:
    """100,000 draws: a standard error of 0.0045 in a variance of 1."""
    x = drawn((steps, 50_000, 2), beta).flatten(1)
    expected = torch.tensor(covariance(steps, beta), dtype=torch.float32)
    assert torch.equal(expected.diagonal().round(decimals=5), torch.ones(steps))
    torch.testing.assert_close(x.mean(1), torch.zeros(steps), atol=0.018, rtol=0)
    torch.testing.assert_close(x @ x.T / 100_000, expected, atol=0.025, rtol=0)
    kurtosis = x.pow(4).mean(1)  # 3 for a normal distribution, standard error 0.031
    torch.testing.assert_close(kurtosis, torch.full((steps,), 3.0), atol=0.15, rtol=0)


@BETA
def test_the_slope_of_the_spectrum_is_beta(beta: float) -> None:
    power = torch.fft.rfft(drawn((512, 2000, 1), beta), dim=0).abs().square().mean((1, 2))
    slope = np.polyfit(np.log(np.arange(1, 256)), power[1:256].log().numpy(), 1)[0]
    assert slope == pytest.approx(-beta, abs=0.02)


def test_environments_and_action_numbers_are_independent() -> None:
    x = drawn((4, 3, 2), 2.0)
    many = torch.stack([drawn((4, 3, 2), 2.0, seed).reshape(4, 6) for seed in range(4000)])
    between = torch.einsum("sti,stj->tij", many, many) / len(many)
    torch.testing.assert_close(between, torch.eye(6).expand(4, 6, 6), atol=0.1, rtol=0)
    assert x.shape == (4, 3, 2)
    assert torch.equal(x, drawn((4, 3, 2), 2.0))
    assert not torch.equal(x, drawn((4, 3, 2), 2.0, seed=1))


def test_white_noise_is_that_of_pytorch_bit_for_bit() -> None:
    expected = torch.randn(7, 3, 2, generator=torch.Generator().manual_seed(4))
    assert torch.equal(drawn((7, 3, 2), 0.0, seed=4), expected)
