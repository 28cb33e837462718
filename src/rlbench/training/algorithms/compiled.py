"""PPO's gradient steps as one compiled program: all minibatches of all epochs in one call.

In:      actor, critic, a batch, and the indices of its minibatches.
Out:     the same networks after the same steps as in eager mode, to float rounding.
Source:  Adam: Kingma and Ba 2015, arXiv:1412.6980, algorithm 1.

Weights and moments are one vector each, so that Adam is one pass over memory; the loop over
minibatches is part of the program (`while_loop`), so that Python is entered once per update. Shapes
never change: indices are padded, a count per minibatch and the number of minibatches are tensors,
and so are the step sizes; a schedule or a short last batch compiles nothing anew.
"""

import itertools

import torch
from torch import Tensor, nn
from torch._higher_order_ops.while_loop import while_loop
from torch.func import functional_call, grad
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from rlbench.spec.algorithms import PPO
from rlbench.training.algorithms.learner import Batch
from rlbench.training.algorithms.ppo_loss import REPORTED, losses
from rlbench.training.policy import Actor, Critic

BETA_1, BETA_2, EPSILON = 0.9, 0.999, 1e-8
"""Adam's constants, those of PyTorch."""


class CompiledSteps:
    """The gradient steps of one update, for batches of up to a given size."""

    def __init__(self, settings: PPO, actor: Actor, critic: Critic, example: Batch) -> None:
        """Compile for batches of the example's types and of up to its size."""
        self._settings = settings
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

        self.take(example, [], (0.0, 0.0))  # no step, but the program is made

    def take(self, batch: Batch, chosen: list[Tensor], rates: tuple[float, float]) -> Tensor:
        """See `GradientSteps.take`."""
        theta = self._state[0]
        device = theta.device
        indices = torch.zeros(self._most, self._part, dtype=torch.int64, device=device)
        counts = torch.zeros(self._most, device=device)
        for i, part in enumerate(chosen):
            indices[i, : len(part)] = part
            counts[i] = len(part)
        step_sizes = torch.cat(
            [theta.new_full((size,), rate) for size, rate in zip(self._sizes, rates, strict=True)]
        )
        padded = [self._padded(column) for column in batch.columns]
        total = torch.tensor(len(chosen), device=device)
        with torch.no_grad():
            *state, reported = self._program(
                *self._state, step_sizes, indices, counts, total, *padded
            )
        theta, m, v, steps = (tensor.clone() for tensor in state)
        self._state = (theta, m, v, steps)
        vector_to_parameters(theta, self._weights)
        means: Tensor = reported / counts.sum()
        return means

    def _loop(  # noqa: PLR0913, PLR0917 (tensors of a compiled program)
        self, theta: Tensor, m: Tensor, v: Tensor, steps: Tensor, step_sizes: Tensor,
        indices: Tensor, counts: Tensor, total: Tensor, *batch: Tensor,
    ) -> tuple[Tensor, ...]:  # fmt: skip
        """Minibatch after minibatch, with everything that changes carried along."""

        def unfinished(i: Tensor, *_: Tensor) -> Tensor:
            return i < total

        def body(  # noqa: PLR0913, PLR0917 (tensors carried along)
            i: Tensor, theta: Tensor, m: Tensor, v: Tensor, steps: Tensor, reported: Tensor
        ) -> tuple[Tensor, ...]:
            chosen = torch.index_select(indices, 0, i.view(1)).squeeze(0)
            count = torch.index_select(counts, 0, i.view(1)).squeeze(0)
            sample = [column[chosen] for column in batch]
            gradient, (numbers, norms) = self._gradient(theta, sample, count)
            steps = steps + 1
            m = BETA_1 * m + (1 - BETA_1) * gradient
            v = BETA_2 * v + (1 - BETA_2) * gradient.square()
            unbiased_m, unbiased_v = m / (1 - BETA_1**steps), v / (1 - BETA_2**steps)
            theta = theta - step_sizes * unbiased_m / (unbiased_v.sqrt() + EPSILON)
            return i + 1, theta, m, v, steps, reported + count * torch.cat([numbers, norms])

        start = (
            torch.zeros_like(total), theta.clone(), m.clone(), v.clone(), steps.clone(),
            theta.new_zeros(REPORTED + 2),
        )  # fmt: skip
        _, *changed = while_loop(unfinished, body, start)
        return tuple(changed)

    def _gradient(
        self, theta: Tensor, sample: list[Tensor], count: Tensor
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Gradient of one minibatch as one vector, actor and critic clipped apart; its numbers."""
        present = (torch.arange(self._part, device=theta.device) < count).to(theta.dtype)

        def mean(values: Tensor) -> Tensor:
            return (values * present).sum() / count

        def loss(parts: list[list[Tensor]]) -> tuple[Tensor, Tensor]:
            policy, values = (
                functional_call(network, dict(zip(names, weights, strict=True)), (sample[0],))
                for network, names, weights in zip(self._networks, self._names, parts, strict=True)
            )
            return losses(self._settings, policy, values, sample[1:], mean)

        gradients, numbers = grad(loss, has_aux=True)(self._split(theta))
        flat = [torch.cat([g.reshape(-1) for g in part]) for part in gradients]
        norms = torch.stack([part.norm() for part in flat])
        limit = self._settings.max_grad_norm
        clipped = [
            part * torch.clamp(limit / (norm + 1e-6), max=1.0)
            for part, norm in zip(flat, norms, strict=True)
        ]
        return torch.cat(clipped), (numbers, norms)

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
