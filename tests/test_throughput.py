from pathlib import Path

import pytest
import torch

from jobs import job
from rlbench.records import TimingRow, read_facts, read_rows
from rlbench.spec.job import ThroughputJob
from rlbench.training.stopwatch import Every, Stopwatch
from rlbench.training.throughput import measure


def test_every_repeat_starts_afresh_and_phases_add_up(tmp_path: Path) -> None:
    timing = ThroughputJob(job=job(), updates=2, warmup_updates=1, repeats=3)
    facts = measure(timing, tmp_path, "test")
    rows = read_rows(TimingRow, tmp_path)
    assert list(rows["repeat"]) == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert list(rows["update"]) == [0, 1, 2] * 3
    assert (rows["steps"] == 200).all()
    phases = rows[["env_s", "policy_s", "update_s"]].sum(axis=1)
    assert (phases <= rows["wall_s"]).all()
    assert phases.sum() > 0.9 * rows["wall_s"].sum()
    assert (facts.actual_steps, facts.updates, facts.warmup_updates) == (1800, 9, 1)
    assert read_facts(tmp_path) == facts
    assert facts.job == job()


def test_a_stopwatch_counts_phases_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    """A clock that goes one second further with each look."""
    ticks = iter(range(100))
    monkeypatch.setattr("time.perf_counter", lambda: float(next(ticks)))
    watch = Stopwatch(torch.device("cpu"))
    for phase in ("env", "policy", "env"):
        with watch.lap(phase):
            pass
    assert watch.take() == {"env": 2.0, "policy": 1.0}
    assert watch.take() == {}
    watch.start_run()
    assert watch.setup_s == 7.0
    assert watch.elapsed() == 1.0


def test_every_is_due_at_most_once_in_an_interval(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("time.perf_counter", lambda: now[0])
    due = Every(30)
    seen = []
    for now[0] in (10.0, 30.0, 31.0, 59.0, 61.0):
        seen.append(due.now())
    assert seen == [False, True, False, False, True]
