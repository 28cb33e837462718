"""Experience: T steps in each of N environments under one policy.

In:      environments, actor and critic.
Out:     a Rollout whose `next_values` already know death from a time limit, and the episodes
         that ended.
"""

from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from rlbench.records import EpisodeRow
from rlbench.spec.algorithms import OnPolicy
from rlbench.training.distributions import Distribution, stacked
from rlbench.training.envs.vector import Environments, Transition
from rlbench.training.normalise import (
    Scales,
    clipped,
    discounted_returns,
    normalised,
    nothing_seen,
)
from rlbench.training.policy import Actor, Critic
from rlbench.training.stopwatch import Stopwatch


@dataclass(frozen=True, slots=True)
class Rollout:
    """T steps of experience in each of N environments, on one device."""

    observations: Tensor  # [T, N, O], as the policy saw them
    actions: Tensor  # [T, N, A] or [T, N]; as sampled, before any clipping
    log_probs: Tensor  # [T, N], nats, under the policy that acted
    rewards: Tensor  # [T, N], normalised if the settings say so, times reward_scale
    values: Tensor  # [T, N], V(s_t)
    next_values: Tensor  # [T, N], V(s_{t+1}), and 0 past a terminal state
    ended: Tensor  # [T, N], terminated or out of time

    @property
    def size(self) -> int:
        """B = T N: transitions."""
        return self.rewards.numel()


@dataclass(frozen=True, slots=True)
class Experience:
    """T steps in each of N environments, before the critic has seen them."""

    observations: Tensor  # [T, N, O], as the policy saw them
    actions: Tensor  # [T, N, A] or [T, N]; as sampled
    log_probs: Tensor  # [T, N], nats
    rewards: np.ndarray  # [T, N], float64, raw
    terminated: np.ndarray  # [T, N], bool
    ended: np.ndarray  # [T, N], bool
    final: Tensor  # [E, O], true final observations in the order of `ended`, as they would be seen
    after: Tensor  # [N, O], observations after the last step, as they would be seen
    episodes: list[EpisodeRow]
    """Those that ended, in order."""


class Tally:
    """Counts transitions and episodes of N environments, and the return of each episode."""

    def __init__(self, num_envs: int) -> None:
        self._returns = np.zeros(num_envs)
        self._lengths = np.zeros(num_envs, np.int64)
        self.env_steps = 0
        """Transitions so far, over all environments."""
        self.episodes = 0
        """Episodes that ended so far."""

    def count(self, transition: Transition) -> list[EpisodeRow]:
        """Account for one step; a row for each episode that ended in it."""
        self._returns += transition.rewards
        self._lengths += 1
        self.env_steps += len(self._returns)
        if not transition.ended.any():
            return []
        finished = np.flatnonzero(transition.ended)
        rows = [
            EpisodeRow(
                episode=0,
                env_steps=self.env_steps,
                env=int(i),
                episode_return=float(self._returns[i]),
                length=int(self._lengths[i]),
            )
            for i in finished
        ]
        self._returns[finished] = 0.0
        self._lengths[finished] = 0
        return rows

    def counted(self, rows: list[EpisodeRow], most: int | None) -> list[EpisodeRow]:
        """The first so many of the episodes of a rollout, as those that have ended in it."""
        kept = rows[:most]
        self.episodes += len(kept)
        return kept


