"""A job made ready to run: process set up, streams open, environments and networks made.

In:      a Job.
Out:     the parts that the loops put to work, closed again at the end.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from rlbench.devices import choose_device, device_label
from rlbench.errors import InputError, RlbenchError
from rlbench.machine import configure_torch, describe_machine, describe_numerics
from rlbench.records import FAILURE, Failure, Machine, RunFacts, Software, write_facts
from rlbench.software import describe_software
from rlbench.spec.job import Job, VectorMode
from rlbench.training.algorithms import make_learner, named, wants_compiled, why_not_compiled
from rlbench.training.algorithms.learner import Agent, Gatherer, Learner, example_batch
from rlbench.training.envs.batched import has_native
from rlbench.training.envs.vector import Environments
from rlbench.training.fused import FusedCollector
from rlbench.training.policy import Actor, Critic, make_actor_critic
from rlbench.training.rollout import Collector
from rlbench.training.seeding import Streams, open_streams, seed_globals
from rlbench.training.stopwatch import Stopwatch, utc_now


@dataclass(frozen=True, slots=True)
class Session:
    """The parts of one run."""

    job: Job
    device: torch.device
    streams: Streams
    envs: Environments
    actor: Actor
    critic: Critic
    collector: Gatherer
    learner: Learner
    stopwatch: Stopwatch
    started: str
    compile_s: float
    """Seconds to make the compiled programs; 0 in eager mode."""
    machine: Machine
    software: Software
    """Both as they were before the first step."""

    def facts(self, **measured: Any) -> RunFacts:
        """The facts of this run, given what only its loop knows."""
        return RunFacts(
            job=self.job,
            device=device_label(self.device),
            vector_mode=self.envs.mode,
            actual_batch=self.job.actual_batch,
            torch_threads=torch.get_num_threads(),
            torch_interop_threads=torch.get_num_interop_threads(),
            started=self.started,
            ended=utc_now(),
            compiled=self.compile_s > 0,
            compile_s=self.compile_s,
            seeds=self.streams.seeds,
            machine=self.machine,
            software=self.software,
            numerics=describe_numerics(compiled=self.compile_s > 0),
            **measured,
        )


@contextmanager
def reason_kept(state: Path | None) -> Iterator[None]:
    """Leave `failure.json` in a folder if the block raises, and none if it succeeds."""
    try:
        yield
    except Exception as error:
        if state is not None:
            known = isinstance(error, RlbenchError)
            reason = str(error) if known else f"{type(error).__name__}: {error}"
            write_facts(Failure(reason=reason, ended=utc_now()), state / FAILURE)
        raise
    if state is not None:
        (state / FAILURE).unlink(missing_ok=True)


Parts = tuple[Gatherer, Learner, float]
"""What gathers experience, what learns from it, and the seconds that were spent on compiling."""


def _learner(
    job: Job, envs: Environments, networks: tuple[Actor, Critic], streams: Streams
) -> Parts:
    """An algorithm that learns from our rollouts."""
    watch = Stopwatch(streams.noise.device)
    fused, example = envs.mode == "fused", None
    collector = (
        FusedCollector(envs, networks, streams.noise, job.algorithm, job.rollout_steps)
        if fused
        else Collector(envs, networks, streams.noise, job.algorithm)
    )
    if wants_compiled(job):
        example = example_batch(envs.spec, job.actual_batch, streams.noise.device)
    learner = make_learner(job.algorithm, networks, streams.shuffling, example)
    return collector, learner, watch.elapsed() if fused or example else 0.0


def _agent(job: Job, envs: Environments, networks: tuple[Actor, Critic], streams: Streams) -> Parts:
    """An algorithm that gathers its own experience.

    Raises:
        InputError: its library is not installed.
    """
    try:
        agent: Agent = named(job.algorithm.agent)(job, envs, networks, streams.foreign_seed)
    except ModuleNotFoundError as error:
        raise InputError(
            f"algorithm '{job.algorithm.name}': {error}; pip install 'rlbench[peers]' has it"
        ) from error
    return agent, agent, agent.compile_s


def _vector_mode(job: Job) -> VectorMode:
    """The mode that was asked for, and what `auto` is where nothing has to be measured.

    Raises:
        InputError: a program is asked for that cannot be compiled here.
    """
    if job.vector_mode == "fused" and (reason := why_not_compiled()):
        raise InputError(f"vector_mode: got 'fused', but {reason}; or use 'native' or 'auto'")
    if job.vector_mode != "auto":
        return job.vector_mode
    if job.algorithm.agent:
        return "sync"
    return "fused" if has_native(job.environment) and wants_compiled(job) else "auto"


@contextmanager
def opened(job: Job) -> Iterator[Session]:
    """Everything a run of the job needs; environments are closed whatever happens.

    Raises:
        InputError: the device, the environment or its spaces cannot be had; nothing has started.
    """
    started = utc_now()
    device = torch.device(choose_device(job.device))
    configure_torch(job.cpu_threads, job.matmul_precision, job.deterministic == "always")
    machine, software = describe_machine(), describe_software()  # with the variables just set
    stopwatch = Stopwatch(device)
    streams = open_streams(job.seed, job.num_envs, job.eval_episodes, device)
    with Environments(
        job.environment,
        _vector_mode(job),
        streams.env_seeds,
        job.env_timeout_s,
        job.algorithm.action_bounds,
    ) as envs:
        seed_globals(job.seed)
        networks = make_actor_critic(envs.spec, job.algorithm, streams.initialisation, device)
        parts = _agent if job.algorithm.agent else _learner
        collector, learner, compile_s = parts(job, envs, networks, streams)
        yield Session(
            job=job,
            device=device,
            streams=streams,
            envs=envs,
            actor=networks[0],
            critic=networks[1],
            collector=collector,
            learner=learner,
            compile_s=compile_s,
            stopwatch=stopwatch,
            started=started,
            machine=machine,
            software=software,
        )
