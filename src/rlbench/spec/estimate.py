"""How long a benchmark takes and how much it writes, before it runs.

In:      a Benchmark and its cells, or one job of them.
Out:     a few lines for a person, or seconds. Rough on purpose: the rates are of one machine and
         one task.
"""

from rlbench.spec.config import Benchmark
from rlbench.spec.grid import Cell, arms
from rlbench.spec.job import RunSettings, Timing

STEPS_PER_S = {"ppo": 2700, "trpo": 4400}
"""Training steps per second: Pendulum-v1, 8 environments, batch 2,000, two layers of 128, one
thread of a 2.4 GHz server core, PyTorch 2.13, eager; a compiled PPO is faster once it is made."""
EVALUATION_STEPS_PER_S = 27_000
"""Environment steps per second while evaluating, same machine."""
START_S = 6.0
"""From the start of a job's process to its first step, and its end."""
BYTES_PER_RUN = 190_000
BYTES_PER_EPISODE = 16
STEPS_PER_EPISODE = 200


def estimate(benchmark: Benchmark, grid: list[Cell], cores: int) -> str:
    """Cells, time and disk of a benchmark on so many cores."""
    learning_s = sum(learning_time_s(c.algorithm, benchmark.total_steps, benchmark) for c in grid)
    measured = arms(grid) if benchmark.throughput.measure == "always" else []
    timing_s = sum(
        throughput_time_s(
            arm.algorithm, benchmark.batch_size_for(arm.num_envs), benchmark.throughput
        )
        for arm in measured
    )
    parallel = max(1, cores // benchmark.cpu_threads)
    total_s = learning_s / parallel + timing_s
    episodes = benchmark.total_steps / STEPS_PER_EPISODE
    disk = len(grid) * (BYTES_PER_RUN + episodes * BYTES_PER_EPISODE)
    return (
        f"{benchmark.name}: {len(grid)} cells and {len(measured)} throughput runs, "
        f"{len(grid) * benchmark.total_steps:,} training steps\n"
        f"about {_duration(total_s)} on {cores} cores, {parallel} cells at a time, and "
        f"{disk / 2**20:.0f} MiB; rates measured on Pendulum-v1 on one machine, yours will differ"
    )


def learning_time_s(algorithm: str, total_steps: float, run: RunSettings) -> float:
    """Wall time of one learning run, from its start to its end."""
    evaluations = 1 + total_steps / run.eval_every_steps
    evaluation_steps = evaluations * run.eval_episodes * STEPS_PER_EPISODE
    return START_S + total_steps / _rate(algorithm) + evaluation_steps / EVALUATION_STEPS_PER_S


def throughput_time_s(algorithm: str, batch_size: int, timing: Timing) -> float:
    """Wall time of one speed measurement, from its start to its end."""
    updates = timing.repeats * (timing.warmup_updates + timing.updates)
    return START_S + updates * batch_size / _rate(algorithm)


def _rate(algorithm: str) -> float:
    """Steps per second; of the slowest known one where nobody has measured."""
    return STEPS_PER_S.get(algorithm, min(STEPS_PER_S.values()))


def _duration(seconds: float) -> str:
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
