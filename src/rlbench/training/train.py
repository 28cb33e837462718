"""Training: collect, update, record.

In:      a Job.
Out:     the rows and facts of the run, its last policy and its best; or why there are none.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np

from rlbench.devices import device_label
from rlbench.errors import RunFailed
from rlbench.machine import resources
from rlbench.records import (
    NAN,
    POLICIES,
    RUN_FACTS,
    EpisodeRow,
    EvaluationRow,
    Metrics,
    ResourceRow,
    RunFacts,
    UpdateRow,
    clear_run,
    write_facts,
    write_rows,
)
from rlbench.spec.job import Job
from rlbench.training.checkpoint import Snapshot, save_policy, take_snapshot
from rlbench.training.evaluate import Evaluator
from rlbench.training.progress import Progress
from rlbench.training.session import Session, opened, reason_kept

RECENT_EPISODES = 20
"""Episodes in the running mean that a person sees."""


@dataclass(slots=True)
class Log:
    """The rows of a run so far, and its best policy."""

    updates: list[UpdateRow] = field(default_factory=list)
    episodes: list[EpisodeRow] = field(default_factory=list)
    evaluations: list[EvaluationRow] = field(default_factory=list)
    best: Snapshot | None = None
    """The policy of the evaluation with the highest mean return, the earliest of equals."""
    best_return: float = NAN
    evaluate_s: float = 0.0

    @property
    def recent_return(self) -> float:
        """Mean return of the last episodes; NaN before the first."""
        recent = [row.episode_return for row in self.episodes[-RECENT_EPISODES:]]
        return float(np.mean(recent)) if recent else NAN


@dataclass(frozen=True, slots=True)
class Finished:
    """A run that reached its budget."""

    facts: RunFacts
    log: Log
    files: list[Path]
    """What was written, in order; empty if nothing was to be."""


def train(job: Job, folder: Path, progress: Progress, command: str, state: Path | None) -> Finished:
    """Run a job and write its files to a folder, in place of those of an earlier run.

    A run that fails writes no rows, but its reason to `state / failure.json`.

    Raises:
        InputError: the job cannot start; files of an earlier run are as they were.
        RunFailed: it started and could not be trusted to its end.
    """
    with reason_kept(state):
        before = resources()
        with opened(job) as session:
            clear_run(folder)
            log = run(session, progress)
            last = _snapshot(session)
        facts = session.facts(
            kind="learning",
            command=command,
            actual_steps=session.collector.tally.env_steps,
            episodes=session.collector.tally.episodes,
            updates=len(log.updates),
            setup_s=session.stopwatch.setup_s,
            wall_s=log.updates[-1].elapsed_s,
        )
        files = [
            write_rows(log.updates, UpdateRow, folder),
            write_rows(log.episodes, EpisodeRow, folder),
            write_rows(log.evaluations, EvaluationRow, folder),
            write_rows([resources(since=before)], ResourceRow, folder),
            save_policy(last, folder / POLICIES["last"]),
            save_policy(log.best or last, folder / POLICIES["best"]),
            write_facts(facts, folder / RUN_FACTS),
        ]
    return Finished(facts, log, files)


def run(session: Session, progress: Progress) -> Log:
    """The training loop."""
    job, collector, watch = session.job, session.collector, session.stopwatch
    log, total = Log(), job.total_steps or job.num_episodes or 0
    progress.begin(first_line(session), total, "steps" if job.total_steps else "episodes")
    with Evaluator(job, session.streams.eval_seeds, session.device) as evaluator:
        _evaluate(session, evaluator, log, due_steps=0)
        watch.start_run()
        while _done(session) < total:
            remaining = 1 - _done(session) / total
            rollout, episodes = collector.collect(*_portion(session), watch)
            with watch.lap("update"):
                metrics = session.learner.update(rollout, remaining)
            _require_finite(session, metrics, len(log.updates))
            due = _due_evaluation(session, log, final=_done(session) >= total)
            if due is not None:
                with watch.lap("evaluate"):
                    _evaluate(session, evaluator, log, due)
            _record(session, log, metrics, episodes)
            progress.show(_done(session), _state(log, metrics))
            if progress.tracker is not None:
                progress.tracker.write(log.updates, log.episodes, log.evaluations)
    progress.end()
    return log


def first_line(session: Session) -> str:
    """What is about to run, for a person."""
    job = session.job
    threads = f"{job.cpu_threads} CPU thread" + "s" * (job.cpu_threads > 1)
    return (
        f"{job.algorithm.name} on {job.environment}: device {device_label(session.device)}, "
        f"num_envs {job.num_envs}, vector mode {session.envs.mode}, {threads}, "
        f"batch size {job.actual_batch}, seed {job.seed}"
    )


def _done(session: Session) -> int:
    """How much of the budget is used, in its own unit."""
    by_steps = session.job.total_steps is not None
    return session.collector.tally.env_steps if by_steps else session.collector.tally.episodes


def _portion(session: Session) -> tuple[int, int | None]:
    """Steps per environment and episodes that the next rollout may take; the last may be short."""
    job, collector = session.job, session.collector
    if job.total_steps is None:
        return job.rollout_steps, (job.num_episodes or 0) - collector.tally.episodes
    left = -(-(job.total_steps - collector.tally.env_steps) // job.num_envs)
    return min(job.rollout_steps, left), None


def _require_finite(session: Session, metrics: Metrics, update: int) -> None:
    """Stop a run whose update, its last step included, made a number that is not finite."""
    for name in session.job.algorithm.always_finite:
        value, env_steps = getattr(metrics, name), session.collector.tally.env_steps
        if not math.isfinite(value):
            raise RunFailed(
                f"{name} of update {update}, at {env_steps:,} steps, is not finite ({value}); the "
                "run cannot be trusted from here. Lower the learning rate, or scale rewards down"
            )


def _due_evaluation(session: Session, log: Log, *, final: bool) -> int | None:
    """The end of the run, the latest multiple of eval_every_steps if it is new, or None."""
    every, steps = session.job.eval_every_steps, session.collector.tally.env_steps
    if final:
        return session.job.total_steps or steps
    reached = steps // every * every
    return reached if reached > log.evaluations[-1].due_steps else None


def _evaluate(session: Session, evaluator: Evaluator, log: Log, due_steps: int) -> None:
    """Add the rows of one evaluation; keep the policy if it is the best so far."""
    outcomes = evaluator.evaluate(session.actor, session.collector.scales.observations)
    mean = float(np.mean([outcome.episode_return for outcome in outcomes]))
    if log.best is None or mean > log.best_return:
        log.best, log.best_return = _snapshot(session), mean
    log.evaluations += [
        EvaluationRow(
            env_steps=session.collector.tally.env_steps,
            due_steps=due_steps,
            episode=i,
            episode_return=outcome.episode_return,
            length=outcome.length,
        )
        for i, outcome in enumerate(outcomes)
    ]


def _snapshot(session: Session) -> Snapshot:
    networks, collector = (session.actor, session.critic), session.collector
    return take_snapshot(networks, collector.scales, collector.tally.env_steps)


def _record(session: Session, log: Log, metrics: Metrics, episodes: Sequence[EpisodeRow]) -> None:
    """Add the rows of one update, made from that update's own numbers."""
    first = len(log.episodes)
    log.episodes += [replace(row, episode=first + i) for i, row in enumerate(episodes)]
    returns = [row.episode_return for row in episodes]
    seconds = session.stopwatch.take()
    log.evaluate_s += seconds.get("evaluate", 0.0)
    log.updates.append(
        UpdateRow(
            update=len(log.updates),
            env_steps=session.collector.tally.env_steps,
            episodes=len(episodes),
            return_mean=float(np.mean(returns)) if returns else NAN,
            **asdict(metrics),
            env_s=seconds.get("env", 0.0),
            policy_s=seconds["policy"],
            update_s=seconds["update"],
            evaluate_s=seconds.get("evaluate", 0.0),
            elapsed_s=session.stopwatch.elapsed(),
        )
    )


def _state(log: Log, metrics: Metrics) -> dict[str, float]:
    """What a person sees after an update."""
    last = log.updates[-1]
    training_s = last.elapsed_s - log.evaluate_s
    return {
        "episodes": len(log.episodes),
        f"return({RECENT_EPISODES})": log.recent_return,
        "updates": len(log.updates),
        "steps/s": round(last.env_steps / training_s),
        "surrogate": metrics.surrogate,
        "critic": metrics.critic_loss,
        "kl": metrics.kl_nats,
        "entropy": metrics.entropy_nats,
        "clipped": metrics.clip_fraction,
        "step": metrics.step_scale,
    }
