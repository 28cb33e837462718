"""What a job asks a scheduler for, worked out by hand from the constants' meanings."""

import pytest

from rlbench.spec.algorithms import PPO, TRPO
from rlbench.spec.job import Job, ThroughputJob
from rlbench.spec.requests import learning_minutes, memory_mb, throughput_minutes


def job(**changes: object) -> Job:
    """PPO for 270,000 steps: 100 s at the 2,700 steps per second of the estimate."""
    values: dict[str, object] = {
        "environment": "Pendulum-v1",
        "num_envs": 8,
        "device": "cpu",
        "seed": 0,
        "total_steps": 270_000,
        "batch_size": 2048,
        "vector_mode": "sync",
        "eval_every_steps": 270_000,
        "eval_episodes": 135,
        "algorithm": PPO(),
    }
    return Job.model_validate(values | changes)


def test_time_by_hand() -> None:
    """Start 6 s, training 100 s, two evaluations of 27,000 steps 2 s: 5 times 108 s are 9 min."""
    assert learning_minutes(job(), 1) == 10 + 9


def test_episodes_are_counted_as_200_steps() -> None:
    assert learning_minutes(job(total_steps=None, num_episodes=1350), 1) == 10 + 9


def test_time_of_a_speed_measurement_by_hand() -> None:
    """3 times (1 + 3) updates of 4,400 steps at 4,400 per second, and 6 s: 5 times 18 s, up."""
    timed = ThroughputJob(job=job(algorithm=TRPO(), batch_size=4400), updates=3, repeats=3)
    assert throughput_minutes(timed, 1) == 10 + 2


def test_an_environment_process_and_a_gpu_cost_memory() -> None:
    """2,048 transitions of 8 KiB are 16 MiB; a process is 128, and `auto` may start some."""
    assert memory_mb(job(), 1) == 2016
    assert memory_mb(job(vector_mode="async"), 1) == memory_mb(job(vector_mode="auto"), 1) == 3040
    assert memory_mb(job(device="cuda"), 1) == 4016


@pytest.mark.parametrize("attempt", [2, 3])
def test_an_attempt_asks_for_as_many_times_as_much(attempt: int) -> None:
    timed = ThroughputJob(job=job())
    assert memory_mb(job(), attempt) == attempt * memory_mb(job(), 1)
    assert learning_minutes(job(), attempt) == attempt * learning_minutes(job(), 1)
    assert throughput_minutes(timed, attempt) == attempt * throughput_minutes(timed, 1)
