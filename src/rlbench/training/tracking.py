"""Curves in TensorBoard while a run is under way.

In:      the rows of a run so far.
Out:     event files of scalars over environment steps: the numbers of the rows, means over an
         evaluation, and the rate of each update.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import fields
from functools import partial
from itertools import groupby
from pathlib import Path
from statistics import fmean
from typing import Self

from rlbench.errors import InputError
from rlbench.records import CURVES, EpisodeRow, EvaluationRow, Metrics, UpdateRow

PHASES = ("env_s", "policy_s", "update_s", "evaluate_s")

Scalars = dict[str, float]
"""Numbers of one moment by their names in TensorBoard."""


class TensorBoard:
    """Writes every row of a run once; use it as a context.

    Raises:
        InputError: the package is not installed.
    """

    def __init__(self, folder: Path) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ModuleNotFoundError as error:
            raise InputError(
                f'--tensorboard: {error}; pip install "rlbench[tensorboard]", or leave the flag out'
            ) from error
        self._open = partial(SummaryWriter, str(folder / CURVES))
        self._writer: SummaryWriter | None = None
        self._written = (0, 0, 0)
        self._env_steps = 0

    def write(
        self,
        updates: Sequence[UpdateRow],
        episodes: Sequence[EpisodeRow],
        evaluations: Sequence[EvaluationRow],
    ) -> None:
        """Bring to the disk what is new among all rows so far."""
        if self._writer is None:  # the files of an earlier run are gone by now
            self._writer = self._open()
        for env_steps, scalars in self._new(updates, episodes, evaluations):
            for tag, value in scalars.items():
                if not math.isnan(value):
                    self._writer.add_scalar(tag, value, env_steps)
        self._writer.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._writer is not None:
            self._writer.close()

    def _new(
        self,
        updates: Sequence[UpdateRow],
        episodes: Sequence[EpisodeRow],
        evaluations: Sequence[EvaluationRow],
    ) -> Iterator[tuple[int, Scalars]]:
        update, episode, evaluation = self._written
        self._written = len(updates), len(episodes), len(evaluations)
        for row in updates[update:]:
            yield row.env_steps, of_update(row, row.env_steps - self._env_steps)
            self._env_steps = row.env_steps
        for ended in episodes[episode:]:
            yield ended.env_steps, of_episodes("rollout", [ended])
        for env_steps, played in groupby(evaluations[evaluation:], lambda row: row.env_steps):
            yield env_steps, of_episodes("eval", list(played))


def of_update(row: UpdateRow, steps: int) -> Scalars:
    """Metrics, seconds per phase, and steps per second of training, evaluation left out."""
    metrics = {f"train/{f.name}": getattr(row, f.name) for f in fields(Metrics)}
    seconds = {f"time/{phase}": getattr(row, phase) for phase in PHASES}
    rate = steps / (row.env_s + row.policy_s + row.update_s)
    return metrics | seconds | {"time/steps_per_s": rate}


def of_episodes(kind: str, rows: Sequence[EpisodeRow | EvaluationRow]) -> Scalars:
    """Mean return and length."""
    return {
        f"{kind}/return": fmean(row.episode_return for row in rows),
        f"{kind}/length": fmean(row.length for row in rows),
    }
