"""The weights of a network as one vector.

In:      a network.
Out:     its P weights as a vector, that vector in pieces, and the network as a function of them.
"""

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils import parameters_to_vector, vector_to_parameters

Network = TypeVar("Network", bound=nn.Module)


class FlatWeights(Generic[Network]):
    """The weights of a network as one vector [P], and the network as a function of that."""

    def __init__(self, network: Network) -> None:
        self.network = network
        self._names = [name for name, _ in network.named_parameters()]
        self._weights = list(network.parameters())
        self._shapes = [weights.shape for weights in self._weights]

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
        return functional_call(self.network, weights, (observations,))
