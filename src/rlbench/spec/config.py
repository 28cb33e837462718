"""A benchmark as a YAML file describes it.

In:      a YAML file.
Out:     a frozen Benchmark, or one InputError that names file, key, value and what is allowed.
"""

import re
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from rlbench.errors import InputError
from rlbench.spec.algorithms import Count
from rlbench.spec.job import RunSettings, Seed, Timing
from rlbench.spec.registry import ALGORITHMS
from rlbench.spec.settings import validated


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else [value]


def _distinct(values: tuple[Any, ...]) -> tuple[Any, ...]:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise ValueError(f"each value once, but repeated: {', '.join(repeated)}")
    return values


_AXIS = (BeforeValidator(_listed), Field(min_length=1), AfterValidator(_distinct))
Name = Annotated[str, Field(min_length=1)]


class ThroughputSettings(Timing):
    """How speed is measured: short runs, each alone on the machine."""

    measure: Literal["always", "never"] = "always"
    """Whether throughput runs are part of the benchmark."""


class Benchmark(RunSettings):
    """The grid algorithms x environments x num_envs x devices x seeds, and how each cell runs."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    """Folder under `results/`; letters, digits, dot, dash, underscore."""
    algorithms: Annotated[tuple[Name, ...], *_AXIS] = ("ppo", "trpo")
    """Axis: algorithms to compare."""
    environments: Annotated[tuple[Name, ...], *_AXIS]
    """Axis: Gymnasium ids, `Name-v0` or `module:Name-v0`."""
    num_envs: Annotated[tuple[Count, ...], *_AXIS]
    """Axis: environments stepped in parallel."""
    devices: Annotated[tuple[Literal["auto", "cpu", "cuda"], ...], *_AXIS] = ("auto",)
    """Axis: where networks live; `auto` is cpu, and cuda where there is one."""
    seeds: Annotated[tuple[Seed, ...], *_AXIS]
    """Axis: independent repetitions, the unit of every interval. Usual 5-10."""
    total_steps: Count
    """Budget of each cell in environment steps over all its environments."""
    batch_scaling: Literal["fixed", "linear"] = "fixed"
    """`fixed`: batch_size holds for every num_envs; `linear`: batch_size times num_envs."""
    hyperparameters: dict[str, dict[str, Any]] = {}
    """Per algorithm: values that replace the preset's and the defaults, in every environment."""
    thresholds: dict[str, float] = {}
    """Per environment: return at which a run counts as having learned."""
    throughput: ThroughputSettings = ThroughputSettings()
    """How speed is measured."""
    container: Name = "rlbench.sif"
    """Image for `--software-deployment-method apptainer`: a file (a relative path counts from the
    repository's root), `docker-archive:///path/image.tar` or `docker://registry/image:tag`."""

    @model_validator(mode="after")
    def _known(self) -> Self:
        for name in (*self.algorithms, *self.hyperparameters):
            if name not in ALGORITHMS:
                raise ValueError(f"got algorithm '{name}'; allowed: {', '.join(ALGORITHMS)}")
        for name, values in self.hyperparameters.items():
            _check_hyperparameters(name, values)
        strangers = sorted(set(self.thresholds) - set(self.environments))
        if strangers:
            raise ValueError(
                f"thresholds: {', '.join(strangers)} is not among the environments; "
                f"allowed: {', '.join(self.environments)}"
            )
        return self

    def batch_size_for(self, num_envs: int) -> int:
        """Environment steps per update, over all environments, of a cell with so many of them."""
        return self.batch_size * (num_envs if self.batch_scaling == "linear" else 1)


def _check_hyperparameters(algorithm: str, values: dict[str, Any]) -> None:
    try:
        validated(ALGORITHMS[algorithm], values, f"hyperparameters.{algorithm}")
    except InputError as error:
        raise ValueError(str(error)) from None


def load_benchmark(path: Path, overrides: dict[str, Any] | None = None) -> Benchmark:
    """The benchmark in a file; `overrides` replace top-level keys.

    Raises:
        InputError: the file is missing, is not YAML, or holds what the models refuse.
    """
    return validated(Benchmark, {**load_yaml(path), **(overrides or {})}, str(path))


def load_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; duplicate keys are refused, `1e-3` is a number.

    Raises:
        InputError: no such file, a syntax error (with line and column), or not a mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); give a YAML file") from None
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: not UTF-8 text ({error.reason}); give a YAML file") from None
    try:
        values = yaml.load(text, Loader=_StrictLoader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise InputError(f"{path}: not valid YAML: {' '.join(str(error).split())}") from None
    if not isinstance(values, dict):
        raise InputError(f"{path}: got {type(values).__name__}; must hold `key: value` lines")
    return values


class _StrictLoader(yaml.SafeLoader):
    """SafeLoader that refuses duplicate keys and reads `1e-3` as a number, as YAML 1.2 does."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """The mapping of a node.

        Raises:
            ConstructorError: a key occurs twice.
        """
        seen = set()
        for key_node, _ in node.value:
            if key_node.tag == "tag:yaml.org,2002:merge":
                continue
            key = self.construct_object(key_node, deep=deep)
            if not isinstance(key, str | int | float):
                raise yaml.constructor.ConstructorError(
                    problem="a key must be a word or a number", problem_mark=key_node.start_mark
                )
            if key in seen:
                raise yaml.constructor.ConstructorError(
                    problem=f"the key '{key}' occurs twice", problem_mark=key_node.start_mark
                )
            seen.add(key)
        return super().construct_mapping(node, deep)


_StrictLoader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?[0-9][0-9_]*(\.[0-9_]*)?[eE][-+]?[0-9]+$"),
    list("-+0123456789"),
)
