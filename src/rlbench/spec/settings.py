"""The base of every setting, and validation errors as sentences.

In:      raw values from YAML, JSON or flags.
Out:     frozen models, or one InputError that names key, value and what is allowed.
"""

import difflib
import json
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from rlbench.errors import InputError


class Settings(BaseModel):
    """Frozen; a key that isn't listed is a mistake, not an extension."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, use_attribute_docstrings=True
    )


T = TypeVar("T", bound=Settings)


def fields_of(model: type[BaseModel]) -> dict[str, FieldInfo]:
    """The fields of a model, its own before those that it shares with others."""
    own = model.__annotations__
    return dict(sorted(model.model_fields.items(), key=lambda field: field[0] not in own))


def validated(model: type[T], values: dict[str, Any], source: str) -> T:
    """The model filled with the values.

    Raises:
        InputError: one line per wrong key, each opening with `source` (a file name or "flags").
    """
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise InputError(explain(error, model, source)) from None


def parsed(model: type[T], text: str, source: str) -> T:
    """The model that a JSON text describes.

    Raises:
        InputError: not JSON, or not what the model allows.
    """
    try:
        values = json.loads(text)
    except ValueError as error:
        raise InputError(f"{source}: not valid JSON ({error})") from None
    return validated(model, values, source)


def explain(error: ValidationError, model: type[BaseModel], source: str) -> str:
    """One line per mistake: where, which key, what it holds, what is allowed."""
    return "\n".join(_sentence(details, model, source) for details in error.errors())


def _sentence(details: ErrorDetails, model: type[BaseModel], source: str) -> str:
    location = details["loc"]
    key = ".".join(str(part) for part in location)
    where = f"{source}: {key}" if key else source
    got, context = details["input"], details.get("ctx", {})
    match details["type"]:
        case "extra_forbidden":
            return f"{where}: unknown key; {_known_keys(location, model)}"
        case "missing":
            return f"{where}: required, but not given"
        case "literal_error" | "union_tag_invalid":
            allowed = context.get("expected", context.get("expected_tags"))
            return f"{where}: got {got!r}; allowed: {allowed}"
        case "value_error":
            return f"{where}: {context['error']}"
        case _:
            return f"{where}: got {got!r}; {_lower_first(details['msg'])}"


def _lower_first(text: str) -> str:
    return text[:1].lower() + text[1:]


def _known_keys(location: tuple[int | str, ...], model: type[BaseModel]) -> str:
    owner = _model_at(location[:-1], model)
    near = difflib.get_close_matches(str(location[-1]), owner.model_fields, n=1)
    hint = f"did you mean '{near[0]}'? " if near else ""
    return f"{hint}allowed: {', '.join(fields_of(owner))}"


def _model_at(location: Sequence[int | str], model: type[BaseModel]) -> type[BaseModel]:
    """The model that holds the key; the members of a union are told apart by their tag, `name`."""
    candidates = [model]
    for part in location:
        field = candidates[0].model_fields.get(str(part))
        found = _models_in(field.annotation) if field else _tagged(candidates, str(part))
        candidates = found or candidates
    return candidates[0]


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [found for part in get_args(annotation) for found in _models_in(part)]


def _tagged(models: list[type[BaseModel]], tag: str) -> list[type[BaseModel]]:
    return [m for m in models if "name" in m.model_fields and m.model_fields["name"].default == tag]
