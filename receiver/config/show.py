"""Listing of every key with its value and origin. For a secret it only shows whether it is set."""

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
    """Return the listing as JSON: an object with the value and origin of each key."""
    lines = {key_text(line.key): {"value": line.value, "origin": line.origin} for line in shown(loaded)}
    return json.dumps(lines, indent=2, ensure_ascii=False)


def as_toml(loaded: Loaded) -> str:
    """Return the listing as a configuration file without the secrets, with origins as comments."""
    tables: dict[Key, list[str]] = {}
    for entry in shown(loaded):
        tables.setdefault(entry.key[:-1], []).append(f"{_line(entry):<48}  # {entry.origin}")
    return "\n".join(line for table, lines in tables.items() for line in [*_heading(table), *lines])


def _line(entry: Shown) -> str:
    """Return a line of TOML. The line of a secret is a comment that is invalid TOML if it is uncommented."""
    if entry.value is None or (_is_secret(entry) and not entry.value):
        return f"# {entry.key[-1]} is not set"
    if _is_secret(entry):
        # No placeholder: it could be copied into a file and then be used as the secret.
        return f"# {entry.key[-1]} is set and not shown"
    return f"{entry.key[-1]} = {_toml(entry.value)}"


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
        # The number of secrets is shown: during a rotation there are two.
        return [SET for _ in plain]
    return SET if plain else ""


def _toml(value: object) -> str:
    """Return a TOML value: JSON's strings, numbers and lists are valid TOML."""
    if isinstance(value, Mapping):
        raise TypeError("a table has no value of its own; expected its keys")
    return json.dumps(value, ensure_ascii=False)
