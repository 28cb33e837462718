"""Minibatch gradient steps: what is minimised, and Adam after the minibatches, one by one.

In:      networks, a loss, columns of a batch, and the indices of its minibatches.
Out:     the networks after the steps, and the mean of what the loss reports.
Source:  Adam: Kingma and Ba 2015, arXiv:1412.6980.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any, Protocol

import torch
from torch import Tensor, nn
from torch.optim.adam import adam as functional_adam

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, those of PyTorch."""

Mean = Callable[[Tensor], Tensor]
"""Mean over a minibatch, [B] to []."""


class Loss(Protocol):
    """What a minibatch says is to be made smaller, in eager and in compiled mode alike."""

    def __call__(
        self, outputs: Sequence[Any], sample: Sequence[Tensor], coefficient: Tensor, mean: Mean
    ) -> tuple[Tensor, Tensor]:
        """The loss, [], and R numbers about the minibatch, [R], without gradient.

        Args:
            outputs: of each network, for the minibatch's observations.
            sample: the other columns of the minibatch, [B, ...] each.
            coefficient: a number of the objective that may change between updates, [].
            mean: mean over the samples that count.
        """
        ...


@dataclass(frozen=True, slots=True)
class Descent:
    """What gradient steps minimise, over whose weights, and within which limits."""

    networks: tuple[nn.Module, ...]
    loss: Loss
    reported: int
    """R: how many numbers the loss reports."""
    max_grad_norm: float = math.inf
    joint_norm: bool = False
    """Whether that limit is for the gradient of all networks together, not of each."""
    end_above: float = math.inf
    """Value of the last reported number above which a minibatch, not the first, ends the steps."""

    def limited(self, norms: Tensor) -> Tensor:
        """The gradient norms that the limit looks at, from one per network; same shape."""
        return norms.norm().expand(len(norms)) if self.joint_norm else norms


@dataclass(frozen=True, slots=True)
class Plan:
    """The gradient steps of one update."""

    chosen: list[Tensor]  # indices of each minibatch, in order
    rates: tuple[float, ...]  # step size of each network
    coefficient: float = 0.0  # of the objective


@dataclass(frozen=True, slots=True)
class Taken:
    """The gradient steps that were taken: all, unless a limit ended them."""

    steps: int
    means: Tensor  # [R + networks], over their samples: what the loss reports, gradient norms


class GradientSteps(Protocol):
    """How the gradient steps of one update are taken."""

    def take(self, columns: Sequence[Tensor], plan: Plan) -> Taken:
        """One Adam step per minibatch, as planned; gradient norms are those before clipping.

        Args:
            columns: observations [B, O], then what the loss takes as its sample, [B, ...] each.
            plan: the minibatches and the step sizes.
        """
        ...


class EagerSteps:
    """Steps by PyTorch's autograd and Adam, one after the other."""

    def __init__(self, descent: Descent) -> None:
        self._descent = descent
        self._weights = [list(network.parameters()) for network in descent.networks]
        self._adam = [Adam(part) for part in self._weights]

    def take(self, columns: Sequence[Tensor], plan: Plan) -> Taken:
        """See `GradientSteps.take`."""
        coefficient = torch.tensor(plan.coefficient, device=columns[0].device)
        rows: list[Tensor] = []
        for part in plan.chosen:
            sample = [column[part] for column in columns]
            row = self._backward(sample, coefficient, first=not rows)
            if row is None:
                break
            rows.append(row)
            for adam, rate in zip(self._adam, plan.rates, strict=True):
                adam.step(rate)
        return Taken(len(rows), _weighted_mean(rows, plan.chosen[: len(rows)]))

    def _backward(self, sample: list[Tensor], coefficient: Tensor, *, first: bool) -> Tensor | None:
        """Leave the clipped gradients of a minibatch; what it reports, or None if it is too far."""
        descent = self._descent
        outputs = [network(sample[0]) for network in descent.networks]
        loss, numbers = descent.loss(outputs, sample[1:], coefficient, torch.mean)
        if math.isfinite(descent.end_above) and not first and numbers[-1] > descent.end_above:
            return None
        for weights in chain.from_iterable(self._weights):
            weights.grad = None
        torch.autograd.backward(loss)
        norms = torch.stack([_norm(part) for part in self._weights])
        for part, norm in zip(self._weights, descent.limited(norms), strict=True):
            nn.utils.clip_grads_with_norm_(part, descent.max_grad_norm, norm)
        return torch.cat([numbers, norms])


class Adam:
    """PyTorch's step of Adam, without its optimiser: that imports the compiler, for seconds."""

    def __init__(self, weights: list[nn.Parameter]) -> None:
        self._weights = weights
        self._m = [torch.zeros_like(w) for w in weights]
        self._v = [torch.zeros_like(w) for w in weights]
        self._taken = [torch.zeros((), device=w.device) for w in weights]

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move the weights along their gradients."""
        functional_adam(
            list(self._weights),
            _gradients(self._weights),
            self._m,
            self._v,
            [],
            self._taken,
            fused=True,
            amsgrad=False,
            maximize=False,
            weight_decay=0.0,
            lr=rate,
            beta1=BETA_1,
            beta2=BETA_2,
            eps=EPSILON,
        )


def make_steps(
    descent: Descent, example: Sequence[Tensor] | None, minibatch_size: int, epochs: int
) -> GradientSteps:
    """Eager steps; or, with columns of a batch as an example, a program compiled for its size."""
    if example is None:
        return EagerSteps(descent)
    from rlbench.training.algorithms.compiled import CompiledSteps

    return CompiledSteps(descent, example, minibatch_size, epochs)


def minibatches(size: int, part: int, epochs: int, generator: torch.Generator) -> list[Tensor]:
    """Indices of each minibatch of every epoch, shuffled; the last of an epoch may be smaller."""
    orders = [
        torch.randperm(size, generator=generator, device=generator.device) for _ in range(epochs)
    ]
    return [chosen for order in orders for chosen in torch.split(order, part)]


def _weighted_mean(rows: list[Tensor], chosen: list[Tensor]) -> Tensor:
    """Mean of one row of numbers per minibatch, each weighted by its size."""
    sizes = torch.tensor([len(part) for part in chosen], device=rows[0].device)
    return sizes / sizes.sum() @ torch.stack(rows)


def _gradients(weights: list[nn.Parameter]) -> list[Tensor]:
    return [w.grad for w in weights if w.grad is not None]


def _norm(weights: list[nn.Parameter]) -> Tensor:
    return nn.utils.get_total_norm(_gradients(weights))
