"""JSON of an answer: parsed within limits, and converted to types that keep unknown fields.

A number beyond 64 bits becomes a float, and the last value of a repeated key is used, in every type alike:
each text is parsed once.
"""

from __future__ import annotations

import re
from typing import Any, Final, TypeVar, get_args

import msgspec
import orjson

from receiver.platform.client.errors import NotJson, WrongShape

DEPTH_MAX = 64
"""Depth of nested values. Deeper JSON exhausts the stack of programs that write it again."""
_NESTING: Final = re.compile(rb'"(?:[^"\\]|\\.)*+"|[\[{]|[\]}]', re.DOTALL)
_SURROGATES: Final = re.compile(
    rb"(\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})|\\."
)
"""A pair of surrogates, a single surrogate, or another escape."""
Shape = TypeVar("Shape", bound=msgspec.Struct)


def parse(text: bytes, what: str) -> Any:  # noqa: ANN401 - any JSON
    """Parse JSON. `what`: the name of the text in the message, which never quotes it. Raises `NotJson`."""
    if is_deep(text):
        raise NotJson(f"{what} is nested more than {DEPTH_MAX} levels deep")
    try:
        return orjson.loads(text)
    except ValueError:
        pass
    try:
        return orjson.loads(_repaired(text))
    except ValueError as error:
        # `from None`: the error of the parser holds the text.
        position = getattr(error, "pos", 0)
        raise NotJson(f"{what} is not JSON, at character {position + 1}") from None


def parse_object(text: bytes, what: str) -> dict[str, Any]:
    """Parse a JSON object. Raises `NotJson` or `WrongShape`."""
    return as_object(parse(text, what), what)


def as_object(content: object, what: str) -> dict[str, Any]:
    """Return the content if it is an object. Raises `WrongShape`."""
    if not isinstance(content, dict):
        raise WrongShape(f"{what} is not a JSON object")
    return content


def converted(content: object, shape: type[Shape], what: str) -> Shape:
    """Convert to a type whose required fields must be there. Raises `WrongShape`."""
    try:
        return msgspec.convert(content, shape, strict=False)
    except msgspec.ValidationError as error:
        # The message of msgspec has types and a path, and quotes no value.
        raise WrongShape(f"{what} has another form: {error}") from None


def tolerant(content: object, shape: type[Shape]) -> Shape:
    """Convert to a type without required fields; a field of another type counts as missing.

    Converts a number to a text and a text to a number where the type needs it.
    """
    if not isinstance(content, dict):
        return shape()
    try:
        return msgspec.convert(content, shape, strict=False)
    except msgspec.ValidationError:
        fields = {
            field.name: value
            for field in msgspec.structs.fields(shape)
            if field.encode_name in content
            for value in _field(content[field.encode_name], field.type)
        }
        return shape(**fields)


def _field(value: Any, kind: Any) -> list[Any]:  # noqa: ANN401 - any JSON, any type
    """Return the value in a list, or an empty list if the type cannot have it."""
    inner = next((option for option in (kind, *get_args(kind)) if _is_struct(option)), None)
    if inner is not None:
        return [tolerant(value, inner)] if isinstance(value, dict) else []
    if kind is str and isinstance(value, int | float) and not isinstance(value, bool):
        return [str(value)]
    try:
        return [msgspec.convert(value, kind, strict=False)]
    except msgspec.ValidationError:
        return []


def _is_struct(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)


def is_deep(text: bytes) -> bool:
    """Return whether JSON is nested more than `DEPTH_MAX` levels deep."""
    # Counting is fast, and almost no text has so many brackets at all.
    if text.count(b"[") + text.count(b"{") <= DEPTH_MAX:
        return False
    depth = 0
    for match in _NESTING.finditer(text):
        depth += (match[0] in b"[{") - (match[0] in b"]}")
        if depth > DEPTH_MAX:
            return True
    return False


def _repaired(text: bytes) -> bytes:
    """Replace invalid UTF-8 and single surrogates: a log line may be cut in the middle of a character."""
    whole = text.decode(errors="replace").encode()
    return _SURROGATES.sub(lambda match: rb"\ufffd" if match[2] else match[0], whole)
