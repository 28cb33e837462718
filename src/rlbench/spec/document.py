"""The keys of a config and the hyperparameters as a page, from the models themselves.

In:      settings models.
Out:     Markdown; `python -m rlbench.spec.document` prints config/README.md.
"""

import sys
from collections.abc import Mapping
from typing import Any, Literal, get_args, get_origin

import annotated_types
from pydantic import BaseModel
from pydantic.fields import FieldInfo

from rlbench.spec.algorithms import FirstOrder, NaturalGradient, OnPolicy
from rlbench.spec.config import Benchmark, ThroughputSettings
from rlbench.spec.peers import Peer
from rlbench.spec.registry import ALGORITHMS
from rlbench.spec.settings import fields_of

HEAD = """# The keys of a config

A config is one YAML file: `config.yaml` is what a bare `snakemake --cores N` runs, `smoke.yaml` the
same keys in two minutes, `reference/` the published results. `rlbench check CONFIG` validates
a file and estimates its time; `rlbench show-job CONFIG CELL` shows every value of one cell and
where it came from. An unknown key is an error, and so is a value outside its range.

A hyperparameter comes from `hyperparameters:` in the config; else from the preset of the algorithm
and environment in `presets/`, each value with its source; else from the default below. An algorithm
has the keys of every section that names it.

This page is written by `make docs` from the models in `src/rlbench/spec/`.
"""


def page() -> str:
    """config/README.md."""
    parts = [HEAD, "## Benchmark\n", table(fields_of(Benchmark))]
    parts += ["## throughput\n", table(fields_of(ThroughputSettings))]
    for model in (OnPolicy, FirstOrder, NaturalGradient, Peer):
        names = [name for name, kind in ALGORITHMS.items() if issubclass(kind, model)]
        parts += _section(", ".join(names), model)
    for name, model in ALGORITHMS.items():
        parts += _section(name, model)
    return "\n".join(parts)


def _section(names: str, model: type[OnPolicy]) -> list[str]:
    """The keys that a class of algorithms adds to those of the class that it belongs to."""
    own = {key: info for key, info in fields_of(model).items() if key in model.__annotations__}
    hyperparameters = {key: info for key, info in own.items() if key != "name"}
    parts = [f"## hyperparameters of {names}\n", f"{(model.__doc__ or '').strip()}\n"]
    return [*parts, table(hyperparameters)] if hyperparameters else parts


def table(fields: Mapping[str, FieldInfo]) -> str:
    """One row per field: key, type, range, default, meaning."""
    lines = ["| key | type | allowed | default | meaning |", "|---|---|---|---|---|"]
    for key, info in fields.items():
        if key != "name" or info.is_required():
            meaning = " ".join((info.description or "").split())
            cells = (f"`{key}`", _kind(info.annotation), _range(info), _default(info), meaning)
            lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def _kind(annotation: Any) -> str:
    if get_origin(annotation) is Literal:
        return "choice"
    if get_origin(annotation) is tuple:
        return f"list of {_kind(get_args(annotation)[0])}"
    if get_origin(annotation) is dict:
        return "mapping"
    if get_origin(annotation) is not None and get_args(annotation):
        return _kind(get_args(annotation)[0])
    names = {int: "whole number", float: "number", str: "text"}
    return names.get(annotation, "mapping")


def _range(info: FieldInfo) -> str:
    signs = {
        annotated_types.Gt: ("> ", "gt"),
        annotated_types.Ge: (">= ", "ge"),
        annotated_types.Lt: ("< ", "lt"),
        annotated_types.Le: ("<= ", "le"),
    }
    found = [
        signs[type(m)][0] + f"{getattr(m, signs[type(m)][1]):g}"
        for m in _constraints(info.annotation, info.metadata)
        if type(m) in signs
    ]
    return ", ".join(found + _choices(info.annotation))


def _constraints(annotation: Any, metadata: list[Any]) -> list[Any]:
    """The constraints of a field, or of its items."""
    inner = [m for part in get_args(annotation) for m in getattr(part, "__metadata__", ())]
    flat = [c for m in inner for c in getattr(m, "metadata", [m])]
    return [*metadata, *flat]


def _choices(annotation: Any) -> list[str]:
    if get_origin(annotation) is Literal:
        return [f"`{choice}`" for choice in get_args(annotation)]
    return [choice for part in get_args(annotation) for choice in _choices(part)]


def _default(info: FieldInfo) -> str:
    if info.is_required():
        return "required"
    if isinstance(info.default, BaseModel):
        return "see below"
    if isinstance(info.default, tuple):
        return f"`[{', '.join(str(item) for item in info.default)}]`"
    return f"`{info.default}`"


if __name__ == "__main__":
    sys.stdout.write(page())
