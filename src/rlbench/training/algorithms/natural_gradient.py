"""The natural gradient, matrix-free.

In:      a policy and its gradient as one vector [P].
Out:     products with the Fisher matrix, the solution of F s = g, and the longest trusted step.
Source:  Schulman et al. 2015, arXiv:1502.05477, appendix C; Pearlmutter 1994 for products with
         curvature matrices; Hestenes and Stiefel 1952 for conjugate gradients.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlbench.training.distributions import Distribution
from rlbench.training.policy import Actor

Product = Callable[[Tensor], Tensor]
"""A symmetric matrix [P, P] as its product with a vector [P]."""


State = tuple[Tensor, ...]
Loop = Callable[[Callable[..., Tensor], Callable[..., State], State], State]
"""Applies the second function to a state for as long as the first is true of it."""


class Solution(NamedTuple):
    """What conjugate gradients found."""

    vector: Tensor  # [P]
    residual: Tensor  # [], Euclidean norm of the right side minus the product
    positive: Tensor  # [], whether every curvature met was positive and finite


def fisher_product(policy: Distribution, actor: Actor, damping: float) -> Product:
    """V -> (F + damping I) v, with the Fisher matrix F averaged over the policy's B states.

    F = E[J^T M J]: J is the Jacobian of the distribution's parameters, M the Fisher matrix in
    those parameters, known in closed form. F is the Hessian of the KL divergence at the current
    policy. A product costs two passes: J v, by differentiating the linear map u -> J^T u, and
    J^T (M J v).
    """
    weights = list(actor.parameters())
    outputs = policy.parameters
    frozen = policy.frozen()
    cotangents = [torch.zeros_like(output, requires_grad=True) for output in outputs]
    pulled = _flat(torch.autograd.grad(outputs, weights, cotangents, create_graph=True))

    def product(vector: Tensor) -> Tensor:
        pushed = torch.autograd.grad(pulled, cotangents, vector, retain_graph=True)  # J v
        scaled = frozen.fisher_product(pushed)  # M J v
        back = torch.autograd.grad(outputs, weights, scaled, retain_graph=True)  # J^T M J v
        return _flat(back) / len(outputs[0]) + damping * vector

    return product


def in_python(unfinished: Callable[..., Tensor], body: Callable[..., State], state: State) -> State:
    """The loop of eager mode."""
    while unfinished(*state):
        state = body(*state)
    return state


def conjugate_gradients(
    product: Product, target: Tensor, iterations: int, tolerance: float, loop: Loop = in_python
) -> Solution:
    """Approximate solution of A x = b for a positive definite A, starting from 0.

    Stops after `iterations`, once the squared residual is at most `tolerance`, or where A turns
    out not to be positive definite, which the solution then says.
    """

    def unfinished(done: Tensor, positive: Tensor, squared: Tensor, *_: Tensor) -> Tensor:
        return (done < iterations) & positive & (squared > tolerance)

    def body(
        done: Tensor, _: Tensor, squared: Tensor, x: Tensor, residual: Tensor, direction: Tensor
    ) -> State:  # fmt: skip
        image = product(direction)
        curvature = direction @ image
        positive = is_positive(curvature)
        alpha = torch.where(positive, squared / curvature, 0.0)
        x = x + alpha * direction
        residual = residual - alpha * torch.where(positive, image, 0.0)
        smaller = residual @ residual
        direction = residual + (smaller / squared) * direction
        return done + 1, positive, smaller, x, residual, direction

    none = torch.zeros((), dtype=torch.int64, device=target.device)
    yes = torch.ones((), dtype=torch.bool, device=target.device)
    start = (none, yes, target @ target, torch.zeros_like(target), target.clone(), target.clone())
    _, positive, squared, x, *_ = loop(unfinished, body, start)
    return Solution(x, squared.sqrt(), positive)


def step_length(product: Product, direction: Tensor, max_kl: float | Tensor) -> Tensor:
    """Multiple of the direction at which the quadratic KL model reaches max_kl, [].

    beta = sqrt(2 delta / (s . A s))     Schulman et al. 2015, appendix C

    NaN where the curvature s . A s is not positive or not finite: no step can be trusted.
    """
    curvature = direction @ product(direction)
    return torch.where(is_positive(curvature), (2 * max_kl / curvature).sqrt(), torch.nan)


def is_positive(curvature: Tensor) -> Tensor:
    """Whether it is positive and finite, []."""
    return (curvature > 0) & torch.isfinite(curvature)


def gradient(objective: Tensor, actor: Actor) -> Tensor:
    """Gradient of a scalar in the actor's weights as one vector, [P]; the graph is kept."""
    return _flat(torch.autograd.grad(objective, list(actor.parameters()), retain_graph=True))


def weights_of(actor: Actor) -> Tensor:
    """A copy of the actor's weights as one vector, [P]."""
    return parameters_to_vector(actor.parameters()).detach()


def _flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
