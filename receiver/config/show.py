"""Listing of every key with its value and origin. Secrets are shown as `(set)` or empty."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter

import msgspec

from receiver.config.keys import INDEX, Key, SettingKey, key_text, setting_keys
from receiver.config.load import Loaded
from receiver.settings import Settings

DEFAULT_ORIGIN = "default"
SET = "(set)"


@dataclass(frozen=True)
class Shown:
    """One line of the listing."""

    key: Key
    value: object
    origin: str


def shown(loaded: Loaded) -> list[Shown]:
    """Return every key in declaration order, with each drain and each rule."""
    return [
        Shown(key, _printable(setting_key, value), loaded.origins.get(key_text(key), DEFAULT_ORIGIN))
        for setting_key in setting_keys()
        for key, value in _values_of(setting_key, loaded.settings)
    ]


def as_json(loaded: Loaded) -> str:
    """Return the listing as JSON: key → value and origin."""
    lines = {key_text(line.key): {"value": line.value, "origin": line.origin} for line in shown(loaded)}
    return json.dumps(lines, indent=2, ensure_ascii=False)


def as_toml(loaded: Loaded) -> str:
    """Return the listing as a configuration file without the secrets, with origins as comments."""
    tables: dict[Key, list[str]] = {}
    for entry in shown(loaded):
        line = f"{entry.key[-1]} = {_toml(entry.value)}"
        commented = f"# {line}" if entry.value is None or _is_secret(entry) else line
        tables.setdefault(entry.key[:-1], []).append(f"{commented:<48}  # {entry.origin}")
    return "\n".join(line for table, lines in tables.items() for line in [*_heading(table), *lines])


def _heading(table: Key) -> list[str]:
    name = ".".join(str(part) for part in table if isinstance(part, str))
    if not table:
        return []
    return ["", f"[[{name}]]" if isinstance(table[-1], int) else f"[{name}]"]


def _is_secret(entry: Shown) -> bool:
    pattern = tuple(INDEX if isinstance(part, int) else part for part in entry.key)
    return any(setting_key.path == pattern and setting_key.form == "secret" for setting_key in setting_keys())


def _values_of(setting_key: SettingKey, settings: Settings) -> Iterator[tuple[Key, object]]:
    if INDEX not in setting_key.path:
        yield setting_key.path, attrgetter(".".join(setting_key.path))(settings)
        return
    at = setting_key.path.index(INDEX)
    tables = attrgetter(".".join(setting_key.path[:at]))(settings)
    for index, table in enumerate(tables):
        yield (
            (*setting_key.path[:at], index, *setting_key.path[at + 1 :]),
            attrgetter(".".join(setting_key.path[at + 1 :]))(table),
        )


def _printable(setting_key: SettingKey, value: object) -> object:
    plain: object = msgspec.to_builtins(value)
    if setting_key.form != "secret":
        return list(plain) if isinstance(plain, tuple) else plain
    if isinstance(plain, list | tuple):
        return [SET for _ in plain]
    return SET if plain else ""


def _toml(value: object) -> str:
    """Return a TOML value: JSON's strings, numbers and lists are valid TOML, but TOML has no null."""
    if value is None:
        return '""'
    if isinstance(value, Mapping):
        raise TypeError("a table is shown by its keys")
    return json.dumps(value, ensure_ascii=False)
