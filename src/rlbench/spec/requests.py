"""What a job asks a cluster's scheduler for: memory and time.

In:      a job, and which attempt at it this is, from 1.
Out:     MiB and minutes, with a margin; a second attempt asks for twice as much as the first.

A scheduler ends a job that takes more than it asked for: too little costs a run, too much a wait.
"""

import math

from rlbench.spec.estimate import STEPS_PER_EPISODE, learning_time_s, throughput_time_s
from rlbench.spec.job import Job, ThroughputJob

JOB_MIB = 2000
"""Measured: 415 for a run, 870 while it compiles, and the two Snakemakes around it."""
CUDA_MIB = 2000
"""More for what CUDA keeps in the host's memory; not measured."""
WORKER_MIB = 128
"""Per environment process. Measured: 55 for Pendulum-v1, 77 for HalfCheetah-v5."""
TRANSITION_KIB = 8
"""Per environment step of a batch. Measured: 2.1 for HalfCheetah-v5 (17 observations)."""
TIME_FACTOR = 5
"""Margin over the estimate, whose rates are those of Pendulum-v1 on one machine."""
START_MINUTES = 10
"""For two Snakemakes that start from a shared disk, compilation, and environment processes."""


def memory_mb(job: Job, attempt: int) -> int:
    """Peak memory of a job with all its processes."""
    workers = job.num_envs if job.vector_mode in {"async", "auto"} else 0  # auto may choose async
    batch = job.actual_batch * TRANSITION_KIB // 1024
    cuda = CUDA_MIB if job.device == "cuda" else 0
    return attempt * (JOB_MIB + cuda + workers * WORKER_MIB + batch)


def learning_minutes(job: Job, attempt: int) -> int:
    """Wall time of a learning run."""
    steps = job.total_steps or (job.num_episodes or 0) * STEPS_PER_EPISODE
    return _minutes(learning_time_s(job.algorithm.name, steps, job), attempt)


def throughput_minutes(timed: ThroughputJob, attempt: int) -> int:
    """Wall time of a speed measurement."""
    batch = timed.job.actual_batch
    return _minutes(throughput_time_s(timed.job.algorithm.name, batch, timed), attempt)


def _minutes(estimate_s: float, attempt: int) -> int:
    return attempt * (START_MINUTES + math.ceil(TIME_FACTOR * estimate_s / 60))
