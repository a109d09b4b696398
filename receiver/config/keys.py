"""Configurable keys, derived from `receiver/settings.py`, so that no setting is listed twice.

A key is written `store.url` or `drain[0].name`. In the environment it is `TRACE_DRAIN_STORE__URL` (or
`TRACE_DRAIN_STORE_URL`) or `TRACE_DRAIN_DRAIN__0__NAME`.
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
"""Placeholder for a table's index in its list."""
ENV_PREFIX = "TRACE_DRAIN_"

Form = Literal["plain", "bytes", "secret", "path"]
Spelling = Literal["value", "one", "file", "files"]
"""Content of a key: the value, one of several values, a file with the value, or several files."""
Key = tuple[str | int, ...]
"""Path of a value in the settings: `("drain", 0, "name")`."""


@dataclass(frozen=True)
class SettingKey:
    path: tuple[str, ...]
    """Path of the setting, with `#` for an index in a list."""
    type: object
    form: Form
    default: object
    required: bool

    @property
    def is_list(self) -> bool:
        return get_origin(bare(self.type)) is tuple


@dataclass(frozen=True)
class KeyForm:
    """One key by which a setting can be given: `tokens`, `token`, `token_file` or `token_files`."""

    path: tuple[str, ...]
    setting_key: SettingKey
    spelling: Spelling


# Derived from types, which never change at run time.
@cache
def setting_keys() -> tuple[SettingKey, ...]:
    """Return every setting, in declaration order."""
    return tuple(_settings_in(Settings, ()))


@cache
def spellings() -> dict[tuple[str, ...], KeyForm]:
    """Return every key by which a setting can be given, by its path."""
    return {form.path: form for setting_key in setting_keys() for form in _spellings_of(setting_key)}


def is_list_of_tables(path: tuple[str, ...]) -> bool:
    """Whether the path is a list of tables: `drain`, `sampling.rule`."""
    return any(known[: len(path) + 1] == (*path, INDEX) for known in spellings())


def is_table(path: tuple[str, ...]) -> bool:
    return any(len(known) > len(path) and known[: len(path)] == path for known in spellings())


def bare(annotation: object) -> object:
    """Return the type without its `Annotated` metadata."""
    return get_args(annotation)[0] if get_origin(annotation) is Annotated else annotation


def key_text(key: Key) -> str:
    """Return the key as written in messages: `drain[0].name`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key).removeprefix(".")


def plain_key(key: Key) -> str:
    """Return the key without list indexes: `drain.name`."""
    return ".".join(str(part) for part in key if isinstance(part, str) and part != INDEX)


def env_name(key: Key) -> str:
    return ENV_PREFIX + "__".join(str(part).upper() for part in key)


@cache
def env_patterns() -> tuple[tuple[re.Pattern[str], KeyForm], ...]:
    """Return patterns of environment names without the prefix, with single underscores only."""
    return tuple((re.compile(_env_pattern(form.path)), form) for form in spellings().values())


def _env_pattern(path: tuple[str, ...]) -> str:
    # Few digits, because `int` raises an error for thousands of them.
    return "_".join(r"(\d{1,4})" if part == INDEX else part.upper() for part in path)


def _settings_in(table: type[Frozen], above: tuple[str, ...]) -> Iterator[SettingKey]:
    """Yield the settings of a table. The recursion follows our own types, so no input can make it deep."""
    hints = get_type_hints(table, include_extras=True)
    for field in msgspec.structs.fields(table):
        path, annotation = (*above, field.name), hints[field.name]
        below, in_list = _table_in(annotation)
        if below:
            yield from _settings_in(below, (*path, INDEX) if in_list else path)
        else:
            yield SettingKey(path, annotation, _form_of(annotation), field.default, field.required)


def _table_in(annotation: object) -> tuple[type[Frozen] | None, bool]:
    in_list = get_origin(annotation) is tuple
    item: object = get_args(annotation)[0] if in_list else annotation
    if isinstance(item, type) and issubclass(item, Frozen):
        return item, in_list
    return None, in_list


def _form_of(annotation: object) -> Form:
    """Return the form declared on the type, or on the type of a list's entries."""
    for part in get_args(annotation):
        form: Form = part.extra["form"] if isinstance(part, msgspec.Meta) and part.extra else _form_of(part)
        if form != "plain":
            return form
    return "plain"


def _spellings_of(setting_key: SettingKey) -> Iterator[KeyForm]:
    yield KeyForm(setting_key.path, setting_key, "value")
    if setting_key.form != "secret":
        return
    above, name = setting_key.path[:-1], setting_key.path[-1]
    # `token_file` for one, `token_files` for several: most configurations have a single token.
    single = name.removesuffix("s") if setting_key.is_list else name
    yield KeyForm((*above, f"{single}_file"), setting_key, "file")
    if setting_key.is_list:
        yield KeyForm((*above, single), setting_key, "one")
        yield KeyForm((*above, f"{single}_files"), setting_key, "files")
