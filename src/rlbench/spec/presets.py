"""Hyperparameters known to work, per algorithm and environment, each with its source.

In:      (algorithm, environment) and the values a person gave.
Out:     the settings, and where each value came from. A given value > preset > class default.
"""

from functools import cache
from pathlib import Path
from typing import Any

from rlbench.errors import InputError
from rlbench.spec.algorithms import OnPolicy
from rlbench.spec.config import load_yaml
from rlbench.spec.registry import ALGORITHMS
from rlbench.spec.settings import Settings, validated

_PACKAGED = Path(__file__).parents[1] / "presets"
_CHECKOUT = Path(__file__).parents[3] / "config" / "presets"
PRESETS = _PACKAGED if _PACKAGED.is_dir() else _CHECKOUT
"""Where the preset files are: inside an installed package, or in the checkout."""


class PresetValue(Settings):
    """One hyperparameter of a preset."""

    value: Any
    """The value; the algorithm's settings say what is allowed."""
    source: str
    """A publication, or how it was tuned."""


@cache
def preset(algorithm: str, environment: str) -> dict[str, PresetValue]:
    """Values for the pair, by field name; empty where nobody has tuned it.

    Raises:
        InputError: the preset file holds something else.
    """
    path = PRESETS / f"{algorithm}.yaml"
    if not path.is_file():
        return {}
    block = load_yaml(path).get(environment) or {}
    where = f"{path}: {environment}"
    found = {key: validated(PresetValue, entry, f"{where}.{key}") for key, entry in block.items()}
    validated(ALGORITHMS[algorithm], {key: entry.value for key, entry in found.items()}, where)
    return found


def resolve(
    algorithm: str, environment: str, given: dict[str, Any], source: str
) -> tuple[OnPolicy, dict[str, str]]:
    """The algorithm's settings, and the origin of each field's value.

    Raises:
        InputError: an unknown algorithm, or a value that its settings refuse.
    """
    if algorithm not in ALGORITHMS:
        raise InputError(f"got algorithm '{algorithm}'; allowed: {', '.join(ALGORITHMS)}")
    found = preset(algorithm, environment)
    values = {key: entry.value for key, entry in found.items()} | given
    settings = validated(ALGORITHMS[algorithm], values, source)
    origins = dict.fromkeys(type(settings).model_fields, "default")
    origins |= {key: f"preset: {entry.source}" for key, entry in found.items()}
    origins |= dict.fromkeys(given, source)
    return settings, origins
