"""Minibatch gradient steps as one compiled program: all minibatches of all epochs in one call.

In:      networks, a loss, columns of a batch, and the indices of its minibatches.
Out:     the same networks after the same steps as in eager mode, to float rounding.
Source:  Adam: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.

Weights and moments are one vector each, so that Adam is one pass over memory; the loop over
minibatches is part of the program (`while_loop`), so that Python is entered once per update. Shapes
never change: indices are padded, a count per minibatch and the number of minibatches are tensors,
and so are the step sizes and the objective's coefficient; a schedule or a short last batch compiles
nothing anew.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.func import functional_call, grad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlbench.training.algorithms.steps import Descent, Plan, Taken

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, those of PyTorch."""


def compiled_program(
    function: Callable[..., tuple[Tensor, ...]], device: torch.device
) -> Callable[..., tuple[Tensor, ...]]:
    """The function as one program for the shapes of its first call."""
    on_cpu = device.type == "cpu"
    return torch.compile(function, fullgraph=True, dynamic=False, options={"cpp_wrapper": on_cpu})


def padded(column: Tensor, size: int) -> Tensor:
    """Rows of zeros behind a column, up to a size."""
    missing = size - len(column)
    return torch.cat([column, column.new_zeros(missing, *column.shape[1:])]) if missing else column


class FlatWeights:
    """The weights of a network as one vector [P], and the network as a function of that."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._names = [name for name, _ in network.named_parameters()]
        self._weights = list(network.parameters())
        self._shapes = [weights.shape for weights in self._weights]
        self.size = sum(shape.numel() for shape in self._shapes)
        """P."""

    def read(self) -> Tensor:
        """A copy of the network's weights, [P]."""
        return parameters_to_vector(self._weights).detach().clone()

    def write(self, theta: Tensor) -> None:
        """Put weights [P] into the network."""
        vector_to_parameters(theta, self._weights)

    def views(self, theta: Tensor) -> list[Tensor]:
        """Each parameter as a view of the vector [P]."""
        pieces = torch.split(theta, [shape.numel() for shape in self._shapes])
        return [piece.view(shape) for piece, shape in zip(pieces, self._shapes, strict=True)]

    def call(self, views: Sequence[Tensor], observations: Tensor) -> Any:
        """What the network gives with these parameters."""
        weights = dict(zip(self._names, views, strict=True))
        return functional_call(self._network, weights, (observations,))


