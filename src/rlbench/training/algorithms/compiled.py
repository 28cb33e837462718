"""Minibatch gradient steps as one compiled program: all minibatches of all epochs in one call.

In:      networks, a loss, columns of a batch, and the indices of its minibatches.
Out:     the same networks after the same steps as in eager mode, to float rounding.
Source:  Adam: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.

Weights and moments are one vector each, so that Adam is one pass over memory; the loop over
minibatches is part of the program (on a CPU), so that Python is entered once per update. Shapes
never change: indices are padded, a count per minibatch and the number of minibatches are tensors,
and so are the step sizes and the objective's coefficient; a schedule or a short last batch compiles
nothing anew.
"""

import math
from collections.abc import Sequence

import torch
from torch import Tensor
from torch.func import grad
from torch.nn.utils.rnn import pad_sequence

from rlbench.training.algorithms.flat import FlatWeights
from rlbench.training.algorithms.steps import BETA_1, BETA_2, EPSILON, Descent, Plan, Taken
from rlbench.training.program import Loops, make_program


def triples(tensors: Sequence[Tensor]) -> list[tuple[Tensor, Tensor, Tensor]]:
    """The tensors, three by three."""
    return list(zip(tensors[::3], tensors[1::3], tensors[2::3], strict=True))


def padded(column: Tensor, size: int) -> Tensor:
    """Rows of zeros behind a column, up to a size."""
    missing = size - len(column)
    return torch.cat([column, column.new_zeros(missing, *column.shape[1:])]) if missing else column


