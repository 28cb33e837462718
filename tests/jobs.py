"""Small jobs for tests."""

from pathlib import Path
from typing import Any

import pandas as pd

from rlbench.records import EpisodeRow, EvaluationRow, UpdateRow, read_rows
from rlbench.spec.job import Job
from rlbench.training.progress import Progress
from rlbench.training.train import Finished, train

SMALL = {"hidden_sizes": (16, 16)}


def job(algorithm: str = "ppo", hyperparameters: dict[str, Any] | None = None, **run: Any) -> Job:
    """A job of 600 steps of Pendulum-v1 in batches of 200, unless told otherwise."""
    if "num_episodes" not in run:
        run.setdefault("total_steps", 600)
    values = {
        "environment": "Pendulum-v1",
        "num_envs": 2,
        "device": "cpu",
        "seed": 0,
        "batch_size": 200,
        "eval_every_steps": 200,
        "eval_episodes": 2,
        "vector_mode": "sync",
        "algorithm": {"name": algorithm, **SMALL, **(hyperparameters or {})},
    }
    return Job.model_validate(values | run)


def trained(which: Job, folder: Path) -> Finished:
    """Train a job, its files in a folder."""
    return train(which, folder, Progress(), "test", folder / "state")


def repeatable(folder: Path) -> dict[str, pd.DataFrame]:
    """The rows of a run without the columns that are clock readings."""
    tables = {
        kind.__name__: read_rows(kind, folder) for kind in (UpdateRow, EpisodeRow, EvaluationRow)
    }
    return {
        name: table[[c for c in table.columns if not c.endswith("_s")]]
        for name, table in tables.items()
    }
