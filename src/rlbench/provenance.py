"""What differs between two records of a run.

In:      facts of two runs.
Out:     one line per difference, by its place in `run.json`.
"""

from collections.abc import Mapping
from typing import Any

from rlbench.records import RunFacts
from rlbench.spec.settings import Settings

CLOCKS = {"started", "ended", "command", "setup_s", "wall_s", "compile_s"}
"""Facts that no second run repeats."""


def fact_differences(then: RunFacts, now: RunFacts) -> list[str]:
    """Where two runs' facts differ, clock readings and the job aside."""
    return differences(then, now, exclude=CLOCKS | {"job"})


def differences(
    then: Settings, now: Settings, place: str = "", exclude: set[str] | None = None
) -> list[str]:
    """`place.key: … then, … now` for each value that differs; keys in the order of `then`."""
    one = flat(then.model_dump(mode="json", exclude=exclude), place)
    other = flat(now.model_dump(mode="json", exclude=exclude), place)
    return [
        f"{key}: {_said(one.get(key))} then, {_said(other.get(key))} now"
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key)
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