class CompiledSteps:
    """The gradient steps of one update, for batches of up to a given size."""

    def __init__(
        self, descent: Descent, example: Sequence[Tensor], minibatch_size: int, epochs: int
    ) -> None:
        """Compile for batches of the example's types and of up to its size."""
        self._descent = descent
        self._flat = [FlatWeights(network) for network in descent.networks]
        weights = [flat.read() for flat in self._flat]
        self._state = [
            (theta, torch.zeros_like(theta), torch.zeros_like(theta)) for theta in weights
        ]
        self._steps = weights[0].new_zeros(())
        self._batch_size = len(example[0])
        self._part = min(minibatch_size, self._batch_size)
        self._most = epochs * math.ceil(self._batch_size / self._part)
        self._program = make_program(self._loop, self._steps.device)

        none = Plan([], tuple(0.0 for _ in descent.networks))
        self.take(example, none)  # no step, but the program is made

    def take(self, columns: Sequence[Tensor], plan: Plan) -> Taken:
        """See `GradientSteps.take`."""
        device = self._steps.device
        indices = torch.zeros(self._most, self._part, dtype=torch.int64, device=device)
        counts = torch.zeros(self._most, device=device)
        if plan.chosen:
            rows = pad_sequence(plan.chosen, batch_first=True)
            indices[: len(rows), : rows.shape[1]] = rows
            counts[: len(rows)] = torch.tensor([float(len(part)) for part in plan.chosen])
        batch = [padded(column, self._batch_size) for column in columns]
        with torch.no_grad():
            steps, samples, reported, *moved = self._program(
                self._steps,
                [state for states in self._state for state in states],
                torch.tensor(plan.rates, device=device),
                indices,
                counts,
                torch.tensor(len(plan.chosen), device=device),
                torch.tensor(plan.coefficient, device=device),
                batch,
            )
        taken = int(steps - self._steps)
        self._steps = steps.clone()
        self._state = [(theta.clone(), m.clone(), v.clone()) for theta, m, v in triples(moved)]
        for flat, (theta, _, _) in zip(self._flat, self._state, strict=True):
            flat.write(theta)
        return Taken(taken, reported / samples)

    def _loop(  # noqa: PLR0913, PLR0917 (tensors of a compiled program)
        self, loops: Loops, steps: Tensor, state: list[Tensor], rates: Tensor, indices: Tensor,
        counts: Tensor, total: Tensor, coefficient: Tensor, batch: list[Tensor],
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Minibatch after minibatch, with everything that changes carried along.

        Args:
            loops: those of the program.
            steps: taken so far, [].
            state: weights and both moments of each network, [P] each.
            rates: step size of each network.
            indices: of the samples of each minibatch, filled up to [most, part].
            counts: samples of each minibatch, [most].
            total: minibatches, [].
            coefficient: of the objective, [].
            batch: columns, [B, ...] each.
        """
        t = steps + torch.arange(1, self._most + 1, device=steps.device)
        # Made ahead: within the loop a power would be taken anew for every few weights.
        unbiased = torch.stack([1 / (1 - BETA_1**t), (1 - BETA_2**t).rsqrt()], 1)

        def unfinished(i: Tensor, *_: Tensor) -> Tensor:
            return i < total

        def body(
            i: Tensor, steps: Tensor, samples: Tensor, reported: Tensor, *state: Tensor
        ) -> tuple[Tensor, ...]:
            chosen = torch.index_select(indices, 0, i.view(1)).squeeze(0)
            count = torch.index_select(counts, 0, i.view(1)).squeeze(0)
            factors = torch.index_select(unbiased, 0, i.view(1)).squeeze(0)
            sample = [column[chosen] for column in batch]
            states = triples(state)
            weights = [theta for theta, _, _ in states]
            gradients, numbers = self._gradients(weights, sample, count, coefficient)
            moved = [
                adam(*one, gradient, rate, factors)
                for one, gradient, rate in zip(states, gradients, rates.unbind(), strict=True)
            ]
            sums = (steps + 1, samples + count, reported + count * numbers)
            taken = (*sums, *(tensor for one in moved for tensor in one))
            if math.isfinite(self._descent.end_above):
                far = (numbers[self._descent.reported - 1] > self._descent.end_above) & (i > 0)
                old = (steps, samples, reported, *state)
                kept = [torch.where(far, o, new) for o, new in zip(old, taken, strict=True)]
                return torch.where(far, total, i + 1), *kept
            return i + 1, *taken

        nothing = steps.new_zeros(self._descent.reported + len(self._flat))
        start = (torch.zeros_like(total), steps.clone(), steps.new_zeros(()), nothing)
        _, *changed = loops.repeat(unfinished, body, (*start, *(part.clone() for part in state)))
        return tuple(changed)

    def _gradients(
        self, weights: list[Tensor], sample: list[Tensor], count: Tensor, coefficient: Tensor
    ) -> tuple[list[Tensor], Tensor]:
        """Clipped gradient of each network on one minibatch, and what the minibatch reports."""
        descent = self._descent
        present = (torch.arange(self._part, device=count.device) < count).to(count.dtype)

        def mean(values: Tensor) -> Tensor:
            return (values * present).sum() / count

        def loss(parts: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
            outputs = [
                flat.call(views, sample[0]) for flat, views in zip(self._flat, parts, strict=True)
            ]
            return descent.loss(outputs, sample[1:], coefficient, mean)

        views = [flat.views(theta) for flat, theta in zip(self._flat, weights, strict=True)]
        gradients, numbers = grad(loss, has_aux=True)(views)
        vectors = [torch.cat([g.reshape(-1) for g in part]) for part in gradients]
        norms = torch.stack([vector.norm() for vector in vectors])
        clipped = [
            vector * torch.clamp(descent.max_grad_norm / (norm + 1e-6), max=1.0)
            for vector, norm in zip(vectors, descent.limited(norms).unbind(), strict=True)
        ]
        return clipped, torch.cat([numbers, norms])


def adam(  # noqa: PLR0913, PLR0917 (the state of one network)
    theta: Tensor, m: Tensor, v: Tensor, gradient: Tensor, rate: Tensor, factors: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """One step of weights [P] with moments m and v [P], and both moments after it.

    theta - alpha m' / (sqrt(v') + epsilon), m' = m / (1 - beta_1^t), v' = v / (1 - beta_2^t)

    `factors` are those of m and of sqrt(v), [2].
    """
    m = BETA_1 * m + (1 - BETA_1) * gradient
    v = BETA_2 * v + (1 - BETA_2) * gradient.square()
    of_m, of_root_v = factors.unbind()
    return theta - rate * of_m * m / (of_root_v * v.sqrt() + EPSILON), m, v
