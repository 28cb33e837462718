"""Loops inside a compiled program, and the same by replays of a recorded body."""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
import torch
from torch import Tensor

from jobs import job
from rlbench.training.program import Loops, Tensors, make_program, tanh_by_exp
from rlbench.training.session import opened

Pair = tuple[Tensors, Tensors]
CPU = torch.device("cpu")


def record(step: Callable[[], None]) -> Callable[[], None]:
    """As a CUDA graph: recording takes the step; a replay is the same step on the same memory."""
    step()
    step()
    return step


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def doubled(loops: Loops, x: Tensor, limit: Tensor) -> Tensors:
    """Twice x until it is above a limit, and how often that was done."""
    start = (x.clone(), torch.zeros((), dtype=torch.int64))
    return loops.repeat(lambda y, _: y.sum() <= limit, lambda y, n: (2 * y, n + 1), start)


def summed(loops: Loops, xs: Tensor) -> tuple[Tensors, Tensors]:
    """Sum of the rows, and the running sums with their squares."""

    def body(carry: Tensors, x: Tensor) -> Pair:
        total = carry[0] + x
        return (total,), (total.clone(), total.square())

    return loops.scan(body, (torch.zeros_like(xs[0]),), xs)


@pytest.mark.parametrize("recorder", [None, record])
def test_loops_end_where_they_should_and_call_after_call(recorder: Any) -> None:
    program = make_program(doubled, CPU, recorder)
    for value, limit in ((1.0, 100.0), (3.0, 10.0), (5.0, 1.0)):
        x, expected, times = torch.full((2,), value), 2 * value, 0
        while expected <= limit:
            expected, times = 2 * expected, times + 1
        got, count = program(x, torch.tensor(limit))
        assert (got.sum().item(), count.item()) == (expected, times)
        assert x.tolist() == [value, value]  # what comes in is left as it is
    program = make_program(summed, CPU, recorder)
    for seed in range(2):
        xs = torch.randn(7, 3, generator=torch.Generator().manual_seed(seed))
        (total,), (sums, squares) = program(xs)
        torch.testing.assert_close(sums, xs.cumsum(0))
        torch.testing.assert_close(squares, xs.cumsum(0).square())
        torch.testing.assert_close(total, xs.sum(0))


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_an_update_by_replays_is_the_update(
    algorithm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rollouts, gradient steps, conjugate gradients: as CUDA runs them, but for the graphs."""
    hyperparameters: dict[str, Any] = (
        {"epochs": 2, "minibatch_size": 70, "target_kl": 0.05}
        if algorithm == "ppo"
        else {"critic_epochs": 2, "critic_minibatch_size": 70, "cg_iterations": 5}
    )
    which = job(algorithm, hyperparameters, compile="always", vector_mode="fused")
    results = []
    for recorder in (None, record):
        for place in ("fused", "algorithms.compiled", "algorithms.natural_compiled"):
            made = partial(make_program, record=recorder)
            monkeypatch.setattr(f"rlbench.training.{place}.make_program", made)
        with opened(which) as session:
            for steps in (100, 100, 40):
                rollout, _ = session.collector.collect(steps, None, session.stopwatch)
                session.learner.update(rollout, remaining=0.5)
            networks = (session.actor, session.critic)
            results.append([w.detach().clone() for n in networks for w in n.parameters()])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other, atol=2e-4, rtol=2e-3)


def test_a_process_may_make_many_programs() -> None:
    """As repeats of a speed measurement do; public limit: 8 of one function."""
    for power in range(10):

        def function(_: Loops, x: Tensor, power: int = power) -> Tensor:
            return x**power

        assert make_program(function, CPU)(torch.tensor(2.0)).item() == 2.0**power


def test_the_compiled_tanh_is_tanh_and_its_gradient() -> None:
    x = torch.cat([torch.linspace(-20, 20, 10_001), torch.tensor([-1e30, 1e30])])
    expected = x.double().tanh()
    torch.testing.assert_close(tanh_by_exp(x).double(), expected, atol=2e-7, rtol=0)

    def slope(_: Loops, x: Tensor) -> Tensor:
        gradient: Tensor = torch.func.grad(lambda x: x.tanh().sum())(x)
        return gradient

    got = make_program(slope, CPU)(x)
    torch.testing.assert_close(got.double(), 1 - expected.square(), atol=4e-7, rtol=0)


@pytest.mark.parametrize("sizes", [(6, 5, 1), (6, 1, 5), (1, 6, 5), (1, 1, 1), (6, 5, 4)])
def test_compiled_products_are_products_and_their_gradients(sizes: tuple[int, int, int]) -> None:
    """A layer of vectors or matrices, with every scale that `addmm` knows."""
    rows, inner, columns = sizes
    generator = torch.Generator().manual_seed(0)
    shapes = ((columns,), (rows, inner), (inner, columns))
    layer = [torch.randn(shape, generator=generator) for shape in shapes]

    def loss(c: Tensor, a: Tensor, b: Tensor) -> Tensor:
        return (a @ b).square().sum() + sum(
            torch.addmm(c, a, b, beta=beta, alpha=alpha).square().sum()
            for beta, alpha in ((1, 1), (0.5, 1), (1, 2))
        )

    gradients = torch.func.grad_and_value(loss, argnums=(0, 1, 2))
    got, expected = make_program(lambda _, *x: gradients(*x), CPU)(*layer), gradients(*layer)
    for one, other in zip((*got[0], got[1]), (*expected[0], expected[1]), strict=True):
        torch.testing.assert_close(one, other)
