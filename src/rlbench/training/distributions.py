"""Distributions over actions, as values of their parameters.

In:      the actor's output, one tensor per parameter, first axis [B].
Out:     log-probabilities, entropies and divergences in nats, [B] each.
Source:  closed forms; the Fisher matrices are those of the exponential families.

Noise comes from outside (standard normal, Gumbel or logistic, from an explicit generator), so
nothing here draws from a global stream.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

ABSENT = -1e9
"""Logit of a category that is not there: its probability is 0, and 0 times its log is 0."""


class Distribution(Protocol):
    """What the algorithms ask of a policy's distribution."""

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The parameter tensors, in the order of the fields."""
        ...

    def frozen(self) -> Self:
        """A copy without gradient that later changes of the weights do not reach."""
        ...

    def act(self, noise: Tensor) -> Tensor:
        """Actions from noise of the family's kind."""
        ...

    def mode(self) -> Tensor:
        """The most probable actions."""
        ...

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log-probability (density) of the actions, [B], nats."""
        ...

    def entropy(self) -> Tensor:
        """Entropy, [B], nats."""
        ...

    def kl_to(self, new: Self) -> Tensor:
        """KL divergence KL(self || new), [B], nats."""
        ...

    def fisher_product(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Fisher matrix in the distribution's own parameters, times tangents of their shapes."""
        ...


