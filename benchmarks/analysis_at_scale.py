"""What the analysis costs on big results folders, in seconds and GiB, beside its targets.

Each command is a whole process, Python's start included. The folders are synthetic, written by the
package's own writers: a run per seed and shape, copied to every cell with that seed; cells with
facts of their own. Evaluations are the defaults': every 10,000 steps, 20 episodes.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import numpy as np
import tyro

from rlbench.analysis.aggregate import write_plan
from rlbench.machine import describe_machine, describe_numerics
from rlbench.records import (
    RUN_FACTS,
    EpisodeRow,
    EvaluationRow,
    ResourceRow,
    Row,
    RunFacts,
    TimingRow,
    UpdateRow,
    write_facts,
    write_rows,
)
from rlbench.software import describe_software
from rlbench.spec.config import Benchmark
from rlbench.spec.grid import Cell, Devices, arms, job
from rlbench.spec.job import Job
from rlbench.spec.plan import Plan, make_plan
from rlbench.spec.settings import Settings
from rlbench.training.seeding import stream_seeds

COMMAND = "import sys; from rlbench.cli import main; sys.exit(main())"
STEPS = 1_000_000
EVERY, PLAYED = 10_000, 20
"""Steps between evaluations, and episodes in each."""
NOW = "2026-01-01T00:00:00+00:00"


@dataclass(frozen=True, slots=True)
class Scale:
    """How big a results folder is."""

    title: str
    algorithms: Sequence[str]
    environments: int
    num_envs: Sequence[int]
    updates: int
    """Rows per run."""
    episodes: int
    """Rows per run."""
    targets: dict[str, str]
    """What was promised of each command."""


SCALES = {
    "runs": Scale(
        "2,000 runs", ("ppo", "ppo-kl", "a2c", "trpo", "npg"), 10, (1, 4, 16, 64), 500, 1000,
        {"aggregate": "60 s, 2 GiB"},
    ),
    "steps": Scale(
        "10 seeds x 2 algorithms x 1,000,000 steps, batch 2,000", ("ppo", "trpo"), 1, (8,),
        500, 5000, {"figures": "10 s"},
    ),
    "rows": Scale(
        "10 seeds x 2 algorithms x 1,000,000 steps, batch 50", ("ppo", "trpo"), 1, (8,),
        20_000, 20_000, {"figures": "10 s"},
    ),
}  # fmt: skip
SEEDS = range(10)


def main(scales: tyro.conf.Positional[tuple[str, ...]] = tuple(SCALES)) -> None:
    """Make each folder and run every command of the analysis on it."""
    for scale in (SCALES[name] for name in scales):
        with tempfile.TemporaryDirectory() as place:
            plan = make_folder(scale, Path(place))
            print(
                f"\n{scale.title}: {len(plan.cells):,} runs of {scale.updates:,} updates, "
                f"{scale.episodes:,} episodes, {len(evaluated_at())} evaluations of {PLAYED}"
            )
            for command in ("aggregate", "tables", "figures", "report"):
                seconds, cpu_s, peak_gib = measured(command, place)
                promised = scale.targets.get(command)
                print(
                    f"{command:<10}{seconds:7.1f} s {cpu_s:7.1f} s of CPU {peak_gib:6.2f} GiB"
                    + (f"   target {promised}" if promised else ""),
                    flush=True,
                )


def measured(command: str, folder: str) -> tuple[float, float, float]:
    """Seconds, CPU seconds and peak memory, GiB, of one command as a process of its own."""
    start = perf_counter()
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND, command, folder], stdout=subprocess.DEVNULL
    )
    _, status, used = os.wait4(process.pid, 0)
    seconds = perf_counter() - start
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, command
    return seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 2**20


def make_folder(scale: Scale, folder: Path) -> Plan:
    """A results folder in which every planned cell has finished."""
    names = [f"Synthetic{i}-v0" for i in range(scale.environments)]
    benchmark = Benchmark.model_validate(
        {
            "name": "scale",
            "algorithms": scale.algorithms,
            "environments": names,
            "num_envs": scale.num_envs,
            "devices": ["cpu"],
            "seeds": list(SEEDS),
            "total_steps": STEPS,
            "batch_size": max(STEPS // scale.updates, *scale.num_envs, 50),
            "thresholds": dict.fromkeys(names, 0.0),
        }
    )
    plan = make_plan(benchmark, Devices(present=("cpu",)), "config/scale.yaml")
    write_plan(plan, folder)
    record = {
        "machine": describe_machine(),
        "software": describe_software(),
        "numerics": describe_numerics(compiled=False),
        "seeds": stream_seeds(0, max(scale.num_envs), PLAYED),
    }
    made = {seed: write_run(scale, seed, folder / "made" / str(seed)) for seed in SEEDS}
    for cell in plan.cells:
        link(made[cell.seed], folder / "runs" / cell.path)
        facts = facts_of(scale, job(benchmark, cell), "learning", record)
        write_facts(facts, folder / "runs" / cell.path / RUN_FACTS)
    for arm in arms(plan.cells):
        place = folder / "throughput" / arm.path
        write_rows(rows_of(TimingRow, {"repeat": 0, "update": np.arange(4)}), TimingRow, place)
        timed = job(benchmark, Cell(**asdict(arm), seed=0))
        write_facts(facts_of(scale, timed, "throughput", record), place / RUN_FACTS)
    return plan


def write_run(scale: Scale, seed: int, folder: Path) -> list[Path]:
    """The rows of one run: a return that rises to 0, and noise."""
    rng = np.random.default_rng(seed)
    updates = np.arange(scale.updates)
    noise = {f.name: rng.random(scale.updates) for f in fields(UpdateRow) if f.type is float}
    every = {
        UpdateRow: {
            **noise,
            "update": updates,
            "env_steps": (updates + 1) * (STEPS // scale.updates),
        },
        EpisodeRow: {
            "episode": np.arange(scale.episodes),
            "env_steps": (np.arange(scale.episodes) + 1) * (STEPS // scale.episodes),
            "episode_return": returns(scale.episodes, rng),
        },
        EvaluationRow: {
            "env_steps": np.repeat(evaluated_at(), PLAYED),
            "due_steps": np.repeat(evaluated_at(), PLAYED),
            "episode": np.tile(np.arange(PLAYED), len(evaluated_at())),
            "episode_return": returns(len(evaluated_at()) * PLAYED, rng),
        },
        ResourceRow: {"peak_memory_mib": np.array([300.0])},
    }
    return [write_rows(rows_of(kind, made), kind, folder) for kind, made in every.items()]


def evaluated_at() -> np.ndarray:
    """Steps before each evaluation."""
    return np.arange(0, STEPS + 1, EVERY)


def returns(count: int, rng: np.random.Generator) -> np.ndarray:
    """From about -1000 to about 0."""
    values: np.ndarray = rng.normal(np.linspace(-1000, 0, count), 100)
    return values


def rows_of(kind: type[Row], columns: dict[str, Any]) -> list[Row]:
    """Rows with these columns, of one length or constant; 1 in every other column."""
    count = max(np.size(values) for values in columns.values())
    filled = [
        np.broadcast_to(columns.get(f.name, 1), count).astype(f.type).tolist() for f in fields(kind)
    ]
    names = [f.name for f in fields(kind)]
    return [kind(**dict(zip(names, values, strict=True))) for values in zip(*filled, strict=True)]


def link(files: list[Path], folder: Path) -> None:
    """The same files in another folder."""
    folder.mkdir(parents=True)
    for path in files:
        (folder / path.name).hardlink_to(path)


def facts_of(
    scale: Scale, run: Job, kind: Literal["learning", "throughput"], record: dict[str, Settings]
) -> RunFacts:
    """The facts of a run that took 100 s."""
    return RunFacts(
        kind=kind,
        job=run,
        device="cpu",
        vector_mode="sync",
        actual_batch=run.actual_batch,
        actual_steps=STEPS,
        episodes=scale.episodes,
        updates=scale.updates,
        warmup_updates=1 if kind == "throughput" else 0,
        torch_threads=1,
        torch_interop_threads=1,
        compiled=False,
        compile_s=0.0,
        setup_s=1.0,
        wall_s=100.0,
        started=NOW,
        ended=NOW,
        command="rlbench train",
        **record,
    )


if __name__ == "__main__":
    tyro.cli(main)
