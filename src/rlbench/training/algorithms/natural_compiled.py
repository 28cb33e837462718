"""The natural step as a compiled program, conjugate gradients included; another for its effect.

In:      an actor, a batch of up to a given size, and the states of the Fisher matrix.
Out:     what eager mode gives, to float rounding.
Source:  Schulman et al. 2015, arXiv:1502.05477, eq. 14 and appendix C.

Shapes never change: a shorter batch is filled up with rows that count for nothing.
"""

import math

import torch
from torch import Tensor
from torch.func import grad

from rlbench.spec.algorithms import NaturalGradient
from rlbench.training.algorithms.compiled import padded
from rlbench.training.algorithms.fisher import factored_fisher
from rlbench.training.algorithms.flat import FlatWeights
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.natural_gradient import conjugate_gradients, step_length
from rlbench.training.algorithms.natural_step import Direction, fisher_count, surrogate
from rlbench.training.algorithms.steps import Mean
from rlbench.training.policy import Actor
from rlbench.training.program import Loops, compiled, make_program


class CompiledCompass:
    """Compiled for batches of the example's types and of up to its size; see `Compass`."""

    def __init__(self, settings: NaturalGradient, actor: Actor, example: Batch) -> None:
        self._settings = settings
        self._flat = FlatWeights(actor)
        self._size = example.size
        self._states = fisher_count(settings.fisher_share, example.size)
        device = example.log_probs.device
        self._find = make_program(self._found, device)
        self._weigh = compiled(self._weighed, device)
        states = example.observations[: self._states]
        self.direction(example, states, 0.0).effect(self._flat.read())  # the programs are made

    @torch.no_grad()
    def direction(self, batch: Batch, states: Tensor, max_kl: float) -> Direction:
        """See `Compass.direction`."""
        columns = (batch.observations, batch.actions, batch.log_probs, batch.advantages)
        rows = [padded(column, self._size) for column in columns]
        share = shares(batch.log_probs, self._size)
        before, norm, residual, positive, length, vector, *old = self._find(
            self._flat.read(),
            rows,
            share,
            padded(states, self._states),
            shares(states[:, 0], self._states),
            share.new_tensor(max_kl),
        )

        @torch.no_grad()
        def effect(theta: Tensor) -> tuple[Tensor, Tensor]:
            gain, kl = self._weigh(theta, rows, share, before, old)
            return gain, kl

        if not 0 < norm < math.inf:
            return Direction(None, norm.item(), math.nan, effect)
        usable = bool(positive & length.isfinite())
        step = length * vector if usable else None
        return Direction(step, norm.item(), residual.item(), effect)

    def _found(  # noqa: PLR0913, PLR0917 (tensors of a compiled program)
        self, loops: Loops, theta: Tensor, rows: list[Tensor], share: Tensor, states: Tensor,
        share_of_state: Tensor, max_kl: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        settings = self._settings

        def objective(theta: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
            policy = self._flat.call(self._flat.views(theta), rows[0])
            value = surrogate(policy, rows[1:], weighted(share))
            return value, (value, *policy.parameters)

        g, (value, *old) = grad(objective, has_aux=True)(theta)
        product = factored_fisher(self._flat, theta, states, share_of_state, settings.damping)
        solution = conjugate_gradients(
            product, g, settings.cg_iterations, settings.cg_tolerance, loops.repeat
        )
        length = step_length(product, solution.vector, max_kl)
        return value, g.norm(), solution.residual, solution.positive, length, solution.vector, *old

    def _weighed(
        self, theta: Tensor, rows: list[Tensor], share: Tensor, before: Tensor, old: list[Tensor]
    ) -> tuple[Tensor, ...]:
        new = self._flat.call(self._flat.views(theta), rows[0])
        mean = weighted(share)
        return surrogate(new, rows[1:], mean) - before, mean(type(new)(*old).kl_to(new))


def shares(rows: Tensor, size: int) -> Tensor:
    """Weights of a mean over these rows, filled up to a size, [size]."""
    return padded(torch.full_like(rows, 1 / len(rows)), size)


def weighted(share: Tensor) -> Mean:
    """The mean with these weights."""
    return lambda values: (share * values).sum()
