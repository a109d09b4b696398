"""Sources of settings: a TOML file, the environment, flags. Reports unknown keys with a suggestion.

Never: applies a default, converts a value, or puts a secret into a message.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from difflib import SequenceMatcher, get_close_matches
from pathlib import Path

from receiver.config.keys import (
    ENV_PREFIX,
    INDEX,
    Key,
    KeyForm,
    SettingKey,
    Spelling,
    env_name,
    env_patterns,
    is_list_of_tables,
    is_table,
    key_text,
    plain_key,
    spellings,
)
from receiver.config.toml_errors import without_text
from receiver.errors import OperatorError

CONFIG_NAME = f"{ENV_PREFIX}CONFIG"
"""Environment variable with the same meaning as `--config`."""
CLOSE_MIN = 0.6
"""Similarity, 0 to 1, above which a known name is suggested for an unknown name."""

_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?")
"""Variables that Kubernetes sets in every container next to a service named `trace-drain`."""


@dataclass(frozen=True)
class Given:
    """One value as it was given."""

    key: Key
    """Key of the setting, the same for every spelling."""
    setting_key: SettingKey
    spelling: Spelling
    raw: object
    origin: str
    """`flag --listen`, `environment TRACE_DRAIN_LISTEN`, `file trace-drain.toml`."""
    written_as: str
    """The key as it was written."""
    directory: Path
    """Base of relative paths."""
    is_text: bool
    """Whether numbers and lists were given as text too, as in the environment."""


@dataclass(frozen=True)
class Problem:
    """Why the configuration cannot be used."""

    text: str
    key: str = ""
    """Setting or table without a usable value: checks that depend on it are skipped. Empty: none."""


@dataclass
class Source:
    """All values and problems of one source."""

    given: list[Given] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def from_flags(flags: Mapping[str, tuple[str, object]]) -> Source:
    """Read the flags that were given: flag → (key, value)."""
    known = spellings()
    return Source(
        [
            Given(form.path, form.setting_key, "value", value, f"flag {flag}", flag, Path(), is_text=True)
            for flag, (key, value) in flags.items()
            for form in [known[tuple(key.split("."))]]
        ]
    )


def from_environment(environ: Mapping[str, str]) -> Source:
    """Read the variables with our prefix, except those that Kubernetes sets."""
    source = Source()
    for name, text in sorted(environ.items()):
        bare = name.removeprefix(ENV_PREFIX)
        if name in (bare, CONFIG_NAME) or _KUBERNETES.fullmatch(bare):
            continue
        match = _in_environment(bare)
        if match is None:
            source.problems.append(_unknown(f"environment {name}", name, _env_names()))
        else:
            key, form = match
            origin = f"environment {name}"
            source.given.append(
                Given(key, form.setting_key, form.spelling, text, origin, name, Path(), is_text=True)
            )
    return source


def from_file(path: Path) -> Source:
    """Read a TOML file. Raises `OperatorError` if it cannot be read or is not TOML."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as reason:
        raise OperatorError(f"configuration file '{path}' cannot be read: {reason.strerror}") from reason
    except (ValueError, RecursionError) as reason:
        raise OperatorError(f"configuration file '{path}' is not TOML: {without_text(reason)}") from reason
    source = Source()
    for given in _walk(content, (), path, source.problems):
        source.given.append(given)
    return source


def _in_environment(bare: str) -> tuple[Key, KeyForm] | None:
    name = re.sub("_+", "_", bare)
    for pattern, form in env_patterns():
        match = pattern.fullmatch(name)
        if match:
            indexes = iter(match.groups())
            path = form.setting_key.path
            return tuple(int(next(indexes)) if part == INDEX else part for part in path), form
    return None


def _walk(table: Mapping[str, object], above: Key, file: Path, problems: list[Problem]) -> Iterator[Given]:
    """Yield every value of a table. Recursion is as deep as our settings: unknown tables are not entered."""
    for name, value in table.items():
        key: Key = (*above, name)
        pattern = _pattern(key)
        form = spellings().get(pattern)
        if form:
            origin = f"file {file}"
            yield Given(
                (*above, form.setting_key.path[-1]),
                form.setting_key,
                form.spelling,
                value,
                origin,
                key_text(key),
                file.parent,
                is_text=False,
            )
        elif is_list_of_tables(pattern):
            yield from _walk_list(value, key, file, problems)
        elif is_table(pattern) and isinstance(value, Mapping):
            yield from _walk(value, key, file, problems)
        elif is_table(pattern):
            text = f"'{key_text(key)}' in {file} is a value; expected a table [{key_text(key)}]"
            problems.append(Problem(text, plain_key(key)))
        else:
            problems.append(_unknown(f"'{key_text(key)}' in {file}", key_text(key), _known_beside(above)))


def _walk_list(value: object, key: Key, file: Path, problems: list[Problem]) -> Iterator[Given]:
    name = key_text(key)
    if not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
        text = f"'{name}' in {file} is not a list of tables; expected [[{name}]]"
        problems.append(Problem(text, plain_key(key)))
        return
    for index, item in enumerate(value):
        if not item:
            text = f"'{name}[{index}]' in {file} is empty; expected at least one key"
            problems.append(Problem(text, plain_key(key)))
        yield from _walk(item, (*key, index), file, problems)


def _pattern(key: Key) -> tuple[str, ...]:
    return tuple(INDEX if isinstance(part, int) else part for part in key)


def _known_beside(above: Key) -> dict[str, str]:
    """Return written key → setting: keys of the same table, and of other tables in case of a wrong table."""
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
    """Return the name of every environment variable → its setting."""
    return {
        env_name(tuple(0 if part == INDEX else part for part in path)): plain_key(form.setting_key.path)
        for path, form in spellings().items()
    }


def _unknown(source: str, name: str, known: Mapping[str, str]) -> Problem:
    similar = get_close_matches(name, known, len(known))
    close = next((candidate for candidate in similar if _is_close(name, candidate)), None)
    if close is None:
        return Problem(f"{source} is not a setting; `trace-drain config show` lists all settings")
    return Problem(f"{source} is not a setting; did you mean '{close}'?", known[close])


def _is_close(name: str, candidate: str) -> bool:
    """Whether the names are similar without their common table: a shared table makes no keys similar."""
    words, other_words = (re.split(r"[._\[\]]+", text) for text in (name, candidate))
    while words and other_words and words[0] == other_words[0]:
        del words[0], other_words[0]
    rest, other_rest = "_".join(words), "_".join(other_words)
    return SequenceMatcher(None, rest, other_rest).ratio() >= CLOSE_MIN