class Collector:
    """Steps the environments with the policy and keeps the episodes that are under way."""

    def __init__(
        self,
        envs: Environments,
        networks: tuple[Actor, Critic],
        noise: torch.Generator,
        settings: OnPolicy,
    ) -> None:
        self._envs = envs
        self._actor, self._critic = networks
        self._noise = noise
        self._settings = settings
        self._observations = envs.reset()  # [N, O], raw
        self._discounted = np.zeros(envs.count)
        self.tally = Tally(envs.count)
        self.scales = Scales(
            observations=nothing_seen(envs.spec.observation_size)
            if settings.observation_norm == "running"
            else None,
            returns=nothing_seen(1) if settings.reward_norm == "returns" else None,
        )
        """Moments of every observation acted on, and of the discounted returns, so far."""

    @torch.no_grad()
    def collect(
        self, steps: int, max_episodes: int | None, stopwatch: Stopwatch
    ) -> tuple[Rollout, list[EpisodeRow]]:
        """At most `steps` steps of each environment, fewer once `max_episodes` have ended.

        Episodes beyond `max_episodes` that end in the last step are dropped.

        Raises:
            RunFailed: an environment failed or gave a non-finite number.
        """
        experience = self._gather(steps, max_episodes, stopwatch)
        with stopwatch.lap("policy"):
            rollout = self._assemble(experience)
        return rollout, self.tally.counted(experience.episodes, max_episodes)

    def _gather(self, steps: int, max_episodes: int | None, stopwatch: Stopwatch) -> Experience:
        """See `collect`."""
        acted: list[tuple[Tensor, Tensor, Distribution]] = []
        gained: list[Transition] = []
        rows: list[EpisodeRow] = []
        with stopwatch.lap("policy"):
            noise = self._actor.noise(steps, self._envs.count, self._noise)
        for t in range(steps):
            with stopwatch.lap("policy"):
                observations = self._to_device(self._observe())
                policy = self._actor(observations)
                actions = policy.act(noise[t])
                acted.append((observations, actions, policy))
                for_envs = actions.cpu().numpy()
            with stopwatch.lap("env"):
                step = self._envs.step(for_envs)
            self._observations = step.observations
            rows += self.tally.count(step)
            gained.append(self._final_as_seen(step))
            if max_episodes is not None and len(rows) >= max_episodes:
                break
        with stopwatch.lap("policy"):
            return self._stacked(acted, gained, rows)

    def _observe(self) -> np.ndarray:
        """What the policy is about to act on, [N, O]: counted once, here, then normalised."""
        seen = self.scales.observations
        if seen is not None:
            seen = seen.updated(self._observations)
            self.scales = replace(self.scales, observations=seen)
        return normalised(self._observations, seen)

    def _final_as_seen(self, step: Transition) -> Transition:
        """With final observations on the scale of this moment; nobody acts on them: not counted."""
        if not step.ended.any():
            return step
        final = normalised(step.final_observations, self.scales.observations)
        return replace(step, final_observations=final)

    def _stacked(
        self,
        acted: list[tuple[Tensor, Tensor, Distribution]],
        gained: list[Transition],
        episodes: list[EpisodeRow],
    ) -> Experience:
        """Steps one by one as arrays over all of them."""
        actions = torch.stack([step[1] for step in acted])
        after = normalised(self._observations, self.scales.observations)  # counted when acted on
        return Experience(
            observations=torch.stack([step[0] for step in acted]),
            actions=actions,
            log_probs=stacked([step[2] for step in acted]).log_prob(actions),
            rewards=np.stack([step.rewards for step in gained]),
            terminated=np.stack([step.terminated for step in gained]),
            ended=np.stack([step.ended for step in gained]),
            final=self._to_device(np.concatenate([step.final_observations for step in gained])),
            after=self._to_device(after),
            episodes=episodes,
        )

    def _assemble(self, gathered: Experience) -> Rollout:
        """With values, and rewards as the learner takes them."""
        rewards = self._scaled(gathered) * self._settings.reward_scale
        values = self._critic(gathered.observations)
        return Rollout(
            observations=gathered.observations,
            actions=gathered.actions,
            log_probs=gathered.log_probs,
            rewards=self._to_device(rewards.astype(np.float32)),
            values=values,
            next_values=self._next_values(values, gathered),
            ended=self._to_device(gathered.ended),
        )

    def _scaled(self, gathered: Experience) -> np.ndarray:
        """Rewards [T, N], all divided by one deviation, so that a batch's targets agree."""
        rewards, ended, seen = gathered.rewards, gathered.ended, self.scales.returns
        if seen is None:
            return rewards
        returns = discounted_returns(rewards, ended, self._settings.gamma, self._discounted)
        self._discounted = np.where(ended[-1], 0.0, returns[-1])
        seen = seen.updated(returns.reshape(-1, 1))
        self.scales = replace(self.scales, returns=seen)
        return clipped(rewards / seen.deviation)

    def _next_values(self, values: Tensor, gathered: Experience) -> Tensor:
        """V(s_{t+1}), [T, N]: of the true final observation at a time limit, 0 after a death."""
        last = self._critic(gathered.after)  # [N]
        following = torch.cat([values[1:], last.unsqueeze(0)])  # [T, N]
        if len(gathered.final):
            following[self._to_device(gathered.ended)] = self._critic(gathered.final)
        return following.masked_fill(self._to_device(gathered.terminated), 0.0)

    def _to_device(self, array: np.ndarray) -> Tensor:
        # A copy: PyTorch aligns its memory to 64 bytes, and products repeat bit by bit only then.
        return torch.tensor(array, device=self._noise.device)
