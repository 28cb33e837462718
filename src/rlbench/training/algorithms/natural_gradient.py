"""The natural gradient, matrix-free.

In:      a policy and its gradient as one vector [P].
Out:     products with the Fisher matrix, the solution of F s = g, and the longest trusted step.
Source:  Schulman et al. 2015, arXiv:1502.05477, appendix C; Pearlmutter 1994 for products with
         curvature matrices; Hestenes and Stiefel 1952 for conjugate gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.utils import parameters_to_vector

from rlbench.training.distributions import Distribution
from rlbench.training.policy import Actor

Product = Callable[[Tensor], Tensor]
"""A symmetric matrix [P, P] as its product with a vector [P]."""


@dataclass(frozen=True, slots=True)
class Solution:
    """What conjugate gradients found."""

    vector: Tensor  # [P]
    residual: Tensor  # [], Euclidean norm of the right side minus the product
    positive: bool  # whether every curvature met was positive and finite


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


def conjugate_gradients(
    product: Product, target: Tensor, iterations: int, tolerance: float
) -> Solution:
    """Approximate solution of A x = b for a positive definite A, starting from 0.

    Stops after `iterations`, once the squared residual is at most `tolerance`, or where A turns
    out not to be positive definite, which the solution then says.
    """
    x = torch.zeros_like(target)
    residual, direction = target.clone(), target.clone()
    squared = residual @ residual
    for _ in range(iterations):
        if squared <= tolerance:
            break
        image = product(direction)
        curvature = direction @ image
        if not (curvature > 0 and torch.isfinite(curvature)):
            return Solution(x, squared.sqrt(), positive=False)
        alpha = squared / curvature
        x = x + alpha * direction
        residual = residual - alpha * image
        squared, previous = residual @ residual, squared
        direction = residual + (squared / previous) * direction
    return Solution(x, squared.sqrt(), positive=True)


def step_length(product: Product, direction: Tensor, max_kl: float) -> Tensor | None:
    """Multiple of the direction at which the quadratic KL model reaches max_kl, [].

    beta = sqrt(2 delta / (s . A s))     Schulman et al. 2015, appendix C

    None where the curvature s . A s is not positive or not finite: no step can be trusted.
    """
    curvature = direction @ product(direction)
    if not (curvature > 0 and torch.isfinite(curvature)):
        return None
    return torch.sqrt(2 * max_kl / curvature)


def gradient(objective: Tensor, actor: Actor) -> Tensor:
    """Gradient of a scalar in the actor's weights as one vector, [P]; the graph is kept."""
    return _flat(torch.autograd.grad(objective, list(actor.parameters()), retain_graph=True))


def weights_of(actor: Actor) -> Tensor:
    """A copy of the actor's weights as one vector, [P]."""
    return parameters_to_vector(actor.parameters()).detach()


def _flat(tensors: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
