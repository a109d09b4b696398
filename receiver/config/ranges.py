"""Ranges of settings: reads them from `receiver/settings.py`, documents them, and checks values against them.

Only this module checks ranges. Text must not contain control characters, because it is printed and sent in
headers.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Annotated, Literal, get_args, get_origin

from receiver.config.keys import SettingKey, bare
from receiver.settings import Range

ONLY_WHITE_SPACE = "contains only white space; expected a secret"
_CONTROL = {"Cc", "Cs", "Zl", "Zp"}
"""Control characters, surrogates, and line and paragraph separators."""
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def range_of(annotation: object) -> Range | None:
    """Return the range of a type, or of its non-None alternative. An outer range overrides an inner range."""
    if get_origin(annotation) is Annotated:
        return next((part for part in reversed(get_args(annotation)) if isinstance(part, Range)), None)
    ranges = (range_of(inner) for inner in get_args(annotation))
    return next((inner for inner in ranges if inner is not None), None)


def range_problem(setting_key: SettingKey, value: object) -> str:
    """Return the problem of a value that has the right type; empty if there is none."""
    return next(_range_problems(setting_key, value), "")


def range_text(setting_key: SettingKey) -> str:
    """Return the range as text for the documentation."""
    choices = _choices(setting_key.type)
    limits = range_of(setting_key.type)
    if choices or limits is None:
        return " or ".join(f"`{choice}`" for choice in choices)
    inner = range_of(item_of(setting_key)) if setting_key.is_list else None
    each = f", each {_between(setting_key, inner, 'characters')}" if inner else ""
    return _between(setting_key, limits, _unit(setting_key)) + each


def item_of(setting_key: SettingKey) -> object:
    """Return the type of a list's entries."""
    return get_args(bare(setting_key.type))[0]


def _range_problems(setting_key: SettingKey, value: object) -> Iterator[str]:
    limits = range_of(setting_key.type)
    if isinstance(value, tuple):
        inner = range_of(item_of(setting_key))
        yield from (problem for item in value for problem in _text_problems(setting_key, item, inner))
        yield from _outside(setting_key, len(value), limits, "entries")
    elif isinstance(value, str):
        yield from _text_problems(setting_key, value, limits)
    # `bool` is a subclass of `int`.
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _outside(setting_key, value, limits)


def _text_problems(setting_key: SettingKey, text: str, limits: Range | None) -> Iterator[str]:
    yield from _outside(setting_key, len(text), limits, "characters")
    # The key of an HMAC may be any text; tokens have a stricter check of their own.
    if setting_key.form != "secret" and any(unicodedata.category(char) in _CONTROL for char in text):
        yield "contains a control character; expected text without"
    if setting_key.form == "secret" and text.isspace():
        yield ONLY_WHITE_SPACE


def _outside(setting_key: SettingKey, number: float, limits: Range | None, unit: str = "") -> Iterator[str]:
    # Written so that nan fails: every comparison with nan is false.
    if limits is None or limits.low <= number <= limits.high:
        return
    actual = f"has {number} {unit}" if unit else f"is {number}"
    yield f"{actual}; expected {_between(setting_key, limits, '')}"


def _between(setting_key: SettingKey, limits: Range, unit: str) -> str:
    low, high = (_number(setting_key, bound) for bound in (limits.low, limits.high))
    return f"{low} to {high} {unit}".rstrip()


def _number(setting_key: SettingKey, bound: float) -> str:
    if setting_key.form == "bytes":
        return size_setting(int(bound))
    return f"{bound:.15g}"


def size_setting(bytes_: int) -> str:
    """Return the size in the largest unit that needs no fraction: `8GiB`."""
    return next(
        (f"{bytes_ // size}{unit}" for unit, size in _SIZES if bytes_ and bytes_ % size == 0), str(bytes_)
    )


def _unit(setting_key: SettingKey) -> str:
    if setting_key.is_list:
        return "entries"
    return "characters" if _holds(setting_key.type, str) else ""


def _holds(annotation: object, kind: type) -> bool:
    return annotation is kind or any(_holds(inner, kind) for inner in get_args(annotation))


def _choices(annotation: object) -> tuple[str, ...]:
    if annotation is bool:
        return ("false", "true")
    return tuple(map(str, get_args(annotation))) if get_origin(annotation) is Literal else ()
