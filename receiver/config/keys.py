"""Every key that can be said, derived from the table of settings, so that nothing is listed twice.

A key is written `store.url`, `drain[0].name`. In the environment it is `TRACE_DRAIN_STORE__URL` or
`TRACE_DRAIN_STORE_URL`, `TRACE_DRAIN_DRAIN__0__NAME`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Literal, get_args, get_origin, get_type_hints

import msgspec

from receiver.settings import Frozen, Settings

INDEX = "#"
"""Stands for a table's place in its list."""
ENV_PREFIX = "TRACE_DRAIN_"

Form = Literal["plain", "bytes", "secret", "path"]
Spelling = Literal["value", "one", "file", "files"]
"""How a key says its knob: the value, one of several, a file that holds it, several such files."""
Key = tuple[str | int, ...]
"""Where a value goes: `("drain", 0, "name")`."""


@dataclass(frozen=True)
class SettingKey:
    """One setting, wherever its table stands."""

    path: tuple[str, ...]
    """With `#` for a place in a list."""
    type: object
    form: Form
    default: object
    required: bool

    @property
    def is_list(self) -> bool:
        """Whether it holds several values."""
        return get_origin(bare(self.type)) is tuple


@dataclass(frozen=True)
class Said:
    """One way to say a knob."""

    path: tuple[str, ...]
    setting_key: SettingKey
    spelling: Spelling


@cache
def setting_keys() -> tuple[SettingKey, ...]:
    """Every setting, in the order of the table."""
    return tuple(_knobs_of(Settings, ()))


@cache
def spellings() -> dict[tuple[str, ...], Said]:
    """Every key that can be said, by its path."""
    return {said.path: said for setting_key in setting_keys() for said in _spellings_of(setting_key)}


def is_list_of_tables(path: tuple[str, ...]) -> bool:
    """Whether a list of tables stands here: `drain`, `sampling.rule`."""
    return any(known[: len(path) + 1] == (*path, INDEX) for known in spellings())


def is_table(path: tuple[str, ...]) -> bool:
    """Whether a table stands here."""
    return any(len(known) > len(path) and known[: len(path)] == path for known in spellings())


def bare(annotation: object) -> object:
    """The type without what is said beside it."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def key_text(key: Key) -> str:
    """As an operator writes it."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")


def plain_key(key: Key) -> str:
    """Which knob or table it is, whatever its place in a list: `drain.name`."""
    return ".".join(str(part) for part in key if isinstance(part, str) and part != INDEX)


def env_name(key: Key) -> str:
    """As the environment names it."""
    return ENV_PREFIX + "__".join(str(part).upper() for part in key)


@cache
def env_patterns() -> tuple[tuple[re.Pattern[str], Said], ...]:
    """What an environment name looks like, single underscores for double ones, prefix gone."""
    return tuple((re.compile(_env_pattern(said.path)), said) for said in spellings().values())


def _env_pattern(path: tuple[str, ...]) -> str:
    return "_".join(r"(\d{1,4})" if part == INDEX else part.upper() for part in path)


def _knobs_of(table: type[Frozen], above: tuple[str, ...]) -> Iterator[SettingKey]:
    """Walk our own types: as deep as the table of settings, never as deep as an input."""
    hints = get_type_hints(table, include_extras=True)
    for field in msgspec.structs.fields(table):
        path, annotation = (*above, field.name), hints[field.name]
        below, in_list = _table_in(annotation)
        if below:
            yield from _knobs_of(below, (*path, INDEX) if in_list else path)
        else:
            yield SettingKey(path, annotation, _form_of(annotation), field.default, field.required)


def _table_in(annotation: object) -> tuple[type[Frozen] | None, bool]:
    in_list = get_origin(annotation) is tuple
    item: object = get_args(annotation)[0] if in_list else annotation
    if isinstance(item, type) and issubclass(item, Frozen):
        return item, in_list
    return None, in_list


def _form_of(annotation: object) -> Form:
    """As it is said beside the type, or beside that of an entry."""
    for part in get_args(annotation):
        form: Form = part.extra["form"] if isinstance(part, msgspec.Meta) and part.extra else _form_of(part)
        if form != "plain":
            return form
    return "plain"


def _spellings_of(setting_key: SettingKey) -> Iterator[Said]:
    yield Said(setting_key.path, setting_key, "value")
    if setting_key.form != "secret":
        return
    above, name = setting_key.path[:-1], setting_key.path[-1]
    single = name.removesuffix("s") if setting_key.is_list else name
    yield Said((*above, f"{single}_file"), setting_key, "file")
    if setting_key.is_list:
        yield Said((*above, single), setting_key, "one")
        yield Said((*above, f"{single}_files"), setting_key, "files")
