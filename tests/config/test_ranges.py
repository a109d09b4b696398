"""Every setting has a range, and refuses what lies beside it, in words of one kind."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from docs.generate import settings_page
from receiver.config.keys import INDEX, SettingKey, bare, plain_key, setting_keys
from receiver.config.load import Sources
from receiver.config.ranges import item_of, range_of, range_text
from receiver.errors import OperatorError
from receiver.settings import Range

PAGE = settings_page().splitlines()


def range_said(setting_key: SettingKey) -> Range:
    limits = range_of(setting_key.type)
    assert limits, "say Range(low, high) beside its type, if it is no choice"
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


RANGED = [setting_key for setting_key in setting_keys() if not has_choices(setting_key)]
NUMBERS = [setting_key for setting_key in RANGED if not has_length(setting_key)]
TEXTS = [setting_key for setting_key in RANGED if has_length(setting_key)]


def outside(setting_key: SettingKey) -> Iterator[object]:
    """What lies right beside the range, and far off."""
    limits = range_said(setting_key)
    if setting_key.is_list:
        yield ["span:a"] * (int(limits.high) + 1)
        one = range_of(item_of(setting_key))
        assert one
        yield ["x" * (int(one.high) + 1)]
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
    """The ends of the range."""
    limits = range_said(setting_key)
    yield from (int(end) if is_whole(setting_key) else float(end) for end in (limits.low, limits.high))


def problems(directory: Path, setting_key: SettingKey, value: object) -> list[str]:
    """What is told about this one setting, said in a file."""
    *tables, name = setting_key.path
    text = f"{name} = {json.dumps(value)}\n".replace("NaN", "nan").replace("Infinity", "inf")
    if tables:
        is_list = INDEX in tables
        named = ".".join(part for part in tables if part != INDEX)
        text = f"[[{named}]]\n{text}" if is_list else f"[{named}]\n{text}"
    if tables == ["drain", INDEX] and name != "name":
        text += "name = 'a'\n"
    file = directory / "trace-drain.toml"
    file.write_text(text)
    try:
        Sources(str(file), {}, {}).load()
    except OperatorError as reason:
        return [line for line in str(reason).splitlines() if f"{name}' (file " in line]
    return []


@pytest.mark.parametrize("knob", setting_keys(), ids=name_of)
def test_every_setting_says_its_range(setting_key: SettingKey) -> None:
    row = next(line for line in PAGE if line.startswith(f"| `{name_of(setting_key)}` |"))

    assert row.split(" | ")[2] == range_text(setting_key)
    assert range_text(setting_key)


@pytest.mark.parametrize("knob", RANGED, ids=name_of)
def test_every_setting_refuses_what_lies_beside_its_range(setting_key: SettingKey, tmp_path: Path) -> None:
    for value in outside(setting_key):
        (told,) = problems(tmp_path, setting_key, value)

        assert "; expected " in told, told


@pytest.mark.parametrize("knob", NUMBERS, ids=name_of)
def test_every_number_takes_the_ends_of_its_range(setting_key: SettingKey, tmp_path: Path) -> None:
    for value in inside(setting_key):
        assert problems(tmp_path, setting_key, value) == []


@pytest.mark.parametrize(
    "knob",
    [
        setting_key
        for setting_key in RANGED
        if isinstance(setting_key.default, int | float)
        or (isinstance(setting_key.default, str) and setting_key.default)
    ],
    ids=name_of,
)
def test_every_default_is_in_its_range(setting_key: SettingKey) -> None:
    limits = range_said(setting_key)
    size = len(setting_key.default) if isinstance(setting_key.default, str) else setting_key.default

    assert isinstance(size, int | float)
    assert limits.low <= size <= limits.high


@pytest.mark.parametrize("knob", TEXTS, ids=name_of)
def test_no_text_but_a_secret_holds_a_control_character(setting_key: SettingKey, tmp_path: Path) -> None:
    for char in "\n\x1b\0\x7f\u2028":
        told = problems(tmp_path, setting_key, [f"a{char}b"] if setting_key.is_list else f"a{char}b")

        assert any("holds a control character" in line for line in told) == (setting_key.form != "secret")
        assert all(line.isprintable() for line in told)
