"""Actor and critic: two networks that share nothing.

In:      observations [..., O].
Out:     a distribution over actions; a value [...].
Source:  orthogonal initialisation with gains sqrt(2), 0.01 and 1, as usual for PPO
         (Engstrom et al. 2020, arXiv:2005.12729; Andrychowicz et al. 2021, arXiv:2006.05990).
"""

import math
from itertools import pairwise

import torch
from torch import Tensor, nn

from rlbench.errors import InputError
from rlbench.spec.algorithms import OnPolicy
from rlbench.training.distributions import (
    ABSENT,
    Bernoulli,
    Categorical,
    DiagonalGaussian,
    MultiCategorical,
)
from rlbench.training.envs.spaces import Bits, Categories, Continuous, EnvSpec, MultiCategories
from rlbench.training.noise import coloured_noise


class Tanh(nn.Module):
    """Hyperbolic tangent; in compiled code by exp, which is vectorised there and tanh is not."""

    def forward(self, x: Tensor) -> Tensor:
        """tanh(x) = 1 - 2 / (exp(2 x) + 1), to 1e-7; beyond 15 it is 1 in float32."""
        if torch.compiler.is_compiling():
            return 1 - 2 / (torch.exp(2 * x.clamp(-15, 15)) + 1)
        return torch.tanh(x)


NARROW = 16
"""A layer with fewer inputs is narrow: products with its weights are far from the matrix speed."""


class Linear(nn.Linear):
    """A linear layer, y = W x + b; in compiled code a narrow one is computed with W turned.

    Its gradient is then x^T g, not g^T x, which for 3 inputs takes a third of the time.
    """

    def forward(self, x: Tensor) -> Tensor:
        """[B, inputs] to [B, outputs]."""
        if torch.compiler.is_compiling() and self.in_features < NARROW:
            return torch.addmm(self.bias, x, self.weight.t().contiguous())
        return super().forward(x)


ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": Tanh, "relu": nn.ReLU}


