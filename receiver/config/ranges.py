"""What a setting may be: read off the table of settings, told to operators, held against what they say.

The one place where a range is checked. A text also holds no control character: it is printed and sent on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator
from typing import Annotated, Literal, get_args, get_origin

from receiver.config.keys import SettingKey, bare
from receiver.settings import Range

ONLY_WHITE_SPACE = "holds nothing but white space; expected a secret"
_CONTROL = {"Cc", "Cs", "Zl", "Zp"}
"""Control characters, what is no Unicode, and other ends of lines."""
_SIZES = (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10))


def range_of(annotation: object) -> Range | None:
    """The range of such a value, or of what it may be beside None. Of two ranges the outer one holds."""
    if get_origin(annotation) is Annotated:
        return next((said for said in reversed(get_args(annotation)) if isinstance(said, Range)), None)
    found = (range_of(inner) for inner in get_args(annotation))
    return next((one for one in found if one is not None), None)


def stray(setting_key: SettingKey, value: object) -> str:
    """Say what is wrong with a value of the right type; empty: nothing."""
    return next(_stray(setting_key, value), "")


def range_text(setting_key: SettingKey) -> str:
    """As the documentation says it."""
    choices = _choices(setting_key.type)
    limits = range_of(setting_key.type)
    if choices or limits is None:
        return " or ".join(f"`{choice}`" for choice in choices)
    inner = range_of(item_of(setting_key)) if setting_key.is_list else None
    each = f", each {_between(setting_key, inner, 'characters')}" if inner else ""
    return _between(setting_key, limits, _unit(setting_key)) + each


def item_of(setting_key: SettingKey) -> object:
    """The type of one entry of a list."""
    return get_args(bare(setting_key.type))[0]


def _stray(setting_key: SettingKey, value: object) -> Iterator[str]:
    limits = range_of(setting_key.type)
    if isinstance(value, tuple):
        inner = range_of(item_of(setting_key))
        yield from (found for one in value for found in _stray_text(setting_key, one, inner))
        yield from _outside(setting_key, len(value), limits, "entries")
    elif isinstance(value, str):
        yield from _stray_text(setting_key, value, limits)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        yield from _outside(setting_key, value, limits)


def _stray_text(setting_key: SettingKey, text: str, limits: Range | None) -> Iterator[str]:
    yield from _outside(setting_key, len(text), limits, "characters")
    if setting_key.form != "secret" and any(unicodedata.category(char) in _CONTROL for char in text):
        yield "holds a control character; expected text without"
    if setting_key.form == "secret" and text.isspace():
        yield ONLY_WHITE_SPACE


def _outside(setting_key: SettingKey, found: float, limits: Range | None, unit: str = "") -> Iterator[str]:
    """Written so that `nan` is outside of every range."""
    if limits is None or limits.low <= found <= limits.high:
        return
    said = f"has {found} {unit}" if unit else f"is {found}"
    yield f"{said}; expected {_between(setting_key, limits, '')}"


def _between(setting_key: SettingKey, limits: Range, unit: str) -> str:
    low, high = (_number(setting_key, bound) for bound in (limits.low, limits.high))
    return f"{low} to {high} {unit}".rstrip()


def _number(setting_key: SettingKey, bound: float) -> str:
    if setting_key.form == "bytes":
        return size_setting(int(bound))
    return f"{bound:.15g}"


def size_setting(bytes_: int) -> str:
    """As an operator writes it: in the largest unit that takes no fraction."""
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
