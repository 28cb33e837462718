"""Finished runs, played again from their files.

In:      the folder of a run, and which of its policies.
Out:     evaluation episodes, bit for bit those that the run has recorded; a film of the first.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from rlbench.devices import devices_here
from rlbench.errors import InputError
from rlbench.machine import configure_torch, describe_machine
from rlbench.provenance import differences
from rlbench.records import POLICIES, EvaluationRow, PolicyName, RunFacts, read_facts, read_rows
from rlbench.software import describe_software
from rlbench.spec.job import Job
from rlbench.training.checkpoint import Snapshot, load_policy
from rlbench.training.distributions import Distribution
from rlbench.training.evaluate import Evaluator, Outcome
from rlbench.training.film import Episode, film_episode, require_film
from rlbench.training.policy import Actor, Critic, make_actor_critic
from rlbench.training.seeding import open_streams, seed_globals


@dataclass(frozen=True, slots=True)
class Loaded:
    """A policy of a finished run in networks of its own, with environments to play in."""

    facts: RunFacts
    seeds: Sequence[int]
    """Of the environments, one episode each."""
    device: torch.device
    """The job's where there is one, else the CPU."""
    evaluator: Evaluator
    actor: Actor
    critic: Critic
    snapshot: Snapshot

    def play(self) -> list[Outcome]:
        """One episode per seed, actions without noise."""
        return self.evaluator.evaluate(self.actor, self.snapshot.scales.observations)


@dataclass(frozen=True, slots=True)
class Replay:
    """What a policy of a run has played again."""

    job: Job
    policy: PolicyName
    env_steps: int
    """Training transitions before the policy."""
    device: str
    """The device really used."""
    outcomes: list[Outcome]
    compared: bool
    """Whether these are the run's own episodes on its own kind of device."""
    difference: str
    """How they are not those recorded; empty if they are, or are not compared."""


def evaluate_run(
    folder: Path, policy: PolicyName = "last", seeds: Sequence[int] | None = None
) -> list[Outcome]:
    """Play one episode per environment seed with a policy of the run in a folder.

    Without seeds: the run's own evaluation, bit for bit. The number of episodes is the size of a
    batch, and another size may round the last bit of an action otherwise.

    Raises:
        InputError: there is no finished learning run, or its policy cannot be read.
        RunFailed: an environment failed.
    """
    with loaded(folder, policy, seeds) as saved:
        return saved.play()


def replay(
    folder: Path, policy: PolicyName, episodes: int | None = None, film: Path | None = None
) -> Replay:
    """Play the first so many of the run's evaluation episodes; by default all, and compare them.

    Raises:
        InputError: there is no finished learning run, its policy cannot be read, or no film made.
        RunFailed: an environment failed, or the film is not of the episode that was played.
    """
    facts = _learning(folder)
    job = facts.job
    count = job.eval_episodes if episodes is None else episodes
    if count < 1:
        raise InputError(f"--episodes: got {count}; must be at least 1")
    if film is not None:
        require_film(film, job.environment)
    with loaded(folder, policy, evaluation_seeds(job, count)) as saved:
        actions = _watched(saved)
        outcomes = saved.play()
    if film is not None:
        first = outcomes[0]
        taken = actions[: first.length]
        film_episode(Episode(job.environment, saved.seeds[0], taken, first.episode_return), film)
    env_steps, device = saved.snapshot.env_steps, saved.device.type
    compared = count == job.eval_episodes and device == job.device
    recorded = _recorded(folder, env_steps) if compared else outcomes
    return Replay(
        job=job,
        policy=policy,
        env_steps=env_steps,
        device=device,
        outcomes=outcomes,
        compared=compared,
        difference=_difference(outcomes, recorded, facts),
    )


def _watched(saved: Loaded) -> list[Any]:
    """The actions of the first environment, in the order in which they will be taken."""
    actions: list[Any] = []
    to_env = saved.evaluator.spec.action.to_env

    def keep(_: nn.Module, __: object, distribution: Distribution) -> None:
        actions.append(to_env(distribution.mode()[:1].cpu().numpy())[0])

    saved.actor.register_forward_hook(keep)
    return actions


@contextmanager
def loaded(
    folder: Path, policy: PolicyName, seeds: Sequence[int] | None = None
) -> Iterator[Loaded]:
    """The networks of a run with the weights of one of its policies; environments are closed.

    Raises:
        InputError: there is no finished learning run, or its policy cannot be read.
    """
    facts = _learning(folder)
    job = facts.job
    device = torch.device(job.device if job.device in devices_here().present else "cpu")
    configure_torch(job.cpu_threads, job.matmul_precision, job.deterministic == "always")
    chosen = evaluation_seeds(job, job.eval_episodes) if seeds is None else seeds
    with Evaluator(job, chosen, device) as evaluator:
        seed_globals(job.seed)
        generator = open_streams(job.seed, 1, 1, device).initialisation
        networks = make_actor_critic(evaluator.spec, job.algorithm, generator, device)
        snapshot = load_policy(folder / POLICIES[policy], networks)
        yield Loaded(facts, chosen, device, evaluator, *networks, snapshot)


def evaluation_seeds(job: Job, episodes: int) -> list[int]:
    """Seeds of the first evaluation episodes of a job: those it plays itself, and more."""
    return open_streams(job.seed, 1, episodes, torch.device("cpu")).eval_seeds


def _learning(folder: Path) -> RunFacts:
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; must be that of a run, with run.json in it")
    facts = read_facts(folder)
    if facts.kind != "learning":
        raise InputError(f"{folder}: a {facts.kind} run, which keeps no policy; must be a learning")
    return facts


def _recorded(folder: Path, env_steps: int) -> list[Outcome]:
    """The episodes that the run has recorded for the policy after so many steps."""
    table = read_rows(EvaluationRow, folder)
    rows = table[table["env_steps"] == env_steps].sort_values("episode")
    return [
        Outcome(float(episode_return), int(length))
        for episode_return, length in zip(rows["episode_return"], rows["length"], strict=True)
    ]


def _difference(outcomes: list[Outcome], recorded: list[Outcome], facts: RunFacts) -> str:
    """What a person should know if the episodes are not those recorded; empty if they are."""
    if outcomes == recorded:
        return ""
    changed = [
        *differences(facts.machine, describe_machine(), place="machine"),
        *differences(facts.software, describe_software(), place="software"),
    ]
    differing = sum(o != r for o, r in zip(outcomes, recorded, strict=False))
    return (
        f"the episodes are not those that the run recorded: {differing} of {len(recorded)} differ. "
        f"Changed since the run: {'; '.join(changed) or 'nothing that run.json knows of'}"
    )
