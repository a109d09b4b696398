"""Sources of settings: a TOML file, the environment, flags. Reports unknown keys with a suggestion.

Never: applies a default, converts a value, or puts a secret into a message.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from pathlib import Path

from receiver.config.keys import (
    ENV_PREFIX,
    INDEX,
    Key,
    KeyForm,
    SettingKey,
    env_name,
    env_patterns,
    is_list_of_tables,
    is_table,
    key_text,
    plain_key,
    spellings,
)
from receiver.errors import OperatorError

CONFIG_NAME = f"{ENV_PREFIX}CONFIG"
"""Environment variable with the same meaning as `--config`."""
CLOSE_MIN = 0.6
"""Similarity, 0 to 1, above which a known name is suggested for an unknown name."""

_TOML_PLACE = re.compile(r"\(at (line \d+, column \d+|end of document)\)$")
_TOML_EXPECTED = (
    "expected KEY = VALUE, [table], [[list of tables]] or # comment, each key and [table] once, "
    "texts in quotes, two backslashes for one, and closing quotes and brackets"
)
_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?")
"""Variables that Kubernetes sets in every container next to a service named `trace-drain`."""


@dataclass(frozen=True)
class RawValue:
    """One value of a setting, before its conversion."""

    key: Key
    """Key of the setting, the same for every spelling."""
    form: KeyForm
    raw: object
    origin: str
    """`flag --listen`, `environment TRACE_DRAIN_LISTEN`, `file trace-drain.toml`."""
    written_as: str
    """Key in the spelling of its source."""
    directory: Path = Path()
    """Base of relative paths."""
    is_text: bool = True
    """Whether numbers and lists were given as text too, as in the environment."""

    @property
    def setting_key(self) -> SettingKey:
        return self.form.setting_key


@dataclass(frozen=True)
class Problem:
    """Reason that the configuration cannot be used."""

    text: str
    key: str = ""
    """Setting or table without a usable value. Checks that depend on it are skipped. Empty if none."""


@dataclass
class Source:
    raw_values: list[RawValue] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def from_flags(flags: Mapping[str, tuple[str, object]]) -> Source:
    """Read the key and value of each flag that was given."""
    source = Source()
    for flag, (key, value) in flags.items():
        form = spellings()[tuple(key.split("."))]
        source.raw_values.append(RawValue(form.setting_key.path, form, value, f"flag {flag}", flag))
    return source


def from_environment(environ: Mapping[str, str]) -> Source:
    """Read the variables with our prefix, except those that Kubernetes sets."""
    source = Source()
    # Sorted, so that messages have the same order on every machine.
    for name, text in sorted(environ.items()):
        bare = name.removeprefix(ENV_PREFIX)
        # Unchanged by `removeprefix` means that the variable is not ours.
        if name in (bare, CONFIG_NAME) or _KUBERNETES.fullmatch(bare):
            continue
        match = _in_environment(bare)
        if match is None:
            source.problems.append(_unknown(f"environment {name}", name, _env_names()))
        else:
            source.raw_values.append(RawValue(*match, text, f"environment {name}", name))
    return source


def _toml_problem(reason: ValueError | RecursionError) -> str:
    """Describe the position and the expected syntax, without the text of the file: it may hold a secret."""
    if isinstance(reason, UnicodeDecodeError):
        return "; expected a text file in UTF-8"
    if isinstance(reason, RecursionError):
        return "; tables or lists are nested too deeply"
    place = _TOML_PLACE.search(str(reason))
    return f"{f' at {place[1]}' if place else ''}; {_TOML_EXPECTED}"


def from_file(path: Path) -> Source:
    """Read a TOML file. Raises `OperatorError` if it cannot be read or is not TOML."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as error:
        raise OperatorError(f"configuration file '{path}' cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise OperatorError(f"configuration file '{path}' is not TOML{_toml_problem(error)}") from error
    source = Source()
    source.raw_values.extend(_walk(content, (), path, source.problems))
    return source


def _in_environment(bare: str) -> tuple[Key, KeyForm] | None:
    # Both separators are accepted, `__` between tables and `_`; no two settings share such a name.
    name = re.sub("_+", "_", bare)
    for pattern, form in env_patterns():
        match = pattern.fullmatch(name)
        if match:
            indexes = iter(match.groups())
            path = form.setting_key.path
            return tuple(int(next(indexes)) if part == INDEX else part for part in path), form
    return None


def _walk(table: Mapping[str, object], above: Key, file: Path, problems: list[Problem]) -> Iterator[RawValue]:
    """Yield every value of a table. Does not enter unknown tables, so no file can cause deep recursion."""
    for name, value in table.items():
        key: Key = (*above, name)
        pattern = _pattern(key)
        form = spellings().get(pattern)
        if form:
            setting = (*above, form.setting_key.path[-1])
            yield RawValue(setting, form, value, f"file {file}", key_text(key), file.parent, is_text=False)
        elif is_list_of_tables(pattern):
            yield from _walk_list(value, key, file, problems)
        elif is_table(pattern) and isinstance(value, Mapping):
            yield from _walk(value, key, file, problems)
        # Reported with the key of the table, so that checks of its settings are skipped.
        elif is_table(pattern):
            text = f"'{key_text(key)}' in {file} is a value; expected a table [{key_text(key)}]"
            problems.append(Problem(text, plain_key(key)))
        else:
            problems.append(_unknown(f"'{key_text(key)}' in {file}", key_text(key), _known_beside(above)))


def _walk_list(value: object, key: Key, file: Path, problems: list[Problem]) -> Iterator[RawValue]:
    name = key_text(key)
    if not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
        text = f"'{name}' in {file} is not a list of tables; expected [[{name}]]"
        problems.append(Problem(text, plain_key(key)))
        return
    for index, item in enumerate(value):
        # An empty table would be dropped silently, because only values are collected.
        if not item:
            text = f"'{name}[{index}]' in {file} is empty; expected at least one key"
            problems.append(Problem(text, plain_key(key)))
        yield from _walk(item, (*key, index), file, problems)


def _pattern(key: Key) -> tuple[str, ...]:
    return tuple(INDEX if isinstance(part, int) else part for part in key)


def _known_beside(above: Key) -> dict[str, str]:
    """Return the keys to suggest, with their settings: keys of the same table first, then of other tables."""
    depth, pattern = len(above), _pattern(above)
    known = {
        key_text((*above, path[depth])): plain_key(
            form.setting_key.path if len(path) == depth + 1 else path[: depth + 1]
        )
        for path, form in spellings().items()
        if path[:depth] == pattern
    }
    return known | {
        key_text(path): plain_key(form.setting_key.path)
        for path, form in spellings().items()
        if INDEX not in path
    }


def _env_names() -> dict[str, str]:
    """Return the setting of every environment variable, by its name."""
    return {
        env_name(tuple(0 if part == INDEX else part for part in path)): plain_key(form.setting_key.path)
        for path, form in spellings().items()
    }


def _unknown(source: str, name: str, known: Mapping[str, str]) -> Problem:
    # Of equally similar keys the first, which is in the same table.
    close = max(known, key=lambda candidate: _similarity(name, candidate), default="")
    if _similarity(name, close) < CLOSE_MIN:
        return Problem(f"{source} is not a setting; `trace-drain config show` lists all settings")
    # The similar setting was meant, so its default is not checked: that would report the mistake twice.
    return Problem(f"{source} is not a setting; did you mean '{close}'?", known[close])


def _similarity(name: str, candidate: str) -> float:
    """Compare two keys without the table that they share: a long common prefix would make any two similar."""
    table, _, last = name.rpartition(".")
    other_table, _, other_last = candidate.rpartition(".")
    # A key without its unit, or with its words in another order, such as `max_bytes` for `bytes_max`.
    if table == other_table and set(last.split("_")) <= set(other_last.split("_")):
        return 1
    words, other_words = (re.split(r"[._\[\]]+", text) for text in (name, candidate))
    while words and other_words and words[0] == other_words[0]:
        del words[0], other_words[0]
    return SequenceMatcher(None, "_".join(words), "_".join(other_words)).ratio()
