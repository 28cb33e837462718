"""From a benchmark to its cells, and from a cell to its job and its path.

In:      a Benchmark and the devices of this machine.
Out:     cells; per cell a Job; cell <-> path, one to one.
"""

from dataclasses import astuple, dataclass, fields
from itertools import product
from typing import Self, get_type_hints
from urllib.parse import quote, unquote

from rlbench.errors import InputError
from rlbench.spec.config import Benchmark
from rlbench.spec.job import Job, RunSettings, ThroughputJob, Timing
from rlbench.spec.presets import resolve
from rlbench.spec.settings import Settings, validated


@dataclass(frozen=True, slots=True, order=True)
class Arm:
    """What is compared: a cell without its seed."""

    algorithm: str
    environment: str
    num_envs: int
    device: str

    @property
    def path(self) -> str:
        """Relative folder, `algorithm~ppo/environment~Pendulum-v1/…`, different for each arm."""
        names = [field.name for field in fields(self)]
        return "/".join(f"{n}~{slug(v)}" for n, v in zip(names, astuple(self), strict=True))

    @classmethod
    def from_path(cls, path: str) -> Self:
        """The inverse of `path`; the axis names may be left out.

        Raises:
            InputError: the path has another number of parts, or a word where a number must be.
        """
        parts = path.strip("/").split("/")
        if len(parts) != len(fields(cls)):
            form = "/".join(field.name.upper() for field in fields(cls))
            raise InputError(f"got cell '{path}'; must be {form}, as `rlbench check` lists them")
        kinds: dict[str, type] = get_type_hints(cls)
        texts = [
            unslug(part.removeprefix(f"{f.name}~"))
            for f, part in zip(fields(cls), parts, strict=True)
        ]
        try:
            return cls(*(kinds[f.name](t) for f, t in zip(fields(cls), texts, strict=True)))
        except ValueError:
            raise InputError(f"got cell '{path}'; num_envs and seed must be numbers") from None


@dataclass(frozen=True, slots=True, order=True)
class Cell(Arm):
    """One point of the grid: one training run."""

    seed: int

    @property
    def short(self) -> str:
        """`ppo/Pendulum-v1/8/cpu/0`, as a person types it."""
        return "/".join(slug(value) for value in astuple(self))

    @property
    def arm(self) -> Arm:
        """The cell without its seed."""
        return Arm(self.algorithm, self.environment, self.num_envs, self.device)


def slug(value: str | int) -> str:
    """A value as one path component; `unslug` gives it back.

    `:` is `+3A`, as in a URL but for the sign: SLURM reads `%3A` in the path of a log as its own.
    """
    return quote(str(value), safe="").replace("~", "%7E").replace("%", "+")


def unslug(text: str) -> str:
    """The value of a path component."""
    return unquote(text.replace("+", "%"))


class Devices(Settings):
    """What a run can use on a machine."""

    present: tuple[str, ...]
    missing: dict[str, str] = {}
    """Device that cannot be used, and why not."""

    @classmethod
    def both(cls) -> "Devices":
        """A machine with everything."""
        return cls(present=("cpu", "cuda"))


def expand_devices(
    devices: tuple[str, ...], here: Devices, source: str = "config"
) -> tuple[str, ...]:
    """The devices to run on: `auto` becomes what this machine has.

    Raises:
        InputError: a device is asked for by name and is not present.
    """
    named = [device for device in devices if device != "auto"]
    missing = [device for device in named if device not in here.present]
    if missing:
        name = missing[0]
        raise InputError(
            f"{source}: devices: got '{name}', which cannot be used here: {here.missing[name]}. "
            f"Available: {', '.join(here.present)}. Remove '{name}' from `devices` or use 'auto'"
        )
    return tuple(dict.fromkeys([*named, *(here.present if "auto" in devices else ())]))


def cells(benchmark: Benchmark, here: Devices) -> list[Cell]:
    """Every cell of the grid, in the order of the axes.

    Raises:
        InputError: a device that is not here, or a combination that cannot run.
    """
    axes = product(
        benchmark.algorithms,
        benchmark.environments,
        benchmark.num_envs,
        expand_devices(benchmark.devices, here),
        benchmark.seeds,
    )
    return [Cell(*values) for values in axes]


def job(benchmark: Benchmark, cell: Cell, source: str = "config") -> Job:
    """The job of a cell.

    Raises:
        InputError: the combination cannot run; the message opens with `source` and the cell.
    """
    given = benchmark.hyperparameters.get(cell.algorithm, {})
    settings, _ = resolve(
        cell.algorithm, cell.environment, given, f"{source}: hyperparameters.{cell.algorithm}"
    )
    shared = {name: getattr(benchmark, name) for name in RunSettings.model_fields}
    values = shared | {
        "batch_size": benchmark.batch_size_for(cell.num_envs),
        "environment": cell.environment,
        "num_envs": cell.num_envs,
        "device": cell.device,
        "seed": cell.seed,
        "total_steps": benchmark.total_steps,
        "algorithm": settings,
    }
    return validated(Job, values, f"{source}: cell {cell.path}")


def throughput_job(benchmark: Benchmark, arm: Arm, source: str = "config") -> ThroughputJob:
    """The speed measurement of an arm; the job inside has the benchmark's first seed."""
    cell = Cell(arm.algorithm, arm.environment, arm.num_envs, arm.device, benchmark.seeds[0])
    timing = {name: getattr(benchmark.throughput, name) for name in Timing.model_fields}
    return ThroughputJob(job=job(benchmark, cell, source), **timing)


def arms(found: list[Cell]) -> list[Arm]:
    """The distinct arms of some cells, in order."""
    return list(dict.fromkeys(cell.arm for cell in found))