class GaussianActor(nn.Module):
    """Diagonal Gaussian over a Box of A numbers."""

    bounded: Tensor  # [A], bool: dimensions with two finite bounds
    centre: Tensor  # [A]
    half_range: Tensor  # [A]

    def __init__(
        self, spec: EnvSpec, action: Continuous, settings: OnPolicy, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._state_std = settings.action_std == "state"
        self._mean_kind = settings.action_mean
        self._size = action.size
        outputs = 2 * action.size if self._state_std else action.size
        sizes = (spec.observation_size, *settings.hidden_sizes, outputs)
        self.body = mlp(sizes, settings, 0.01, generator)
        self._log_std_init = settings.log_std_init
        if not self._state_std:
            self.log_std = nn.Parameter(torch.full((action.size,), settings.log_std_init))
        self._noise_colour = settings.noise_colour
        bounds = torch.tensor(action.policy_bounds, dtype=torch.float32)
        bounded = torch.tensor(action.bounded)
        self.register_buffer("centre", torch.where(bounded, bounds.mean(0), 0.0))
        self.register_buffer("half_range", torch.where(bounded, (bounds[1] - bounds[0]) / 2, 1.0))
        self.register_buffer("bounded", bounded)

    def forward(self, observations: Tensor) -> DiagonalGaussian:
        """Mean from the network; deviation learned as one vector, or from the network too."""
        own = () if self._state_std else (self.log_std,)
        return self.head(self.body(observations), *own)

    def head(self, output: Tensor, log_std: Tensor | None = None) -> DiagonalGaussian:
        """The distribution, given the network's output and the deviation's vector if there is one.

        All actors have one: it takes the output of `body`, then the weights outside `body`.
        """
        if log_std is None:
            output, added = output[..., : self._size], output[..., self._size :]
            log_std = added + self._log_std_init
        mean = self._mean(output)
        return DiagonalGaussian(mean, log_std.expand_as(mean))

    def noise(self, steps: int, num_envs: int, generator: torch.Generator) -> Tensor:
        """Standard normal, [T, N, A]."""
        return coloured_noise((steps, num_envs, self._size), self._noise_colour, generator)

    def _mean(self, output: Tensor) -> Tensor:
        if self._mean_kind == "free":
            return output
        if self._mean_kind == "bounded":
            output = torch.where(self.bounded, output.tanh(), output)
        return torch.addcmul(self.centre, self.half_range, output)


class CategoricalActor(nn.Module):
    """One of K categories."""

    def __init__(
        self, spec: EnvSpec, action: Categories, settings: OnPolicy, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._count = action.count
        sizes = (spec.observation_size, *settings.hidden_sizes, action.count)
        self.body = mlp(sizes, settings, 0.01, generator)

    def forward(self, observations: Tensor) -> Categorical:
        """Logits from the network."""
        return self.head(self.body(observations))

    def head(self, output: Tensor) -> Categorical:
        """The network's output is the logits."""
        return Categorical(output)

    def noise(self, steps: int, num_envs: int, generator: torch.Generator) -> Tensor:
        """Standard Gumbel, [T, N, K]."""
        return _gumbel((steps, num_envs, self._count), generator)


class MultiCategoricalActor(nn.Module):
    """D independent choices, each one of its own number of categories, at most K."""

    present: Tensor  # [D, K], bool: the categories that there are
    sources: Tensor  # [D K], the output that is their logit; any for others

    def __init__(
        self,
        spec: EnvSpec,
        action: MultiCategories,
        settings: OnPolicy,
        generator: torch.Generator,
    ) -> None:
        super().__init__()
        counts = torch.tensor(action.counts)
        self._shape = (len(counts), max(action.counts))
        present = torch.arange(self._shape[1]) < counts.unsqueeze(1)  # [D, K]
        self.register_buffer("present", present)
        self.register_buffer("sources", (present.flatten().cumsum(0) - 1).clamp(min=0))
        sizes = (spec.observation_size, *settings.hidden_sizes, sum(action.counts))
        self.body = mlp(sizes, settings, 0.01, generator)

    def forward(self, observations: Tensor) -> MultiCategorical:
        """Logits from the network."""
        return self.head(self.body(observations))

    def head(self, logits: Tensor) -> MultiCategorical:
        """The logits of each choice, filled up to K."""
        filled = logits.index_select(-1, self.sources).unflatten(-1, self._shape)
        return MultiCategorical(torch.where(self.present, filled, ABSENT))

    def noise(self, steps: int, num_envs: int, generator: torch.Generator) -> Tensor:
        """Standard Gumbel, [T, N, D, K]."""
        return _gumbel((steps, num_envs, *self._shape), generator)


class BernoulliActor(nn.Module):
    """D independent bits."""

    def __init__(
        self, spec: EnvSpec, action: Bits, settings: OnPolicy, generator: torch.Generator
    ) -> None:
        super().__init__()
        self._size = action.size
        sizes = (spec.observation_size, *settings.hidden_sizes, action.size)
        self.body = mlp(sizes, settings, 0.01, generator)

    def forward(self, observations: Tensor) -> Bernoulli:
        """Logits from the network."""
        return self.head(self.body(observations))

    def head(self, output: Tensor) -> Bernoulli:
        """The network's output is the logits."""
        return Bernoulli(output)

    def noise(self, steps: int, num_envs: int, generator: torch.Generator) -> Tensor:
        """Standard logistic, [T, N, D]: log u - log(1 - u) for u uniform."""
        shape = (steps, num_envs, self._size)
        return torch.rand(shape, generator=generator, device=generator.device).logit()


Actor = GaussianActor | CategoricalActor | MultiCategoricalActor | BernoulliActor
"""A policy: called with observations [..., O] it gives a Distribution over actions."""


class Critic(nn.Module):
    """State values: observations [..., O] to V [...]."""

    def __init__(self, spec: EnvSpec, settings: OnPolicy, generator: torch.Generator) -> None:
        super().__init__()
        sizes = (spec.observation_size, *settings.hidden_sizes, 1)
        self.body = mlp(sizes, settings, 1.0, generator)

    def forward(self, observations: Tensor) -> Tensor:
        """V(s), [...]."""
        values: Tensor = self.body(observations)
        return values.squeeze(-1)


def make_actor_critic(
    spec: EnvSpec, settings: OnPolicy, generator: torch.Generator, device: torch.device
) -> tuple[Actor, Critic]:
    """Networks for an environment; the same generator state gives the same initial weights.

    Raises:
        InputError: noise of a colour for actions that are not drawn from normal noise.
    """
    if settings.noise_colour and not isinstance(spec.action, Continuous):
        raise InputError(
            f"noise_colour: got {settings.noise_colour:g}, but this environment's actions are "
            "discrete, and only the noise of a Gaussian policy (Box actions) has a colour; "
            "allowed here: 0. Set it to 0, or take the environment out"
        )
    actor = _make_actor(spec, settings, generator)
    return actor.to(device), Critic(spec, settings, generator).to(device)


def _make_actor(spec: EnvSpec, settings: OnPolicy, generator: torch.Generator) -> Actor:
    match spec.action:
        case Continuous():
            return GaussianActor(spec, spec.action, settings, generator)
        case Categories():
            return CategoricalActor(spec, spec.action, settings, generator)
        case MultiCategories():
            return MultiCategoricalActor(spec, spec.action, settings, generator)
        case Bits():
            return BernoulliActor(spec, spec.action, settings, generator)


def _gumbel(shape: tuple[int, ...], generator: torch.Generator) -> Tensor:
    """Standard Gumbel noise: -log E for E exponential."""
    return -torch.empty(shape, device=generator.device).exponential_(generator=generator).log()


class MLP(nn.Sequential):
    """Layers one after the other; without the checks for their hooks, which take half the time."""

    def forward(self, x: Tensor) -> Tensor:
        """What the last layer gives."""
        for layer in self._modules.values():
            x = layer.forward(x)
        return x


def mlp(
    sizes: tuple[int, ...], settings: OnPolicy, output_gain: float, generator: torch.Generator
) -> nn.Sequential:
    """Linear layers of the sizes with activations between them, orthogonal, biases 0."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        linear = Linear(inputs, outputs)
        nn.init.orthogonal_(linear.weight, math.sqrt(2), generator=generator)
        nn.init.zeros_(linear.bias)
        layers += [linear, ACTIVATIONS[settings.activation]()]
    last = layers[-2]
    with torch.no_grad():
        last.get_parameter("weight").mul_(output_gain / math.sqrt(2))
    return MLP(*layers[:-1])
