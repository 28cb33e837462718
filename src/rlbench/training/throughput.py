"""Speed: full updates of a job, over and over, and nothing else on the clock.

In:      a ThroughputJob.
Out:     seconds per phase of every update. It is judged only if the run had the machine alone.
"""

from pathlib import Path

from rlbench.machine import resources
from rlbench.records import (
    RUN_FACTS,
    ResourceRow,
    RunFacts,
    TimingRow,
    clear_run,
    write_facts,
    write_rows,
)
from rlbench.spec.job import ThroughputJob
from rlbench.training.session import Session, opened, reason_kept


def measure(
    timing: ThroughputJob, folder: Path, command: str, state: Path | None = None
) -> RunFacts:
    """Time a job and write the rows to a folder; a failure leaves its reason in `state`.

    Raises:
        InputError: the job cannot start.
        RunFailed: it started and gave a number that is not finite.
    """
    rows: list[TimingRow] = []
    job, before = timing.job, resources()
    with reason_kept(state):
        for repeat in range(timing.repeats):
            with opened(job) as session:
                if repeat == 0:
                    clear_run(folder)
                job = job.model_copy(update={"vector_mode": session.envs.mode})
                session.stopwatch.start_run()
                rows += [
                    _timed_update(session, repeat, update)
                    for update in range(timing.warmup_updates + timing.updates)
                ]
        facts = session.facts(
            kind="throughput",
            command=command,
            actual_steps=sum(row.steps for row in rows),
            episodes=session.collector.tally.episodes,
            updates=len(rows),
            warmup_updates=timing.warmup_updates,
            setup_s=session.stopwatch.setup_s,
            wall_s=sum(row.wall_s for row in rows),
        ).model_copy(update={"job": timing.job})
        write_rows(rows, TimingRow, folder)
        write_rows([resources(since=before)], ResourceRow, folder)
        write_facts(facts, folder / RUN_FACTS)
    return facts


def _timed_update(session: Session, repeat: int, update: int) -> TimingRow:
    watch = session.stopwatch
    start = watch.now()
    rollout, _ = session.collector.collect(session.job.rollout_steps, None, watch)
    with watch.lap("update"):
        session.learner.update(rollout, remaining=1.0)
    wall_s, seconds = watch.now() - start, watch.take()
    return TimingRow(
        repeat=repeat,
        update=update,
        steps=rollout.size,
        env_s=seconds.get("env", 0.0),
        policy_s=seconds["policy"],
        update_s=seconds["update"],
        wall_s=wall_s,
    )
