"""Experience from one compiled program: T steps of policy and native environments in one call.

In:      native environments, actor and critic.
Out:     the rollouts that a Collector has, up to float rounding.

`torch.compile` reads equations, scales and limits of actions from their NumPy code, so that they
are written once. Observations never leave the device; what does is read once per rollout.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from rlbench.errors import RunFailed
from rlbench.records import EpisodeRow
from rlbench.spec.algorithms import OnPolicy
from rlbench.training.envs.spaces import Continuous
from rlbench.training.envs.vector import Environments
from rlbench.training.normalise import Moments, normalised
from rlbench.training.policy import Actor, Critic
from rlbench.training.program import Loops, Tensors, make_program
from rlbench.training.rollout import Collector, Experience
from rlbench.training.stopwatch import Stopwatch

NO_LIMIT = 2**62
"""More episodes than a rollout can have."""

Stepped = tuple[Tensors, Tensors]
"""What goes on after a step, and what the step gave."""


class FusedCollector(Collector):
    """A Collector whose steps are one program; its environments are in vector mode `fused`."""

    def __init__(
        self,
        envs: Environments,
        networks: tuple[Actor, Critic],
        noise: torch.Generator,
        settings: OnPolicy,
        steps: int,
    ) -> None:
        """Compile for rollouts of at most so many steps of each environment."""
        super().__init__(envs, networks, noise, settings)
        self._steps, self._native = steps, envs.native
        queues = [self._native.starts(i, steps) for i in range(envs.count)]
        self._starts = np.stack(queues, -1).swapaxes(0, 1)  # [T, S, N], each environment's next
        zeros = torch.zeros(envs.count, dtype=torch.int64, device=noise.device)
        self._going: Tensors = (
            self._to_device(self._native.state),  # [S, N]
            zeros,  # [N], steps of the episode under way
            zeros.double(),  # [N], its return
            *map(self._to_device, parts(self.scales.observations)),
        )
        action = envs.spec.action
        self._limits = (
            [*map(self._to_device, action.limits)] if isinstance(action, Continuous) else []
        )
        self._program = make_program(self._run, noise.device)
        silence = torch.Generator(noise.device)
        with torch.no_grad():  # no step, but the program is made
            self._call(self._actor.noise(steps, envs.count, silence), 0, None)

    def _gather(self, steps: int, max_episodes: int | None, stopwatch: Stopwatch) -> Experience:
        """See `Collector.collect`; all of it is the policy's time, the environments' too."""
        with stopwatch.lap("policy"):
            noise = self._actor.noise(steps, self._envs.count, self._noise)
            unused = noise.new_zeros(self._steps - steps, *noise.shape[1:])
            going, used, done, after, gained = self._call(
                torch.cat([noise, unused]), steps, max_episodes
            )
            self._going = tuple(part.clone() for part in going)
            self._refill(used.cpu().numpy())
            if self.scales.observations is not None:
                count, mean, squares = (part.cpu().numpy() for part in self._going[3:])
                seen = Moments(int(count), mean, squares)
                self.scales = replace(self.scales, observations=seen)
            return self._experience(after, [column[: int(done)] for column in gained])

    def _call(self, noise: Tensor, steps: int, max_episodes: int | None) -> Any:
        """The program with the states as they are now; see `_run`."""
        most = NO_LIMIT if max_episodes is None else max_episodes
        limits = tuple(torch.tensor(limit, device=noise.device) for limit in (steps, most))
        return self._program(self._going, self._to_device(self._starts), noise, limits)

    def _refill(self, used: np.ndarray) -> None:
        """Draw as many first states of each environment as were used, [N]."""
        for i in np.flatnonzero(used).tolist():
            queue, k = self._starts[:, :, i], int(used[i])
            queue[:-k] = queue[k:].copy()
            queue[-k:] = self._native.starts(i, k).T

    def _experience(self, after: Tensor, gained: list[Tensor]) -> Experience:
        """What the program gave, with a row per episode that ended."""
        observations, actions, log_probs, final, *numbers = gained
        rewards, terminated, ended, returns, lengths = (part.cpu().numpy() for part in numbers)
        if not (observations.isfinite().all() and np.isfinite(rewards).all()):
            raise RunFailed(
                "an environment gave a non-finite observation or reward; the run cannot be trusted "
                "from here. Vector mode 'native' says which one and when"
            )
        steps, count = self.tally.env_steps, self._envs.count
        self.tally.env_steps += rewards.size
        rows = [
            EpisodeRow(
                episode=0,
                env_steps=steps + (int(t) + 1) * count,
                env=int(i),
                episode_return=float(returns[t, i]),
                length=int(lengths[t, i]),
            )
            for t, i in np.argwhere(ended)
        ]
        return Experience(
            observations=observations,
            actions=actions,
            log_probs=log_probs,
            rewards=rewards,
            terminated=terminated,
            ended=ended,
            final=final[self._to_device(ended)],
            after=after,
            episodes=rows,
        )

    def _run(
        self, loops: Loops, going: Tensors, starts: Tensor, noise: Tensor, limits: Tensors
    ) -> tuple[Tensors, Tensor, Tensor, Tensor, Tensors]:
        """T steps, of which those beyond a limit change nothing.

        Args:
            loops: those of the program.
            going: what goes on from rollout to rollout, see the constructor.
            starts: next first states of each environment, [T, S, N].
            noise: of the actions, [T, N, ...].
            limits: steps of each environment, [], and episodes of all, [].

        Returns:
            What goes on; first states used, [N]; steps done, []; observations after them, [N, O];
            what each step gave, [T, ...] each.
        """
        most_steps, most_episodes = limits

        def body(carry: Tensors, drawn: Tensor) -> Stepped:
            done, episodes, used, *before = carry
            following, ended, gained = self._step(tuple(before), starts, used, drawn)
            moved = (done + 1, episodes + ended.sum(), used + ended, *following)
            active = (done < most_steps) & (episodes < most_episodes)
            kept = [torch.where(active, new, old) for new, old in zip(moved, carry, strict=True)]
            return tuple(kept), gained

        none = torch.zeros_like(most_steps)
        start = (none, none.clone(), torch.zeros_like(going[1]), *(part.clone() for part in going))
        (done, _, used, *last), gained = loops.scan(body, start, noise)
        raw = self._native.dynamics.observe(last[0].numpy())
        after = torch.as_tensor(normalised(raw, self._seen(last)))
        return tuple(last), used, done, after, gained

    def _step(
        self, going: Tensors, starts: Tensor, used: Tensor, noise: Tensor
    ) -> tuple[Tensors, Tensor, Tensors]:
        """One step of each environment, which starts anew where its episode ends.

        Returns:
            What goes on; whether an episode ended, [N]; what the step gave.
        """
        state, lengths, returns, *_ = going
        dynamics = self._native.dynamics
        raw, seen = dynamics.observe(state.numpy()), self._seen(going)
        if seen is not None:
            seen = seen.updated(raw)
        observations = torch.as_tensor(normalised(raw, seen))
        policy = self._actor(observations)
        actions = policy.act(noise)
        moved, rewards, died = map(
            torch.as_tensor, dynamics.step(state.numpy(), self._allowed(actions))
        )
        final = torch.as_tensor(normalised(dynamics.observe(moved.numpy()), seen))
        lengths, returns = lengths + 1, returns + rewards
        ended = died | (lengths >= self._native.limit)
        fresh = starts.gather(0, used.expand(1, len(state), -1)).squeeze(0)
        following = (
            torch.where(ended, fresh, moved),
            torch.where(ended, 0, lengths),
            torch.where(ended, 0.0, returns),
            *map(torch.as_tensor, parts(seen)),
        )
        seen_and_done = (observations, actions, policy.log_prob(actions), final)
        return following, ended, (*seen_and_done, rewards.double(), died, ended, returns, lengths)

    def _allowed(self, actions: Tensor) -> np.ndarray:
        """Actions as the environments take them, within the program."""
        action = self._envs.spec.action
        if isinstance(action, Continuous):
            return action.within(actions.numpy(), *(limit.numpy() for limit in self._limits))
        return action.to_env(actions.numpy())

    @staticmethod
    def _seen(going: Sequence[Tensor]) -> Moments | None:
        """The scale of observations, within the program."""
        moments: list[Any] = [part.numpy() for part in going[3:]]
        return Moments(*moments) if moments else None


def parts(seen: Moments | None) -> tuple[Any, ...]:
    """A scale as what goes on from step to step."""
    return () if seen is None else (seen.count, seen.mean, seen.squares)