class CompiledSteps:
    """The gradient steps of one update, for batches of up to a given size."""

    def __init__(
        self, descent: Descent, example: Sequence[Tensor], minibatch_size: int, epochs: int
    ) -> None:
        """Compile for batches of the example's types and of up to its size."""
        self._descent = descent
        self._flat = [FlatWeights(network) for network in descent.networks]
        theta = torch.cat([flat.read() for flat in self._flat])
        self._state = (theta, torch.zeros_like(theta), torch.zeros_like(theta), theta.new_zeros(()))
        self._batch_size = len(example[0])
        self._part = min(minibatch_size, self._batch_size)
        self._most = epochs * math.ceil(self._batch_size / self._part)
        self._program = compiled_program(self._loop, theta.device)

        none = Plan([], tuple(0.0 for _ in descent.networks))
        self.take(example, none)  # no step, but the program is made

    def take(self, columns: Sequence[Tensor], plan: Plan) -> Taken:
        """See `GradientSteps.take`."""
        theta = self._state[0]
        device = theta.device
        indices = torch.zeros(self._most, self._part, dtype=torch.int64, device=device)
        counts = torch.zeros(self._most, device=device)
        for i, part in enumerate(plan.chosen):
            indices[i, : len(part)] = part
            counts[i] = len(part)
        step_sizes = torch.cat(
            [
                theta.new_full((flat.size,), rate)
                for flat, rate in zip(self._flat, plan.rates, strict=True)
            ]
        )
        rows = [padded(column, self._batch_size) for column in columns]
        total = torch.tensor(len(plan.chosen), device=device)
        coefficient = theta.new_full((), plan.coefficient)
        with torch.no_grad():
            *state, samples, reported = self._program(
                *self._state, step_sizes, indices, counts, total, coefficient, *rows
            )
        before = self._state[-1]
        theta, m, v, steps = (tensor.clone() for tensor in state)
        self._state = (theta, m, v, steps)
        for flat, part in zip(self._flat, self._split(theta), strict=True):
            flat.write(part)
        return Taken(int(steps - before), reported / samples)

    def _loop(  # noqa: PLR0913, PLR0917 (tensors of a compiled program)
        self, theta: Tensor, m: Tensor, v: Tensor, steps: Tensor, step_sizes: Tensor,
        indices: Tensor, counts: Tensor, total: Tensor, coefficient: Tensor, *batch: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Minibatch after minibatch, with everything that changes carried along."""

        def unfinished(i: Tensor, *_: Tensor) -> Tensor:
            return i < total

        def body(  # noqa: PLR0913, PLR0917 (tensors carried along)
            i: Tensor, theta: Tensor, m: Tensor, v: Tensor, steps: Tensor,
            samples: Tensor, reported: Tensor,
        ) -> tuple[Tensor, ...]:  # fmt: skip
            chosen = torch.index_select(indices, 0, i.view(1)).squeeze(0)
            count = torch.index_select(counts, 0, i.view(1)).squeeze(0)
            sample = [column[chosen] for column in batch]
            gradient, numbers = self._gradient(theta, sample, count, coefficient)
            new_m = BETA_1 * m + (1 - BETA_1) * gradient
            new_v = BETA_2 * v + (1 - BETA_2) * gradient.square()
            unbiased_m = new_m / (1 - BETA_1 ** (steps + 1))
            unbiased_v = new_v / (1 - BETA_2 ** (steps + 1))
            new_theta = theta - step_sizes * unbiased_m / (unbiased_v.sqrt() + EPSILON)
            taken = (
                new_theta,
                new_m,
                new_v,
                steps + 1,
                samples + count,
                reported + count * numbers,
            )
            if math.isfinite(self._descent.end_above):
                far = (numbers[self._descent.reported - 1] > self._descent.end_above) & (i > 0)
                old = (theta, m, v, steps, samples, reported)
                kept = [torch.where(far, o, new) for o, new in zip(old, taken, strict=True)]
                return torch.where(far, total, i + 1), *kept
            return i + 1, *taken

        start = (
            torch.zeros_like(total), theta.clone(), m.clone(), v.clone(), steps.clone(),
            theta.new_zeros(()), theta.new_zeros(self._descent.reported + len(self._flat)),
        )  # fmt: skip
        _, *changed = while_loop(unfinished, body, start)
        return tuple(changed)

    def _gradient(
        self, theta: Tensor, sample: list[Tensor], count: Tensor, coefficient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient of one minibatch as one vector, clipped; what the minibatch reports."""
        descent = self._descent
        present = (torch.arange(self._part, device=theta.device) < count).to(theta.dtype)

        def mean(values: Tensor) -> Tensor:
            return (values * present).sum() / count

        def loss(parts: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
            outputs = [
                flat.call(views, sample[0]) for flat, views in zip(self._flat, parts, strict=True)
            ]
            return descent.loss(outputs, sample[1:], coefficient, mean)

        pieces = zip(self._flat, self._split(theta), strict=True)
        gradients, numbers = grad(loss, has_aux=True)([flat.views(part) for flat, part in pieces])
        vectors = [torch.cat([g.reshape(-1) for g in part]) for part in gradients]
        norms = torch.stack([vector.norm() for vector in vectors])
        clipped = [
            vector * torch.clamp(descent.max_grad_norm / (norm + 1e-6), max=1.0)
            for vector, norm in zip(vectors, descent.limited(norms).unbind(), strict=True)
        ]
        return torch.cat(clipped), torch.cat([numbers, norms])

    def _split(self, theta: Tensor) -> tuple[Tensor, ...]:
        """The weights of each network."""
        return torch.split(theta, [flat.size for flat in self._flat])
