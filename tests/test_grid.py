import json
from typing import Any

import pytest

from rlbench.errors import InputError
from rlbench.spec.config import Benchmark
from rlbench.spec.grid import (
    Arm,
    Cell,
    Devices,
    arms,
    cells,
    expand_devices,
    job,
    slug,
    throughput_job,
    unslug,
)
from rlbench.spec.job import Job

CPU_ONLY = Devices(present=("cpu",), missing={"cuda": "no driver"})


def benchmark(**changes: Any) -> Benchmark:
    values = {
        "name": "tiny",
        "environments": ["Pendulum-v1", "CartPole-v1"],
        "num_envs": [1, 8],
        "seeds": [0, 1, 2],
        "total_steps": 1000,
    }
    return Benchmark.model_validate(values | changes)


def test_the_grid_is_the_product_of_the_axes() -> None:
    grid = cells(benchmark(), Devices.both())
    assert len(set(grid)) == len(grid) == 2 * 2 * 2 * 2 * 3
    assert len(arms(grid)) == 2 * 2 * 2 * 2
    assert grid[0] == Cell("ppo", "Pendulum-v1", 1, "cpu", 0)


@pytest.mark.parametrize(
    "environment", ["Pendulum-v1", "ALE/Pong-v5", "module.sub:Env-v0", "a~b c%2F", "é/../x", "a+3A"]
)
def test_paths_are_cells_and_cells_are_paths(environment: str) -> None:
    cell = Cell("ppo", environment, 8, "cpu", 3)
    assert Cell.from_path(cell.path) == cell
    assert Arm.from_path(cell.arm.path) == cell.arm
    assert cell.path.count("/") == 4
    assert unslug(slug(environment)) == environment
    assert ".." not in cell.path.split("/")


def test_a_path_is_what_a_person_would_type() -> None:
    assert Cell.from_path("ppo/Pendulum-v1/8/cpu/0").path == (
        "algorithm~ppo/environment~Pendulum-v1/num_envs~8/device~cpu/seed~0"
    )


@pytest.mark.parametrize("path", ["ppo/Pendulum-v1/8/cpu", "ppo/Pendulum-v1/eight/cpu/0", ""])
def test_another_path_is_refused(path: str) -> None:
    with pytest.raises(InputError, match=r"got cell '.*'; "):
        Cell.from_path(path)


def test_auto_is_what_the_machine_has() -> None:
    assert expand_devices(("auto",), CPU_ONLY) == ("cpu",)
    assert expand_devices(("auto",), Devices.both()) == ("cpu", "cuda")
    assert expand_devices(("cuda", "auto"), Devices.both()) == ("cuda", "cpu")
    with pytest.raises(
        InputError, match=r"got 'cuda', which cannot be used here: no driver. Avail"
    ):
        expand_devices(("auto", "cuda"), CPU_ONLY)


def test_a_job_is_its_json() -> None:
    for cell in cells(benchmark(), CPU_ONLY):
        made = job(benchmark(), cell)
        assert Job.model_validate_json(made.model_dump_json()) == made


def test_a_hyperparameter_of_trpo_changes_the_jobs_of_trpo_only() -> None:
    changed = benchmark(hyperparameters={"trpo": {"max_kl": 0.0123}})
    for cell in cells(changed, CPU_ONLY):
        same = job(changed, cell).model_dump_json() == job(benchmark(), cell).model_dump_json()
        assert same == (cell.algorithm == "ppo")


def test_the_config_wins_over_the_preset_and_the_preset_over_the_default() -> None:
    cell = Cell("ppo", "CartPole-v1", 8, "cpu", 0)
    plain = job(benchmark(environments=["CartPole-v1"]), cell).algorithm
    assert (plain.gamma, plain.clip_range) == (0.995, 0.2)  # type: ignore[attr-defined]
    changed = benchmark(environments=["CartPole-v1"], hyperparameters={"ppo": {"gamma": 0.5}})
    given = job(changed, cell).algorithm
    assert given.gamma == 0.5
    elsewhere = job(benchmark(environments=["Acrobot-v1"]), Cell("ppo", "Acrobot-v1", 8, "cpu", 0))
    assert elsewhere.algorithm.gamma == 0.99


@pytest.mark.parametrize(
    ("scaling", "batches"), [("fixed", (2000, 2000)), ("linear", (2000, 16000))]
)
def test_batch_scaling(scaling: str, batches: tuple[int, int]) -> None:
    made = [
        job(benchmark(batch_scaling=scaling), Cell("ppo", "Pendulum-v1", n, "cpu", 0)).batch_size
        for n in (1, 8)
    ]
    assert tuple(made) == batches


def test_steps_per_environment_are_rounded_up() -> None:
    """2000 steps over 64 environments: 32 each, 2048 in all."""
    made = job(benchmark(), Cell("ppo", "Pendulum-v1", 64, "cpu", 0))
    assert (made.rollout_steps, made.actual_batch, made.batch_size) == (32, 2048, 2000)


def test_a_throughput_job_times_the_job_of_its_arm() -> None:
    timing = throughput_job(
        benchmark(throughput={"repeats": 7}), Arm("trpo", "CartPole-v1", 8, "cpu")
    )
    assert timing.job == job(benchmark(), Cell("trpo", "CartPole-v1", 8, "cpu", 0))
    assert json.loads(timing.model_dump_json())["repeats"] == 7
