"""Against numbers worked out by hand, and against a critic that is right by construction."""

import torch
from torch import Tensor

from rlbench.training.advantages import advantages, explained_variance, standardised
from rlbench.training.rollout import Rollout


def rollout(
    rewards: list[list[float]],
    values: Tensor | None = None,
    next_values: Tensor | None = None,
    ended: Tensor | None = None,
) -> Rollout:
    """A rollout of which only what advantages need is filled in; [T, N] each."""
    reward = torch.tensor(rewards)
    zeros = torch.zeros_like(reward)
    return Rollout(
        observations=zeros.unsqueeze(-1),
        actions=zeros,
        log_probs=zeros,
        rewards=reward,
        values=zeros if values is None else values,
        next_values=zeros if next_values is None else next_values,
        ended=zeros.bool() if ended is None else ended,
    )


def test_two_steps_by_hand() -> None:
    """Gamma 1/2, lambda 1, all values 0, bootstrap 4: 1 + 4/2 = 3, and 1 + 3/2 = 2.5."""
    steps = rollout([[1.0], [1.0]], next_values=torch.tensor([[0.0], [4.0]]))
    assert advantages(steps, gamma=0.5, gae_lambda=1.0).flatten().tolist() == [2.5, 3.0]


def test_an_end_cuts_the_recursion_by_hand() -> None:
    """As above, but an episode ends after the first step with a final value of 2: 1 + 2/2 = 2."""
    steps = rollout(
        [[1.0], [1.0]],
        next_values=torch.tensor([[2.0], [4.0]]),
        ended=torch.tensor([[True], [False]]),
    )
    assert advantages(steps, gamma=0.5, gae_lambda=1.0).flatten().tolist() == [2.0, 3.0]


def test_lambda_0_is_the_temporal_difference() -> None:
    torch.manual_seed(0)
    r, v, w = torch.randn(3, 6, 2)
    got = advantages(rollout(r.tolist(), v, w), gamma=0.9, gae_lambda=0.0)
    torch.testing.assert_close(got, r + 0.9 * w - v)


def test_the_sum_of_eq_16() -> None:
    """A_t as the explicit double sum over l of (gamma lambda)^l delta_{t+l}, cut at ends."""
    torch.manual_seed(1)
    r, v, w = torch.randn(3, 7, 3, dtype=torch.float64)
    ended = torch.rand(7, 3) < 0.3
    got = advantages(rollout(r.tolist(), v, w, ended), gamma=0.9, gae_lambda=0.8)
    for t in range(7):
        for n in range(3):
            total, weight = 0.0, 1.0
            for later in range(t, 7):
                total += weight * float(
                    torch.tensor(r.tolist())[later, n] + 0.9 * w[later, n] - v[later, n]
                )
                weight *= 0.9 * 0.8
                if ended[later, n]:
                    break
            assert abs(float(got[t, n]) - total) < 1e-5


def test_standardised_has_mean_0_and_deviation_1() -> None:
    got = standardised(torch.tensor([1.0, 2.0, 6.0]))
    assert abs(float(got.mean())) < 1e-6
    assert abs(float(got.std()) - 1) < 1e-6


def test_a_single_advantage_is_left_alone() -> None:
    """Public bug: a last minibatch of one sample became NaN."""
    assert standardised(torch.tensor([3.0])).tolist() == [3.0]


def test_explained_variance_by_hand() -> None:
    """Targets 0, 2: variance 1. Values 0, 1: errors 0, 1, variance 1/4."""
    targets = torch.tensor([0.0, 2.0])
    assert float(explained_variance(torch.tensor([0.0, 1.0]), targets)) == 0.75
    assert float(explained_variance(targets, targets)) == 1.0
    assert torch.isnan(explained_variance(targets, torch.ones(2)))
