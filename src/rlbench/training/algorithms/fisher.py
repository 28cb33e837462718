"""The Fisher matrix of a policy in compiled code, as its product with a vector.

In:      an actor, its weights, and B states.
Out:     v -> F v, from plain matrix products.
Source:  F = E[J^T M J], Amari 1998; J v as a pass of tangents, Pearlmutter 1994.

J is the Jacobian of the distribution's parameters in the weights, M the Fisher matrix in those
parameters, known in closed form. What J needs of the network is computed once: what enters each
layer, and the slopes of the activations. Eager mode differentiates a graph instead
(`natural_gradient.fisher_product`): uncompiled, this here is the slower one for many outputs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.func import jvp, vjp
from torch.nn.functional import linear

from rlbench.training.algorithms.flat import FlatWeights
from rlbench.training.algorithms.natural_gradient import Product
from rlbench.training.policy import NARROW, Actor

FEW = 2
"""K up to which a Chain is made short; with more outputs it costs more than it saves (measured
uncompiled)."""


@dataclass(frozen=True, slots=True)
class Chain:
    """A network at its B states: z_l = W_l x_l + b_l, x_{l+1} = f(z_l), and its output o = z_L."""

    inputs: list[Tensor]  # x_l, [B, I_l] each
    weights: list[Tensor]  # W_l, [H_l, I_l] each
    slopes: list[Tensor]  # f'(z_l), [B, H_l] each, without the last layer
    output: Tensor  # o, [B, K]

    def push(self, added: Sequence[Tensor]) -> Tensor:
        """Tangent of o, [B, K], given what changes of W_l and b_l add to each z_l, [B, H_l].

        dz_l = added_l + W_l f'(z_{l-1}) dz_{l-1}
        """
        tangent = added[0]
        for slope, weight, more in zip(self.slopes, self.weights[1:], added[1:], strict=True):
            tangent = more + (slope * tangent) @ weight.t()
        return tangent

    def pull(self, cotangent: Tensor) -> list[Tensor]:
        """Cotangent of each z_l, [B, H_l], given that of o, [B, K]: the same backwards."""
        found = [cotangent]
        for slope, weight in zip(self.slopes[::-1], self.weights[:0:-1], strict=True):
            found.append((found[-1] @ weight) * slope)
        return found[::-1]


@dataclass(frozen=True, slots=True)
class ShortChain:
    """The same with s_kl = do_k/dz_l kept: half the matrix products, K B (sum of H_l) numbers."""

    sensitivities: list[list[Tensor]]  # s_kl, [B, H_l], for each k and each l but the last

    def push(self, added: Sequence[Tensor]) -> Tensor:
        """do_k = sum_l s_kl . added_l; see `Chain.push`."""
        *hidden, last = added
        columns = [
            one + sum((s * more).sum(1) for s, more in zip(of_one, hidden, strict=True))
            for one, of_one in zip(last.unbind(1), self.sensitivities, strict=True)
        ]
        return torch.stack(columns, 1)

    def pull(self, cotangent: Tensor) -> list[Tensor]:
        """sum_k u_k s_kl; see `Chain.pull`."""
        columns = cotangent.split(1, 1)  # u_k, [B, 1] each
        hidden = [
            sum((u * s for u, s in zip(columns, of_layer, strict=True)), cotangent.new_zeros(()))
            for of_layer in zip(*self.sensitivities, strict=True)
        ]
        return [*hidden, cotangent]


def chained(body: nn.Sequential, weights: Sequence[Tensor], observations: Tensor) -> Chain:
    """A body of linear layers and activations, with weights W_1, b_1, W_2, b_2, ..."""
    x, left = observations, iter(weights)
    inputs, slopes = [], []
    for layer in body:
        if isinstance(layer, nn.Linear):
            inputs.append(x)
            x = linear(x, next(left), next(left))
        else:
            x, slope = jvp(layer.forward, (x,), (torch.ones_like(x),))  # type: ignore[misc]
            slopes.append(slope)
    return Chain(inputs, list(weights[::2]), slopes, x)


def shortened(chain: Chain) -> ShortChain:
    """From pulling back every unit vector."""
    o = chain.output
    units = torch.eye(o.shape[1], dtype=o.dtype, device=o.device)
    return ShortChain([chain.pull(unit.expand_as(o))[:-1] for unit in units])


def factored_fisher(
    actor: FlatWeights[Actor], theta: Tensor, observations: Tensor, share: Tensor, damping: float
) -> Product:
    """V -> (F + damping I) v, for the policy with weights theta.

    F = sum_b share_b J_b^T M_b J_b

    It is the Hessian of the KL divergence from that policy, at that policy.

    Args:
        actor: whose policy it is.
        theta: weights, [P].
        observations: B states, [B, O].
        share: of each state in the mean, [B]: 1 / B, or 0 for a row that is there to fill up.
        damping: added to the diagonal.
    """
    network = actor.network
    weights = [weight.clone() for weight in actor.views(theta)]  # a compiled loop takes no views
    outside = len(weights) - 2 * sum(isinstance(layer, nn.Linear) for layer in network.body)
    chain = chained(network.body, weights[outside:], observations)
    jacobian = shortened(chain) if chain.output.shape[1] <= FEW else chain
    at = (chain.output, *weights[:outside])

    def head(*inputs: Tensor) -> tuple[Tensor, ...]:
        return network.head(*inputs).parameters

    def product(vector: Tensor) -> Tensor:
        parts = actor.views(vector)
        pairs = zip(chain.inputs, parts[outside::2], parts[outside + 1 :: 2], strict=True)
        added = [linear(x, weight, bias) for x, weight, bias in pairs]
        tangents = (jacobian.push(added), *parts[:outside])
        _, pushed = jvp(head, at, tangents)  # type: ignore[misc]  # J v
        scaled = network.head(*at).fisher_product(pushed)  # M J v
        _, pull = vjp(head, *at)  # type: ignore[misc]
        output, *found = pull(tuple(torch.einsum("b,b...->b...", share, part) for part in scaled))
        for x, cotangent in zip(chain.inputs, jacobian.pull(output), strict=True):
            found += [outer(cotangent, x), cotangent.sum(0)]
        return torch.cat([part.reshape(-1) for part in found]) + damping * vector  # J^T M J v

    return product


def outer(one: Tensor, other: Tensor) -> Tensor:
    """Sum over samples of outer products, [H, I]; for few columns the fast way round."""
    return (other.t() @ one).t() if other.shape[1] < NARROW else one.t() @ other
