"""Tests of ranges: every setting has a documented range, and values outside it are refused."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

from docs.generate import settings_page
from receiver.config.keys import INDEX, SettingKey, bare, plain_key, setting_keys
from receiver.config.load import Sources
from receiver.config.ranges import item_of, range_of, range_text
from receiver.errors import OperatorError
from receiver.settings import Range
from tests.support.cases import each_case

PAGE = settings_page().splitlines()


def declared_range(setting_key: SettingKey) -> Range:
    limits = range_of(setting_key.type)
    assert limits, "annotate its type with Range(low, high), or make it a choice"
    return limits


def has_choices(setting_key: SettingKey) -> bool:
    return " or " in range_text(setting_key)


def has_length(setting_key: SettingKey) -> bool:
    return setting_key.is_list or "characters" in range_text(setting_key)


def is_whole(setting_key: SettingKey) -> bool:
    kinds = [bare(setting_key.type), *map(bare, get_args(setting_key.type))]
    return int in kinds


def name_of(setting_key: SettingKey) -> str:
    return plain_key(setting_key.path)


REQUIRED = {("drain", INDEX, "name"): "a", ("store", "retention_rule", INDEX, "days"): 7}
"""Settings that their table needs, which would be a problem of its own."""
RANGED = [setting_key for setting_key in setting_keys() if not has_choices(setting_key)]
NUMBERS = [setting_key for setting_key in RANGED if not has_length(setting_key)]
TEXTS = [setting_key for setting_key in RANGED if has_length(setting_key)]


def outside(setting_key: SettingKey) -> Iterator[object]:
    """Yield values just outside the range, and far outside it."""
    limits = declared_range(setting_key)
    if setting_key.is_list:
        yield ["span:a"] * (int(limits.high) + 1)
        item_range = range_of(item_of(setting_key))
        assert item_range
        yield ["x" * (int(item_range.high) + 1)]
    elif has_length(setting_key):
        yield "x" * (int(limits.high) + 1)
        if limits.low:
            yield "x" * (int(limits.low) - 1)
    elif is_whole(setting_key):
        yield from (int(limits.low) - 1, int(limits.high) + 1, -1, 1 << 63, 10**40)
    else:
        yield from (math.nextafter(limits.low, -1), math.nextafter(limits.high, math.inf))
        yield from (-1.0, math.inf, -math.inf, math.nan)


def inside(setting_key: SettingKey) -> Iterator[object]:
    """Yield the ends of the range."""
    limits = declared_range(setting_key)
    yield from (int(end) if is_whole(setting_key) else float(end) for end in (limits.low, limits.high))


def problems(directory: Path, setting_key: SettingKey, value: object) -> list[str]:
    """Return the problems reported for this setting if a file gives it this value."""
    *tables, name = setting_key.path
    text = f"{name} = {json.dumps(value)}\n".replace("NaN", "nan").replace("Infinity", "inf")
    if tables:
        is_list = INDEX in tables
        table = ".".join(part for part in tables if part != INDEX)
        text = f"[[{table}]]\n{text}" if is_list else f"[{table}]\n{text}"
    for required in ("name", "days"):
        if (*tables, required) in REQUIRED and name != required:
            text += f"{required} = {REQUIRED[*tables, required]!r}\n"
    file = directory / "trace-drain.toml"
    file.write_text(text)
    try:
        Sources(str(file), {}, {}).load()
    except OperatorError as error:
        return [line for line in str(error).splitlines() if f"{name}' (file " in line]
    return []


@each_case("setting_key", setting_keys(), ids=name_of)
def test_settings_page_documents_the_range_of_every_setting(setting_key: SettingKey) -> None:
    row = next(line for line in PAGE if line.startswith(f"| `{name_of(setting_key)}` |"))

    assert row.split(" | ")[2] == range_text(setting_key)
    assert range_text(setting_key)


@each_case("setting_key", RANGED, ids=name_of)
def test_values_outside_the_range_are_refused(setting_key: SettingKey, tmp_path: Path) -> None:
    for value in outside(setting_key):
        (problem,) = problems(tmp_path, setting_key, value)

        assert "; expected " in problem, problem


@each_case("setting_key", NUMBERS, ids=name_of)
def test_both_ends_of_a_range_are_accepted(setting_key: SettingKey, tmp_path: Path) -> None:
    for value in inside(setting_key):
        assert problems(tmp_path, setting_key, value) == []


@each_case(
    "setting_key",
    [
        setting_key
        for setting_key in RANGED
        if isinstance(setting_key.default, int | float)
        or (isinstance(setting_key.default, str) and setting_key.default)
    ],
    ids=name_of,
)
def test_every_default_is_in_its_range(setting_key: SettingKey) -> None:
    limits = declared_range(setting_key)
    size = len(setting_key.default) if isinstance(setting_key.default, str) else setting_key.default

    assert isinstance(size, int | float)
    assert limits.low <= size <= limits.high


@each_case("setting_key", TEXTS, ids=name_of)
def test_control_characters_are_refused_except_in_secrets(setting_key: SettingKey, tmp_path: Path) -> None:
    for char in "\n\x1b\0\x7f\u2028":
        lines = problems(tmp_path, setting_key, [f"a{char}b"] if setting_key.is_list else f"a{char}b")

        assert any("contains a control character" in line for line in lines) == (setting_key.form != "secret")
        assert all(line.isprintable() for line in lines)
