"""Minibatch gradient steps as one compiled program: all minibatches of all epochs in one call.

In:      actor, critic, a batch, and the indices of its minibatches.
Out:     the same networks after the same steps as in eager mode, to float rounding.
Source:  Adam: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.

Weights and moments are one vector each, so that Adam is one pass over memory; the loop over
minibatches is part of the program (`while_loop`), so that Python is entered once per update. Shapes
never change: indices are padded, a count per minibatch and the number of minibatches are tensors,
and so are the step sizes and the objective's coefficient; a schedule or a short last batch compiles
nothing anew.
"""

import itertools
import math

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.func import functional_call, grad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlbench.training.algorithms.first_order import Plan, Taken, limited_by
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.loss import REPORTED, Loss
from rlbench.training.policy import Actor, Critic

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, those of PyTorch."""


class CompiledSteps:
    """The gradient steps of one update, for batches of up to a given size."""

    def __init__(self, loss: Loss, actor: Actor, critic: Critic, example: Batch) -> None:
        """Compile for batches of the example's types and of up to its size."""
        settings = loss.settings
        self._loss = loss
        self._networks: tuple[nn.Module, nn.Module] = (actor, critic)
        self._names = [[name for name, _ in n.named_parameters()] for n in self._networks]
        self._shapes = [[p.shape for p in n.parameters()] for n in self._networks]
        self._sizes = [sum(s.numel() for s in shapes) for shapes in self._shapes]
        self._weights = [*actor.parameters(), *critic.parameters()]
        theta = parameters_to_vector(self._weights).detach().clone()
        self._state = (theta, torch.zeros_like(theta), torch.zeros_like(theta), theta.new_zeros(()))
        self._batch_size = example.size
        self._part = min(settings.minibatch_size, example.size)
        self._most = settings.steps_per_batch(example.size)
        self._program = torch.compile(
            self._loop,
            fullgraph=True,
            dynamic=False,
            options={"cpp_wrapper": theta.device.type == "cpu"},
        )

        self.take(example, Plan([], (0.0, 0.0), 0.0))  # no step, but the program is made

    def take(self, batch: Batch, plan: Plan) -> Taken:
        """See `GradientSteps.take`."""
        theta = self._state[0]
        device = theta.device
        indices = torch.zeros(self._most, self._part, dtype=torch.int64, device=device)
        counts = torch.zeros(self._most, device=device)
        for i, part in enumerate(plan.chosen):
            indices[i, : len(part)] = part
            counts[i] = len(part)
        step_sizes = torch.cat(
            [theta.new_full((n,), rate) for n, rate in zip(self._sizes, plan.rates, strict=True)]
        )
        padded = [self._padded(column) for column in batch.columns]
        total = torch.tensor(len(plan.chosen), device=device)
        coefficient = theta.new_full((), plan.coefficient)
        with torch.no_grad():
            *state, samples, reported = self._program(
                *self._state, step_sizes, indices, counts, total, coefficient, *padded
            )
        before = self._state[-1]
        theta, m, v, steps = (tensor.clone() for tensor in state)
        self._state = (theta, m, v, steps)
        vector_to_parameters(theta, self._weights)
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
            if math.isfinite(self._loss.kl_limit):
                far = (numbers[REPORTED - 1] > self._loss.kl_limit) & (i > 0)
                old = (theta, m, v, steps, samples, reported)
                kept = [torch.where(far, o, new) for o, new in zip(old, taken, strict=True)]
                return torch.where(far, total, i + 1), *kept
            return i + 1, *taken

        start = (
            torch.zeros_like(total), theta.clone(), m.clone(), v.clone(), steps.clone(),
            theta.new_zeros(()), theta.new_zeros(REPORTED + 2),
        )  # fmt: skip
        _, *changed = while_loop(unfinished, body, start)
        return tuple(changed)

    def _gradient(
        self, theta: Tensor, sample: list[Tensor], count: Tensor, coefficient: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Gradient of one minibatch as one vector, clipped; six numbers about the minibatch."""
        present = (torch.arange(self._part, device=theta.device) < count).to(theta.dtype)

        def mean(values: Tensor) -> Tensor:
            return (values * present).sum() / count

        def loss(parts: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
            policy, values = (
                functional_call(network, dict(zip(names, weights, strict=True)), (sample[0],))
                for network, names, weights in zip(self._networks, self._names, parts, strict=True)
            )
            return self._loss((policy, values), sample[1:], coefficient, mean)

        gradients, numbers = grad(loss, has_aux=True)(self._split(theta))
        flat = [torch.cat([g.reshape(-1) for g in part]) for part in gradients]
        norms = torch.stack([part.norm() for part in flat])
        limit = self._loss.settings.max_grad_norm
        clipped = [
            part * torch.clamp(limit / (norm + 1e-6), max=1.0)
            for part, norm in zip(flat, limited_by(self._loss, norms).unbind(), strict=True)
        ]
        return torch.cat(clipped), torch.cat([numbers, norms])

    def _split(self, theta: Tensor) -> list[list[Tensor]]:
        """The weights of actor and of critic as views of the vector."""
        flat_shapes = [*itertools.chain.from_iterable(self._shapes)]
        pieces = torch.split(theta, [shape.numel() for shape in flat_shapes])
        views = [piece.view(shape) for piece, shape in zip(pieces, flat_shapes, strict=True)]
        of_actor = len(self._shapes[0])
        return [views[:of_actor], views[of_actor:]]

    def _padded(self, column: Tensor) -> Tensor:
        missing = self._batch_size - len(column)
        return (
            torch.cat([column, column.new_zeros(missing, *column.shape[1:])]) if missing else column
        )
