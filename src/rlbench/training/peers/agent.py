"""What the agents of Stable-Baselines3 and of its relatives share.

In:      a model of theirs on our environments.
Out:     an `Agent`: their own loop, cut into rollouts and updates.
"""

import warnings
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from rlbench.errors import RunFailed
from rlbench.records import NAN, EpisodeRow, Metrics
from rlbench.spec.algorithms import OnPolicy, Schedule
from rlbench.training.normalise import Scales
from rlbench.training.peers.vec_env import CountedVecEnv
from rlbench.training.policy import Actor, Critic
from rlbench.training.rollout import Tally
from rlbench.training.stopwatch import Stopwatch

ACTIVATIONS: dict[str, type[nn.Module]] = {"tanh": nn.Tanh, "relu": nn.ReLU}


class Gathered:
    """Experience that stays inside their model."""

    def __init__(self, size: int) -> None:
        self.size = size
        """Transitions."""


class ForeignAgent(ABC):
    """A model of theirs, driven from outside: `collect_rollouts`, then `train`."""

    def __init__(
        self, model: Any, envs: CountedVecEnv, networks: tuple[Actor, Critic], total_steps: int
    ) -> None:
        self._model, self._envs, self._networks = model, envs, networks
        self._total_steps = total_steps
        self.scales = Scales(None, None)
        self.compile_s = 0.0
        model.set_logger(_silent())
        self.begin()
        self.copy_weights()

    def begin(self) -> None:
        """Start to count, and every environment from its seed."""
        self.tally = self._envs.tally = Tally(self._envs.num_envs)
        _, self._callback = self._model._setup_learn(self._total_steps)

    def collect(
        self, steps: int, max_episodes: int | None, stopwatch: Stopwatch
    ) -> tuple[Gathered, list[EpisodeRow]]:
        """See `Gatherer.collect`; a rollout is never cut short by episodes."""
        model = self._model
        model.n_steps = model.rollout_buffer.buffer_size = steps
        start = stopwatch.now()
        model.collect_rollouts(model.env, self._callback, model.rollout_buffer, steps)
        spent_s = stopwatch.now() - start
        env_s, rows = self._envs.take()
        stopwatch.add("env", env_s)
        stopwatch.add("policy", spent_s - env_s)
        rows = self.tally.counted(rows, max_episodes)
        return Gathered(steps * self._envs.num_envs), rows

    def update(self, _: Gathered, remaining: float) -> Metrics:
        """Their own update; our networks get the weights.

        Raises:
            RunFailed: a weight is not finite.
        """
        model = self._model
        model._current_progress_remaining = remaining
        quietly(model.train)
        self.copy_weights()
        if not all(p.isfinite().all() for network in self._networks for p in network.parameters()):
            raise RunFailed(
                f"{type(model).__module__}: a weight is not finite after an update; the run cannot "
                "be trusted from here. Lower the learning rate, or scale the rewards down"
            )
        return metrics_of(model.logger.name_to_value)

    @torch.no_grad()
    def copy_weights(self) -> None:
        """Give our networks the weights of theirs."""
        for network, theirs in zip(self._networks, self.weights(), strict=True):
            for ours, weights in zip(network.parameters(), theirs, strict=True):
                ours.copy_(weights)

    @abstractmethod
    def weights(self) -> tuple[list[Tensor], list[Tensor]]:
        """The weights of their actor and critic, in the order of ours."""


def metrics_of(logged: dict[str, Any]) -> Metrics:
    """What they log about an update, under our names; NaN where they log nothing."""

    def value(name: str, sign: float = 1.0) -> float:
        return sign * float(logged.get(f"train/{name}", NAN))

    first_order = "train/policy_gradient_loss" in logged
    return Metrics(
        surrogate=value("policy_gradient_loss", -1) if first_order else value("policy_objective"),
        critic_loss=value("value_loss"),
        explained_variance=value("explained_variance"),
        entropy_nats=value("entropy_loss", -1),
        kl_nats=value("approx_kl") if first_order else value("kl_divergence_loss"),
        actor_grad_norm=NAN,
        critic_grad_norm=NAN,
        clip_fraction=value("clip_fraction"),
        line_search_success=value("is_line_search_success"),
    )


def quietly(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What the call gives, without its warnings: of sizes that do not divide, of old interfaces."""
    with warnings.catch_warnings(action="ignore"):
        return call(*arguments, **named)


def policy_arguments(settings: OnPolicy) -> dict[str, Any]:
    """Their `policy_kwargs`: an actor and a critic that share nothing."""
    sizes = list(settings.hidden_sizes)
    return {"net_arch": {"pi": sizes, "vf": sizes}, "log_std_init": settings.log_std_init}


def rate(value: float, schedule: Schedule) -> Any:
    """Their form of a schedule: a number, or a function of the remaining share of the budget."""
    return (lambda remaining: value * remaining) if schedule == "linear" else value


def _silent() -> Any:
    from stable_baselines3.common.logger import Logger

    return Logger(None, [])