@dataclass(frozen=True, slots=True)
class DiagonalGaussian:
    """Independent normal distributions of A numbers."""

    mean: Tensor  # [B, A]
    log_std: Tensor  # [B, A] or broadcast to it

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """Mean and log deviation."""
        return self.mean, self.log_std

    def frozen(self) -> "DiagonalGaussian":
        """A copy without gradient that later changes of the weights do not reach."""
        return DiagonalGaussian(self.mean.detach().clone(), self.log_std.detach().clone())

    def act(self, noise: Tensor) -> Tensor:
        """A = mu + sigma z, z standard normal; [B, A]."""
        return torch.addcmul(self.mean, self.log_std.exp(), noise)

    def mode(self) -> Tensor:
        """The mean, [B, A]."""
        return self.mean

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log N(a; mu, sigma) = -z^2 / 2 - log sigma - log(2 pi) / 2, summed over A; [B]."""
        z = (actions - self.mean) * (-self.log_std).exp()
        return (-0.5 * z.square() - self.log_std - 0.5 * math.log(2 * math.pi)).sum(-1)

    def entropy(self) -> Tensor:
        """H = log sigma + log(2 pi e) / 2, summed over A; [B]."""
        per_action = self.log_std + 0.5 * math.log(2 * math.pi * math.e)
        return per_action.expand_as(self.mean).sum(-1)

    def kl_to(self, new: "DiagonalGaussian") -> Tensor:
        """log(s'/s) + (s^2 + (mu - mu')^2) / (2 s'^2) - 1/2, deviations s, summed over A; [B]."""
        log_ratio = new.log_std - self.log_std
        distance = (self.mean - new.mean) * (-new.log_std).exp()
        spread = torch.expm1(-2 * log_ratio)
        return (log_ratio + 0.5 * (spread + distance.square())).sum(-1)

    def fisher_product(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """F = diag(1 / sigma^2) for the mean, 2 I for the log deviation."""
        mean, log_std = tangents
        return mean * (-2 * self.log_std).exp(), 2 * log_std


@dataclass(frozen=True, slots=True)
class Categorical:
    """One of K categories."""

    logits: Tensor  # [B, K], unnormalised

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The logits."""
        return (self.logits,)

    def frozen(self) -> "Categorical":
        """A copy without gradient that later changes of the weights do not reach."""
        return Categorical(self.logits.detach().clone())

    def act(self, noise: Tensor) -> Tensor:
        """The Gumbel-max trick: argmax(logits + g), g standard Gumbel; [B]."""
        return (self.logits + noise).argmax(-1)

    def mode(self) -> Tensor:
        """The category with the largest logit, [B]."""
        return self.logits.argmax(-1)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log p_a, [B]."""
        return self._log_p().gather(-1, actions.unsqueeze(-1)).squeeze(-1)

    def entropy(self) -> Tensor:
        """H = -sum p log p, [B]."""
        log_p = self._log_p()
        return -(log_p.exp() * log_p).sum(-1)

    def kl_to(self, new: "Categorical") -> Tensor:
        """Sum of p (log p - log p'), [B]."""
        log_p = self._log_p()
        return (log_p.exp() * (log_p - new._log_p())).sum(-1)

    def fisher_product(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """F = diag(p) - p p^T."""
        (logits,) = tangents
        p = self._log_p().exp()
        return (p * (logits - (p * logits).sum(-1, keepdim=True)),)

    def _log_p(self) -> Tensor:
        return self.logits.log_softmax(-1)


@dataclass(frozen=True, slots=True)
class MultiCategorical:
    """D independent choices, each one of up to K categories."""

    logits: Tensor  # [B, D, K], unnormalised; ABSENT where a choice has fewer than K

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The logits."""
        return (self.logits,)

    def frozen(self) -> "MultiCategorical":
        """A copy without gradient that later changes of the weights do not reach."""
        return MultiCategorical(self.logits.detach().clone())

    def act(self, noise: Tensor) -> Tensor:
        """Each choice by the Gumbel-max trick, [B, D]."""
        return self._choices().act(noise)

    def mode(self) -> Tensor:
        """The category with the largest logit of each choice, [B, D]."""
        return self._choices().mode()

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log p_a, summed over D; [B]."""
        return self._choices().log_prob(actions).sum(-1)

    def entropy(self) -> Tensor:
        """H = -sum p log p, summed over D; [B]."""
        return self._choices().entropy().sum(-1)

    def kl_to(self, new: "MultiCategorical") -> Tensor:
        """Sum of p (log p - log p'), summed over D; [B]."""
        return self._choices().kl_to(new._choices()).sum(-1)

    def fisher_product(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """F = diag(p) - p p^T for each choice, 0 between them."""
        return self._choices().fisher_product(tangents)

    def _choices(self) -> Categorical:
        """The same as B D categorical distributions."""
        return Categorical(self.logits)


@dataclass(frozen=True, slots=True)
class Bernoulli:
    """D independent bits, each 1 with probability p = sigmoid(logit)."""

    logits: Tensor  # [B, D]

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The logits."""
        return (self.logits,)

    def frozen(self) -> "Bernoulli":
        """A copy without gradient that later changes of the weights do not reach."""
        return Bernoulli(self.logits.detach().clone())

    def act(self, noise: Tensor) -> Tensor:
        """1 where logit + e > 0, e standard logistic: P(e > -logit) = sigmoid(logit); [B, D]."""
        return (self.logits + noise > 0).to(self.logits.dtype)

    def mode(self) -> Tensor:
        """1 where p > 1/2, [B, D]."""
        return (self.logits > 0).to(self.logits.dtype)

    def log_prob(self, actions: Tensor) -> Tensor:
        """Log p for a 1, log (1 - p) for a 0, summed over D; [B]."""
        return logsigmoid((2 * actions - 1) * self.logits).sum(-1)

    def entropy(self) -> Tensor:
        """H = -p log p - q log q, q = 1 - p, summed over D; [B]."""
        p, q = self._probabilities()
        return -(p * logsigmoid(self.logits) + q * logsigmoid(-self.logits)).sum(-1)

    def kl_to(self, new: "Bernoulli") -> Tensor:
        """KL = p (log p - log p') + q (log q - log q'), summed over D; [B]."""
        p, q = self._probabilities()
        of_one = logsigmoid(self.logits) - logsigmoid(new.logits)
        of_zero = logsigmoid(-self.logits) - logsigmoid(-new.logits)
        return (p * of_one + q * of_zero).sum(-1)

    def fisher_product(self, tangents: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """F = diag(p q)."""
        (logits,) = tangents
        p, q = self._probabilities()
        return (p * q * logits,)

    def _probabilities(self) -> tuple[Tensor, Tensor]:
        """Of a 1 and of a 0, each without cancellation."""
        return self.logits.sigmoid(), (-self.logits).sigmoid()


def stacked(steps: Sequence[Distribution]) -> Distribution:
    """T distributions of one kind over [N] as one over [T, N]."""
    columns = zip(*(step.parameters for step in steps), strict=True)
    kind: Callable[..., Distribution] = type(steps[0])
    return kind(*(torch.stack(column) for column in columns))
