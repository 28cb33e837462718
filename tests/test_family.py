"""The algorithms between A2C, PPO and TRPO: what each changes, against answers by hand."""

import math

import pytest
import torch

from rlbench.spec.algorithms import PPOKL, TRPO, OnPolicy
from rlbench.spec.registry import ALGORITHMS
from rlbench.training.algorithms import make_learner
from rlbench.training.algorithms.loss import kl_estimate
from rlbench.training.algorithms.natural_gradient import weights_of
from rlbench.training.algorithms.natural_update import NO_STEP, Trial
from rlbench.training.algorithms.npg import full_step
from rlbench.training.algorithms.ppo_kl import PPOKLLearner, adapted, penalised_surrogate
from rlbench.training.algorithms.trpo import TRPOLearner
from rlbench.training.policy import Actor, Critic, make_actor_critic
from test_ppo import CPU, SPEC, rollout

SMALL = {"hidden_sizes": (8,)}


def networks(settings: OnPolicy) -> tuple[Actor, Critic]:
    return make_actor_critic(SPEC, settings, torch.Generator().manual_seed(0), CPU)


def shuffling() -> torch.Generator:
    return torch.Generator().manual_seed(1)


def test_the_penalised_surrogate_by_hand() -> None:
    """Ratio 2, A = 3, beta = 4: 2 x 3 - 4 (2 - 1 - log 2)."""
    found = penalised_surrogate(torch.tensor([2.0]).log(), torch.tensor([3.0]), torch.tensor(4.0))
    torch.testing.assert_close(found, torch.tensor([6 - 4 * (1 - math.log(2))]))


def test_the_estimate_of_the_divergence_has_no_bias() -> None:
    """Samples of N(0, 1), KL(N(0, 1) || N(0.5, 1.2)) in closed form, over a million samples."""
    old, new = torch.distributions.Normal(0.0, 1.0), torch.distributions.Normal(0.5, 1.2)
    samples = torch.randn(1_000_000, generator=torch.Generator().manual_seed(0))
    estimates = kl_estimate(new.log_prob(samples) - old.log_prob(samples))
    exact = torch.distributions.kl_divergence(old, new)
    assert (estimates >= 0).all()
    assert abs(estimates.mean() - exact) < 4 * estimates.std() / 1000


@pytest.mark.parametrize(
    ("kl", "beta"), [(0.0066, 1.0), (0.0067, 2.0), (0.0149, 2.0), (0.0151, 4.0)]
)
def test_the_penalty_follows_the_divergence(kl: float, beta: float) -> None:
    """Target 0.01: halved below 0.00667, doubled above 0.015."""
    assert adapted(2.0, kl, 0.01) == beta


def test_the_penalty_that_was_used_is_reported_and_then_changed() -> None:
    settings = PPOKL.model_validate(SMALL | {"target_kl": 1e-9, "kl_coefficient": 0.5})
    pair = networks(settings)
    learner, batch = PPOKLLearner(settings, pair, shuffling()), rollout(*pair, 64)
    metrics = [learner.update(batch, remaining=1.0) for _ in range(3)]
    assert [m.kl_coefficient for m in metrics] == [0.5, 1.0, 2.0]
    assert all(math.isnan(m.clip_fraction) for m in metrics)


def test_a_large_penalty_holds_the_policy() -> None:
    """The same update with and without a penalty of 1,000."""
    moved = []
    for beta in (1e-6, 1e3):
        settings = PPOKL.model_validate(
            SMALL | {"kl_coefficient": beta, "actor_learning_rate": 0.003}
        )
        pair = networks(settings)
        learner = PPOKLLearner(settings, pair, shuffling())
        moved.append(learner.update(rollout(*pair, 256), remaining=1.0).kl_nats)
    assert moved[1] < 0.02 * moved[0]


def test_a2c_in_one_minibatch_is_ppo_in_one_epoch() -> None:
    """Huang et al. 2022, arXiv:2205.09123: at ratio 1 both have the same gradient."""
    one_batch = SMALL | {"minibatch_size": 64, "epochs": 1}
    weights = []
    for name in ("a2c", "ppo"):
        settings = ALGORITHMS[name].model_validate(one_batch)
        pair = networks(settings)
        make_learner(settings, pair, shuffling()).update(rollout(*pair, 64), remaining=1.0)
        weights.append([*pair[0].parameters(), *pair[1].parameters()])
    for one, other in zip(*weights, strict=True):
        torch.testing.assert_close(one, other, atol=1e-6, rtol=1e-6)


def test_the_natural_policy_gradient_is_trpo_where_trpo_takes_the_whole_step() -> None:
    """A tiny bound, at which the quadratic model holds: the first multiple tried is accepted."""
    weights, metrics = [], []
    for name in ("npg", "trpo"):
        settings = ALGORITHMS[name].model_validate(SMALL | {"max_kl": 1e-4})
        pair = networks(settings)
        learner = make_learner(settings, pair, shuffling())
        metrics.append(learner.update(rollout(*pair, 64), remaining=1.0))
        weights.append(weights_of(pair[0]))
    assert torch.equal(*weights)
    assert metrics[0] == metrics[1]
    assert metrics[0].step_scale == 1


def test_the_full_step_is_taken_however_far_but_not_to_where_nothing_is_finite() -> None:
    assert full_step(lambda scale: Trial(scale, -1.0, 7.0), 0.01) == Trial(1.0, -1.0, 7.0)
    assert full_step(lambda scale: Trial(scale, math.nan, 0.1), 0.01) == NO_STEP
    assert full_step(lambda scale: Trial(scale, 0.1, math.inf), 0.01) == NO_STEP


def test_a_share_of_the_states_gives_nearly_the_same_step() -> None:
    """Half of 2,000 states: the direction is that of all of them, within the sampling error."""
    steps = []
    for share in (1.0, 0.5):
        settings = TRPO.model_validate(SMALL | {"fisher_share": share})
        pair = networks(settings)
        start = weights_of(pair[0])
        learner = TRPOLearner(settings, pair, shuffling())
        metrics = learner.update(rollout(*pair, 2000), remaining=1.0)
        assert metrics.line_search_success == 1
        assert metrics.kl_nats <= settings.max_kl + 1e-6
        steps.append(weights_of(pair[0]) - start)
    assert not torch.equal(*steps)
    assert torch.cosine_similarity(steps[0], steps[1], dim=0) > 0.98
