"""Event files, read back by TensorBoard itself, against the rows of the same run."""

import math
import sys
from contextlib import suppress
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from jobs import job, repeatable, trained
from rlbench.cli import main
from rlbench.errors import RunFailed
from rlbench.records import EpisodeRow, EvaluationRow, Metrics, UpdateRow, read_rows
from rlbench.training.progress import Progress
from rlbench.training.tracking import TensorBoard
from rlbench.training.train import train

Curve = list[tuple[int, np.float32]]
"""Points of one scalar; TensorBoard keeps float32."""


def curves(folder: Path) -> dict[str, Curve]:
    """Every scalar of a run by its name, as TensorBoard would draw it."""
    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    tags: list[str] = events.Tags()["scalars"]
    return {tag: [(e.step, np.float32(e.value)) for e in events.Scalars(tag)] for tag in tags}


def points(steps: "pd.Series[Any]", values: "pd.Series[Any]") -> Curve:
    """The points of a column of rows, without NaN."""
    pairs = zip(steps, values, strict=True)
    return [(int(step), np.float32(value)) for step, value in pairs if not math.isnan(value)]


@pytest.mark.parametrize("algorithm", ["ppo", "trpo"])
def test_the_curves_are_the_rows(algorithm: str, tmp_path: Path) -> None:
    which = job(algorithm, total_steps=1000, eval_every_steps=500)
    arguments = ["--job", which.model_dump_json(), "--output-dir", str(tmp_path), "--tensorboard"]
    assert main(["train", *arguments]) == 0
    drawn = curves(tmp_path)
    updates, episodes = read_rows(UpdateRow, tmp_path), read_rows(EpisodeRow, tmp_path)
    evaluations = read_rows(EvaluationRow, tmp_path)
    expected = {
        f"train/{field.name}": points(updates["env_steps"], updates[field.name])
        for field in fields(Metrics)
    }
    expected |= {
        f"time/{phase}": points(updates["env_steps"], updates[phase])
        for phase in ("env_s", "policy_s", "update_s", "evaluate_s")
    }
    seconds = updates["env_s"] + updates["policy_s"] + updates["update_s"]
    expected["time/steps_per_s"] = points(updates["env_steps"], 200 / seconds)
    means = evaluations.groupby("env_steps")[["episode_return", "length"]].mean().reset_index()
    for kind, table in (("rollout", episodes), ("eval", means)):
        expected[f"{kind}/return"] = points(table["env_steps"], table["episode_return"])
        expected[f"{kind}/length"] = points(table["env_steps"], table["length"])
    assert drawn == {tag: curve for tag, curve in expected.items() if curve}
    assert [step for step, _ in drawn["train/kl_nats"]] == [200, 400, 600, 800, 1000]
    assert [step for step, _ in drawn["eval/return"]] == [0, 600, 1000]
    assert len(drawn["rollout/return"]) == 4


def test_a_tracked_run_is_the_same_run(tmp_path: Path) -> None:
    """Bit for bit in every column that is no clock reading."""
    trained(job(), tmp_path / "plain")
    with TensorBoard(tmp_path / "tracked") as tracker:
        train(job(), tmp_path / "tracked", Progress(tracker=tracker), "test", None)
    plain, tracked = repeatable(tmp_path / "plain"), repeatable(tmp_path / "tracked")
    for name, rows in plain.items():
        pd.testing.assert_frame_equal(rows, tracked[name], check_exact=True)


def test_what_has_happened_can_be_seen_while_the_run_goes_on(tmp_path: Path) -> None:
    """Read after each update, before the next; the writer is still open."""
    seen: list[int] = []

    class Watched(TensorBoard):
        def write(self, *rows: Any) -> None:
            super().write(*rows)
            seen.append(len(curves(tmp_path)["train/critic_loss"]))

    with Watched(tmp_path) as tracker:
        train(job(), tmp_path, Progress(tracker=tracker), "test", None)
    assert seen == [1, 2, 3]


def test_the_curves_of_an_earlier_run_go_with_its_rows(tmp_path: Path) -> None:
    for environment in ("Pendulum-v1", "probes:Raise50-v0"):
        with TensorBoard(tmp_path) as tracker:
            train(job(), tmp_path, Progress(tracker=tracker), "test", None)
        assert list((tmp_path / "tensorboard").iterdir())
        with suppress(RunFailed):
            trained(job(environment=environment), tmp_path)
        assert not list((tmp_path / "tensorboard").iterdir())


def test_without_the_package_nothing_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    monkeypatch.delitem(sys.modules, "torch.utils.tensorboard", raising=False)
    which = job().model_dump_json()
    assert main(["train", "--job", which, "--output-dir", str(tmp_path), "--tensorboard"]) == 2
    assert 'pip install "rlbench[tensorboard]"' in capsys.readouterr().err
    assert not list(tmp_path.iterdir())
