"""Verification finds what was planted, and names it."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from results_folder import make_benchmark, plan_of
from rlbench.analysis.aggregate import write_plan
from rlbench.cli import main
from rlbench.errors import InputError
from rlbench.records import RUN_FACTS
from rlbench.spec.grid import job as job_of
from rlbench.spec.plan import Plan
from rlbench.verify import chosen_cells, unequal_columns, verdicts

CELL = "trpo/Pendulum-v1/2/cpu/1"


def small_plan(max_kl: float = 0.01) -> Plan:
    """Two seeds of PPO and TRPO, two updates each."""
    return plan_of(
        make_benchmark(
            num_envs=[2],
            seeds=[0, 1],
            total_steps=400,
            batch_size=200,
            eval_every_steps=200,
            hyperparameters={"trpo": {"max_kl": max_kl}},
        )
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """All cells but one, trained in a process each, as the workflow does."""
    folder, plan = tmp_path_factory.mktemp("results"), small_plan()
    write_plan(plan, folder)
    for cell in plan.cells[1:]:
        job, place = job_of(plan.benchmark, cell).model_dump_json(), folder / "runs" / cell.path
        command = ["rlbench", "train", "--job", job, "--output-dir", str(place)]
        subprocess.run(command, capture_output=True, check=True)
    return folder


@pytest.fixture
def results(finished: Path, tmp_path: Path) -> Path:
    """A copy to plant changes in."""
    return Path(shutil.copytree(finished, tmp_path / "results"))


def edit(results: Path, change: Callable[[dict[str, Any]], None]) -> None:
    """Plant a change in the record of CELL."""
    path = next(results.glob("runs/algorithm~trpo/**/seed~1")) / RUN_FACTS
    facts = json.loads(path.read_text())
    change(facts)
    path.write_text(json.dumps(facts))


def verify(results: Path, capsys: pytest.CaptureFixture[str], *cells: str) -> tuple[int, str]:
    code = main(["verify", str(results), *cells])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_untouched_runs_are_equal(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """By default the first finished seed of each arm: ppo's seed 0 was not run."""
    code, said = verify(results, capsys)
    assert code == 0, said
    lines = said.splitlines()
    assert lines[0].startswith("ppo/Pendulum-v1/2/cpu/1: equal to the last bit (")
    assert lines[1].startswith("trpo/Pendulum-v1/2/cpu/0: equal to the last bit (")
    assert len(lines) == 2


def test_a_changed_hyperparameter_is_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    edit(results, lambda facts: facts["job"]["algorithm"].update(max_kl=0.05))
    code, said = verify(results, capsys, CELL)
    assert code == 1
    assert f"{CELL}: NOT equal" in said
    assert "updates.kl_nats: " in said
    assert "    job.algorithm.max_kl: 0.05 in run.json, 0.01 by plan and presets" in said
    assert "1 of the chosen runs cannot be confirmed" in said


def test_a_changed_preset_is_named_though_the_run_repeats(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The plan now asks for another job than was run."""
    write_plan(small_plan(max_kl=0.02), results)
    code, said = verify(results, capsys, CELL)
    assert code == 1
    assert f"{CELL}: equal to the last bit" in said
    assert "    job.algorithm.max_kl: 0.01 in run.json, 0.02 by plan and presets" in said


def test_a_changed_package_is_named(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(results, lambda facts: facts["software"]["packages"].update(numpy="1.0"))
    code, said = verify(results, capsys, CELL)
    assert code == 0
    assert "    software.packages.numpy: 1.0 then, " in said


def test_a_changed_number_is_found_and_nothing_else_named(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One last bit of one evaluation."""
    path = next(results.glob("runs/algorithm~trpo/**/seed~1")) / "evaluations.parquet"
    table = pq.read_table(path)
    index = table.column_names.index("episode_return")
    values = table["episode_return"].to_numpy().copy()
    values.view("int64")[3] += 1
    pq.write_table(table.set_column(index, table.schema.field(index), [values]), path)
    code, said = verify(results, capsys, CELL)
    assert code == 1
    assert f"  evaluations.episode_return: 1 of {len(values)} rows, first row 3: " in said
    assert "nothing differs from the record that run.json knows of" in said


def test_the_recorded_environment_is_used(
    results: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A variable that the run had is set again, one that it had not is taken away."""
    edit(
        results,
        lambda facts: facts["software"]["environment_variables"].update(OMP_SCHEDULE="static"),
    )
    monkeypatch.setenv("NPY_DISABLE_CPU_FEATURES", "AVX512F")
    code, said = verify(results, capsys, CELL)
    assert code == 0, said
    assert "environment_variables" not in said


def test_a_run_that_cannot_be_repeated_does_not_stop_the_others(
    results: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its environment is not installed here, as a GPU may not be."""
    edit(results, lambda facts: facts["job"].update(environment="Nowhere-v0"))
    code, said = verify(results, capsys, CELL, "ppo/Pendulum-v1/2/cpu/1")
    assert code == 1
    assert f"{CELL}: could not be repeated here: environment 'Nowhere-v0': " in said
    assert "    job.environment: Nowhere-v0 in run.json, Pendulum-v1 by plan and presets" in said
    assert "ppo/Pendulum-v1/2/cpu/1: equal to the last bit" in said


def test_one_run_can_be_verified_and_kept(
    results: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = next(results.glob("runs/algorithm~ppo/**/seed~1"))
    code = main(["verify", str(run), "--output-dir", str(tmp_path / "kept")])
    assert code == 0
    assert f"{run}: equal to the last bit" in capsys.readouterr().out
    assert (tmp_path / "kept" / RUN_FACTS).is_file()


def test_what_cannot_be_verified_is_refused(results: Path, tmp_path: Path) -> None:
    with pytest.raises(InputError, match="which is not in the grid of"):
        chosen_cells(small_plan(), results, ["ppo/Pendulum-v1/4/cpu/0"])
    with pytest.raises(InputError, match=r"run.json: not there; a finished run has it"):
        list(verdicts(results, ["ppo/Pendulum-v1/2/cpu/0"], tmp_path / "work"))
    with pytest.raises(InputError, match="no finished run; run the workflow, then verify it"):
        chosen_cells(small_plan(), tmp_path / "nowhere", [])


def test_nan_is_equal_to_nan_and_zero_is_not_minus_zero() -> None:
    import pyarrow as pa

    one = pa.table({"kl_nats": [float("nan"), 0.0], "wall_s": [1.0, 2.0]})
    other = pa.table({"kl_nats": [float("nan"), -0.0], "wall_s": [3.0, 4.0]})
    assert list(unequal_columns(one, one)) == []
    assert list(unequal_columns(one, other)) == [
        "kl_nats: 1 of 2 rows, first row 1: 0.0 recorded, -0.0 here"
    ]
    assert list(unequal_columns(one, other.slice(1))) == ["rows: 2 recorded, 1 here"]
