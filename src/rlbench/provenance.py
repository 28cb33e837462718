"""What differs between two records of a run.

In:      facts of two runs.
Out:     one line per difference, by its place in `run.json`.
"""

from collections.abc import Mapping
from typing import Any

from rlbench.records import RunFacts
from rlbench.spec.settings import Settings

UNREPEATED = {"started", "ended", "command", "setup_s", "wall_s", "compile_s"}
"""Facts that no second run repeats."""


def fact_differences(then: RunFacts, now: RunFacts) -> list[str]:
    """Where the facts of two runs of one job differ, those aside that no second run repeats."""
    same = {name: getattr(then, name) for name in UNREPEATED}
    return differences(then, now.model_copy(update=same))


def differences(
    one: Settings, other: Settings, sides: tuple[str, str] = ("then", "now"), place: str = ""
) -> list[str]:
    """`place.key: … then, … now` for each value that differs; keys in the order of `one`."""
    ones, others = (flat(side.model_dump(mode="json"), place) for side in (one, other))
    return [
        f"{key}: {_said(ones.get(key))} {sides[0]}, {_said(others.get(key))} {sides[1]}"
        for key in dict.fromkeys([*ones, *others])
        if ones.get(key) != others.get(key)
    ]


def flat(values: Mapping[str, Any], place: str = "") -> dict[str, Any]:
    """Nested mappings as one, keys joined by dots."""
    found: dict[str, Any] = {}
    for key, value in values.items():
        name = f"{place}.{key}" if place else key
        found |= flat(value, name) if isinstance(value, Mapping) else {name: value}
    return found


def _said(value: object) -> str:
    return "not there" if value is None else str(value)
