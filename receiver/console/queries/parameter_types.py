"""Types of parameters as JSON Schema, for the description of the API.

A schema describes what the parser of a parameter accepts; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from receiver.time_range import AGE_PATTERN

Schema = Mapping[str, Any]

TEXT: Final[Schema] = {"type": "string"}
LENGTH: Final[Schema] = {"type": "string", "pattern": f"^{AGE_PATTERN}$", "examples": ["5m", "1h"]}
"""A length of time."""
TIME: Final[Schema] = {
    "type": "string",
    "anyOf": [
        {"pattern": f"^-?{AGE_PATTERN}$", "title": "age"},
        {"format": "date-time", "title": "instant, UTC unless it has an offset"},
        {"format": "date", "title": "start of a day in UTC"},
    ],
    "examples": ["24h", "2026-01-31T10:00:00Z"],
}
BEGIN: Final[Schema] = {
    **TIME,
    "anyOf": [*TIME["anyOf"], {"pattern": r"^.+\.\.", "title": "begin..end, each an age or an instant"}],
    "examples": [*TIME["examples"], "-3h..-1h"],
}
"""The start of a time range, or both of its ends."""
TRACE_ID: Final[Schema] = {"type": "string", "pattern": "^[0-9A-Fa-f-]{32,36}$"}


def with_default(schema: Schema, default: Any) -> Schema:  # noqa: ANN401 - any JSON
    """Return a type with a default value."""
    return {**schema, "default": default}


def whole_number(minimum: int, maximum: int, default: int | None = None) -> Schema:
    """Return the type of a whole number."""
    schema = {"type": "integer", "minimum": minimum, "maximum": maximum}
    return schema if default is None else with_default(schema, default)


def choice(values: Iterable[str], default: str) -> Schema:
    """Return the type of one of several words."""
    return {"type": "string", "enum": [str(value) for value in values], "default": str(default)}
