from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from rlbench.spec.algorithms import TRPO
from rlbench.training.algorithms.compiled import padded
from rlbench.training.algorithms.fisher import factored_fisher
from rlbench.training.algorithms.flat import FlatWeights
from rlbench.training.algorithms.natural_gradient import (
    Product,
    conjugate_gradients,
    fisher_product,
    gradient,
    step_length,
    weights_of,
)
from rlbench.training.envs.spaces import Bits, Categories, Continuous, EnvSpec, MultiCategories
from rlbench.training.policy import Actor, make_actor_critic

BOX = EnvSpec(2, Continuous((2,), np.array([-1.0, -1.0]), np.array([1.0, 3.0]), np.dtype("f4")))
DISCRETE = EnvSpec(2, Categories(3, 0))
MULTI = EnvSpec(2, MultiCategories((2,), (2, 3), np.zeros(2, np.int64)))
BINARY = EnvSpec(2, Bits((2,)))
ONE = EnvSpec(2, Continuous((1,), np.array([-1.0]), np.array([3.0]), np.dtype("f4")))
PAIR = EnvSpec(2, Categories(2, 0))
GAUSSIAN = [
    (box, {"action_std": std, "action_mean": mean})
    for box in (BOX, ONE)
    for std in ("global", "state")
    for mean in ("free", "bounded", "scaled")
]
KINDS: list[tuple[EnvSpec, dict[str, Any]]] = [
    *GAUSSIAN,
    *[(spec, {}) for spec in (PAIR, DISCRETE, MULTI, BINARY)],
    *[(spec, {"hidden_sizes": (4, 3)}) for spec in (ONE, BOX)],
    *[(spec, {"hidden_sizes": (20, 17, 3), "activation": "relu"}) for spec in (ONE, MULTI)],
]
"""Few outputs and many, few inputs to a layer and many."""
each_kind = pytest.mark.parametrize(("spec", "chosen"), KINDS)


def tiny(spec: EnvSpec, chosen: dict[str, Any]) -> tuple[Actor, Tensor]:
    settings = TRPO.model_validate({"hidden_sizes": (3,)} | chosen)
    actor, _ = make_actor_critic(
        spec, settings, torch.Generator().manual_seed(0), torch.device("cpu")
    )
    actor = actor.double()
    with torch.no_grad():
        for parameter in actor.parameters():
            parameter.add_(
                0.3 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
            )
    states = torch.randn(11, 2, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    return actor, states


def explicit_hessian_of_kl(actor: Actor, states: Tensor) -> Tensor:
    """The whole matrix [P, P], by differentiating the mean KL twice in every weight."""
    names = [name for name, _ in actor.named_parameters()]
    values = tuple(parameter.detach() for parameter in actor.parameters())
    old = actor(states).frozen()

    def kl(*weights: Tensor) -> Tensor:
        new = torch.func.functional_call(actor, dict(zip(names, weights, strict=True)), (states,))
        mean: Tensor = old.kl_to(new).mean()
        return mean

    blocks = torch.autograd.functional.hessian(kl, values)
    sizes = [value.numel() for value in values]
    rows = [
        torch.cat([block.reshape(size, -1) for block in row], dim=1)
        for row, size in zip(blocks, sizes, strict=True)
    ]
    return torch.cat(rows)


def explicit(product: Product, size: int) -> Tensor:
    """The whole matrix, [P, P], column by column."""
    return torch.stack([product(column) for column in torch.eye(size, dtype=torch.float64)])


@each_kind
def test_fisher_products_are_the_explicit_matrix(spec: EnvSpec, chosen: dict[str, Any]) -> None:
    """By the graph, as in eager mode, and by factors, as in compiled mode; two rows fill up."""
    actor, states = tiny(spec, chosen)
    flat = FlatWeights(actor)
    theta = flat.read()
    expected = explicit_hessian_of_kl(actor, states)
    expected += 0.1 * torch.eye(len(theta), dtype=torch.float64)
    by_graph = explicit(fisher_product(actor(states), actor, damping=0.1), len(theta))
    torch.testing.assert_close(by_graph, expected, atol=1e-10, rtol=1e-8)
    rows, share = padded(states, 13), padded(torch.full_like(states[:, 0], 1 / 11), 13)
    by_factors = explicit(factored_fisher(flat, theta, rows, share, damping=0.1), len(theta))
    torch.testing.assert_close(by_factors, expected, atol=1e-10, rtol=1e-8)


def test_conjugate_gradients_solve_the_system() -> None:
    matrix, target = torch.tensor([[4.0, 1.0], [1.0, 3.0]]), torch.tensor([1.0, 2.0])
    found = conjugate_gradients(lambda v: matrix @ v, target, iterations=2, tolerance=0.0)
    torch.testing.assert_close(found.vector, torch.linalg.solve(matrix, target))
    assert found.residual < 1e-6


def test_conjugate_gradients_solve_a_large_system_and_report_the_residual() -> None:
    generator = torch.Generator().manual_seed(0)
    factor = torch.randn(40, 40, generator=generator, dtype=torch.float64)
    matrix = factor @ factor.T + torch.eye(40, dtype=torch.float64)
    target = torch.randn(40, generator=generator, dtype=torch.float64)
    early = conjugate_gradients(lambda v: matrix @ v, target, 10, tolerance=1e-20)
    torch.testing.assert_close(early.residual, (target - matrix @ early.vector).norm())
    full = conjugate_gradients(lambda v: matrix @ v, target, 200, tolerance=1e-20)
    torch.testing.assert_close(
        full.vector, torch.linalg.solve(matrix, target), rtol=1e-7, atol=1e-9
    )


def test_conjugate_gradients_stop_at_the_tolerance() -> None:
    calls = []

    def identity(vector: Tensor) -> Tensor:
        calls.append(1)
        return vector

    conjugate_gradients(identity, torch.ones(3), iterations=10, tolerance=1e-10)
    assert len(calls) == 1


@pytest.mark.parametrize("factor", [-1.0, 0.0, float("nan")])
def test_a_matrix_that_is_not_positive_gives_no_step(factor: float) -> None:
    """Public bug: the square root of a negative curvature went into the policy."""

    def product(vector: Tensor) -> Tensor:
        return factor * vector

    found = conjugate_gradients(product, torch.ones(3), iterations=10, tolerance=0.0)
    assert not found.positive
    assert found.vector.tolist() == [0, 0, 0]
    assert step_length(product, torch.ones(3), max_kl=0.01).isnan()


def test_a_curvature_that_turns_negative_later_is_told() -> None:
    """The first direction has positive curvature, the second does not."""
    matrix = torch.diag(torch.tensor([4.0, -1.0]))
    found = conjugate_gradients(lambda v: matrix @ v, torch.tensor([2.0, 1.0]), 10, tolerance=0.0)
    assert not found.positive
    assert found.vector.norm() > 0


def test_the_step_reaches_the_bound_of_the_quadratic_model() -> None:
    matrix = torch.diag(torch.tensor([2.0, 8.0]))
    direction = torch.tensor([1.0, 1.0])
    length = step_length(lambda v: matrix @ v, direction, max_kl=0.05)
    step = length * direction
    assert abs(float(0.5 * step @ matrix @ step) - 0.05) < 1e-6


def test_the_flat_gradient_has_the_order_of_the_weights() -> None:
    actor, _ = tiny(BOX, {})
    weights = weights_of(actor)
    squares = sum(parameter.square().sum() for parameter in actor.parameters())
    torch.testing.assert_close(gradient(squares, actor), 2 * weights)  # type: ignore[arg-type]
