"""Every setting has a range, and refuses what lies beside it, in words of one kind."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from docs.generate import settings_page
from receiver.config.keys import INDEX, Knob, bare, knobs, plain_key
from receiver.config.load import Sources
from receiver.config.ranges import item_of, range_of, range_text
from receiver.errors import OperatorError
from receiver.settings import Range

PAGE = settings_page().splitlines()


def range_said(knob: Knob) -> Range:
    limits = range_of(knob.type)
    assert limits, "say Range(low, high) beside its type, if it is no choice"
    return limits


def has_choices(knob: Knob) -> bool:
    return " or " in range_text(knob)


def has_length(knob: Knob) -> bool:
    return knob.is_list or "characters" in range_text(knob)


def is_whole(knob: Knob) -> bool:
    kinds = [bare(knob.type), *map(bare, get_args(knob.type))]
    return int in kinds


def name_of(knob: Knob) -> str:
    return plain_key(knob.path)


RANGED = [knob for knob in knobs() if not has_choices(knob)]
NUMBERS = [knob for knob in RANGED if not has_length(knob)]
TEXTS = [knob for knob in RANGED if has_length(knob)]


def outside(knob: Knob) -> Iterator[object]:
    """What lies right beside the range, and far off."""
    limits = range_said(knob)
    if knob.is_list:
        yield ["span:a"] * (int(limits.high) + 1)
        one = range_of(item_of(knob))
        assert one
        yield ["x" * (int(one.high) + 1)]
    elif has_length(knob):
        yield "x" * (int(limits.high) + 1)
        if limits.low:
            yield "x" * (int(limits.low) - 1)
    elif is_whole(knob):
        yield from (int(limits.low) - 1, int(limits.high) + 1, -1, 1 << 63, 10**40)
    else:
        yield from (math.nextafter(limits.low, -1), math.nextafter(limits.high, math.inf))
        yield from (-1.0, math.inf, -math.inf, math.nan)


def inside(knob: Knob) -> Iterator[object]:
    """The ends of the range."""
    limits = range_said(knob)
    yield from (int(end) if is_whole(knob) else float(end) for end in (limits.low, limits.high))


def problems(directory: Path, knob: Knob, value: object) -> list[str]:
    """What is told about this one setting, said in a file."""
    *tables, name = knob.path
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


@pytest.mark.parametrize("knob", knobs(), ids=name_of)
def test_every_setting_says_its_range(knob: Knob) -> None:
    row = next(line for line in PAGE if line.startswith(f"| `{name_of(knob)}` |"))

    assert row.split(" | ")[2] == range_text(knob)
    assert range_text(knob)


@pytest.mark.parametrize("knob", RANGED, ids=name_of)
def test_every_setting_refuses_what_lies_beside_its_range(knob: Knob, tmp_path: Path) -> None:
    for value in outside(knob):
        (told,) = problems(tmp_path, knob, value)

        assert "; expected " in told, told


@pytest.mark.parametrize("knob", NUMBERS, ids=name_of)
def test_every_number_takes_the_ends_of_its_range(knob: Knob, tmp_path: Path) -> None:
    for value in inside(knob):
        assert problems(tmp_path, knob, value) == []


@pytest.mark.parametrize(
    "knob",
    [
        knob
        for knob in RANGED
        if isinstance(knob.default, int | float) or (isinstance(knob.default, str) and knob.default)
    ],
    ids=name_of,
)
def test_every_default_is_in_its_range(knob: Knob) -> None:
    limits = range_said(knob)
    size = len(knob.default) if isinstance(knob.default, str) else knob.default

    assert isinstance(size, int | float)
    assert limits.low <= size <= limits.high


@pytest.mark.parametrize("knob", TEXTS, ids=name_of)
def test_no_text_but_a_secret_holds_a_control_character(knob: Knob, tmp_path: Path) -> None:
    for char in "\n\x1b\0\x7f\u2028":
        told = problems(tmp_path, knob, [f"a{char}b"] if knob.is_list else f"a{char}b")

        assert any("holds a control character" in line for line in told) == (knob.form != "secret")
        assert all(line.isprintable() for line in told)
