"""The first number that is not finite ends a run: it says where, and leaves nothing behind."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import faults  # noqa: F401 (registers the environments)
from faults import AT, FAULTS
from jobs import job, trained
from results_folder import make_benchmark, plan_of
from rlbench.analysis.aggregate import gather
from rlbench.cli import main
from rlbench.errors import RunFailed
from rlbench.records import read_failure
from rlbench.spec.grid import job as job_of
from rlbench.spec.job import VectorMode
from rlbench.training.envs.vector import Environments

each_fault = pytest.mark.parametrize("fault", FAULTS)


@pytest.mark.parametrize(
    ("fault", "mode"), [*((fault, "sync") for fault in FAULTS), ("Final", "async")]
)
def test_the_environment_and_the_step_are_named(fault: str, mode: VectorMode) -> None:
    """Of three environments the second is faulty, at the fourth step."""
    what, number = FAULTS[fault]
    shown = f"{number:g}" if what == "reward" else f"[{number:g}]"
    with Environments(f"faults:{fault}-v0", mode, [1, 2, 3]) as envs:
        envs.reset()
        for _ in range(3):
            envs.step(np.zeros((3, 1)))
        with pytest.raises(RunFailed) as error:
            envs.step(np.array([[0.0], [0.5], [0.0]]))
    assert str(error.value).startswith(
        f"environment 1 gave a non-finite {what} ({shown}) at step 4 of each environment; "
    )


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
@each_fault
def test_a_fault_ends_training_with_exit_code_1_and_no_rows(
    fault: str, algorithm: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """In the second batch of 100 steps of each environment, after one good update."""
    which = job(algorithm, environment=f"faults:{fault}-v0", eval_every_steps=600)
    folders = ["--output-dir", str(tmp_path / "run"), "--state-dir", str(tmp_path / "state")]
    assert main(["train", "--job", which.model_dump_json(), *folders]) == 1
    assert [path.name for path in tmp_path.rglob("*.*")] == ["failure.json"]
    failure = json.loads((tmp_path / "state" / "failure.json").read_text())
    where = f"environment 0 gave a non-finite {FAULTS[fault][0]} "
    assert failure["status"] == "failed"
    assert failure["reason"].startswith(where)
    assert f"at step {AT} of each environment" in failure["reason"]
    assert f"rlbench: error: {where}" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("algorithm", "environment", "hyperparameters", "what"),
    [
        ("ppo", "CartPole-v1", {"actor_learning_rate": 1e38}, "the loss or its gradient"),
        ("ppo", "CartPole-v1", {"critic_learning_rate": 1e38}, "the loss or its gradient"),
        ("trpo", "CartPole-v1", {"critic_learning_rate": 1e38}, "the critic's loss or gradient"),
        ("ppo", "Pendulum-v1", {"reward_scale": 1e36}, "the loss or its gradient"),
        ("trpo", "Pendulum-v1", {"reward_scale": 1e36}, "the critic's loss or gradient"),
    ],
)
def test_a_loss_or_gradient_ends_training(
    algorithm: str, environment: str, hyperparameters: dict[str, Any], what: str, tmp_path: Path
) -> None:
    """Steps and rewards so large that float32 overflows."""
    with pytest.raises(RunFailed, match=f"{what} is not finite"):
        trained(job(algorithm, hyperparameters, environment=environment), tmp_path)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["failure.json"]


def test_a_last_step_that_breaks_the_policy_is_not_a_finished_run(tmp_path: Path) -> None:
    """One step in all, its loss finite, and weights of 1e38 after it; evaluation would play on."""
    one = {"actor_learning_rate": 1e38, "epochs": 1, "minibatch_size": 200}
    with pytest.raises(RunFailed, match=r"entropy_nats of update 0, at 200 steps, is not finite"):
        trained(job("ppo", one, environment="CartPole-v1", total_steps=200), tmp_path)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["failure.json"]


def test_a_faulty_run_is_a_failed_cell_without_rows(tmp_path: Path) -> None:
    """Beside one that is well, in one benchmark."""
    names = ["faults:RewardNan-v0", "probes:Inf50-v0"]
    plan = plan_of(
        make_benchmark(
            environments=names, algorithms=["ppo"], seeds=[0], num_envs=[2], thresholds={}
        )
    )
    for cell in plan.cells:
        which = job_of(plan.benchmark, cell).model_dump_json()
        folders = [f"--output-dir={tmp_path / 'runs' / cell.path}",
                   f"--state-dir={tmp_path / 'state' / cell.path}"]  # fmt: skip
        assert main(["train", "--job", which, *folders]) == (1 if "faults" in cell.path else 0)
    tables = gather(plan, tmp_path)
    cells = tables.cells.set_index("environment")
    assert cells["status"].to_dict() == {names[0]: "failed", names[1]: "ok"}
    failure = read_failure(tmp_path / "state" / plan.cells[0].path)
    assert failure is not None
    assert cells["reason"][names[0]] == failure.reason
    for table in (tables.updates, tables.episodes, tables.evaluations):
        assert set(table["environment"]) == {names[1]}
