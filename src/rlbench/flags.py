"""Flags from settings, and a job from flags.

In:      the settings of a run and of its algorithm.
Out:     a flag per field, with the field's sentence and value; the job that the flags ask for.
"""

from collections.abc import Sequence
from dataclasses import field, make_dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import tyro
from pydantic import BaseModel

from rlbench.devices import choose_device
from rlbench.machine import usable_cores
from rlbench.spec.algorithms import Count
from rlbench.spec.job import Job, RunSettings, Seed
from rlbench.spec.presets import resolve
from rlbench.spec.registry import ALGORITHMS
from rlbench.spec.settings import fields_of, validated


class RunFlags(RunSettings):
    """The flags of one run, besides its algorithm's hyperparameters."""

    env_name: str = "Pendulum-v1"
    """Gymnasium id, `Name-v0` or `module:Name-v0`."""
    total_steps: Count | None = None
    """Budget in environment steps over all environments."""
    num_episodes: Count | None = None
    """Budget in finished episodes over all environments; 500 if no budget is given."""
    num_envs: Count = min(4, usable_cores())
    """Environments stepped in parallel."""
    cpu_threads: Count = min(8, usable_cores())
    """Threads of PyTorch on the CPU; inter-op threads are at most 4 of them."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where the networks live; auto is cuda where there is one."""
    seed: Seed = 42
    """Root of all random streams."""
    hidden_dim: Count | None = None
    """Units of every hidden layer; replaces --hidden-sizes."""
    output_dir: Path = Path("outputs")
    """Folder for the files of the run."""


def flag_value(given: Sequence[str], name: str, default: str) -> str:
    """The value of one flag, before the command line is parsed."""
    spellings = {f"--{name}", f"--{name.replace('_', '-')}"}
    for here, following in zip(given, [*given[1:], ""], strict=True):
        flag, equals, value = here.partition("=")
        if flag in spellings:
            return value if equals else following
    return default


def flat_flags(title: str, *models: BaseModel, algorithm: str = "") -> type[Any]:
    """One flag per field of the models: its help is the field's sentence, its default the value.

    Ranges are checked afterwards by the models themselves, so that flags and files get the same
    messages.
    """
    flags: list[tuple[str, Any, Any]] = []
    if algorithm:
        job_help = "One job as JSON instead of flags; `rlbench show-job --json` prints one."
        flags.append(("job", Annotated[str, tyro.conf.arg(help=job_help)], field(default="")))
        names: Any = Literal[tuple(ALGORITHMS)]
        kind: Any = Annotated[names, tyro.conf.arg(help="Algorithm to train.")]
        flags.append(("algorithm", kind, field(default=algorithm)))
    for model in models:
        for name, info in fields_of(type(model)).items():
            if name != "name":
                metavar = "INT" if type(None) in get_args(info.annotation) else None
                help_text = tyro.conf.arg(help=info.description, metavar=metavar)
                kind = Annotated[info.annotation, help_text]
                flags.append((name, kind, field(default=getattr(model, name))))
    return make_dataclass(title, flags, frozen=True)


def part_of(values: dict[str, Any], model: type[BaseModel]) -> dict[str, Any]:
    """The values that are fields of a model."""
    return {key: value for key, value in values.items() if key in model.model_fields}


def job_from(run: RunFlags, hyperparameters: dict[str, Any]) -> Job:
    """The job that flags ask for; 500 episodes if they give no budget."""
    name = hyperparameters["name"]
    settings, _ = resolve(name, run.env_name, hyperparameters, "flags")
    values = settings.model_dump()
    if run.hidden_dim is not None:
        values["hidden_sizes"] = (run.hidden_dim,) * len(settings.hidden_sizes)
    no_budget = run.total_steps is None and run.num_episodes is None
    shared = {key: getattr(run, key) for key in RunSettings.model_fields}
    return validated(
        Job,
        shared
        | {
            "environment": run.env_name,
            "num_envs": run.num_envs,
            "device": choose_device(run.device),
            "seed": run.seed,
            "total_steps": run.total_steps,
            "num_episodes": 500 if no_budget else run.num_episodes,
            "algorithm": values,
        },
        "flags",
    )
