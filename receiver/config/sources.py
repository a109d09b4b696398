"""What was said, and where: in a TOML file, in the environment, by flags.

Never: a default, a conversion, or a secret in a message. A key nobody knows is a problem with a suggestion.
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
    Said,
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
"""The environment's word for `--config`."""
CLOSE_MIN = 0.6
"""How alike two names are, of 1, for one to be suggested for the other."""

_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?")
"""What Kubernetes puts into every container beside a service named `trace-drain`."""


@dataclass(frozen=True)
class Given:
    """One value as it was said."""

    key: Key
    """Of the knob, whatever the spelling."""
    setting_key: SettingKey
    spelling: Spelling
    raw: object
    origin: str
    """`flag --listen`, `environment TRACE_DRAIN_LISTEN`, `file trace-drain.toml`."""
    said_as: str
    """The key as it was written."""
    directory: Path
    """What relative paths are relative to."""
    is_text: bool
    """Whether numbers and lists, too, came as text."""


@dataclass(frozen=True)
class Problem:
    """Why the configuration cannot be used."""

    text: str
    key: str = ""
    """The knob or table that is therefore not known: what depends on it is not judged. Empty: none."""


@dataclass
class Source:
    """Everything one source said."""

    given: list[Given] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)


def from_flags(flags: Mapping[str, tuple[str, object]]) -> Source:
    """Flags that were given: flag → (key, value)."""
    known = spellings()
    return Source(
        [
            Given(said.path, said.setting_key, "value", value, f"flag {flag}", flag, Path(), is_text=True)
            for flag, (key, value) in flags.items()
            for said in [known[tuple(key.split("."))]]
        ]
    )


def from_environment(environ: Mapping[str, str]) -> Source:
    """Variables with our prefix. Kubernetes' own are not ours."""
    source = Source()
    for name, text in sorted(environ.items()):
        bare = name.removeprefix(ENV_PREFIX)
        if name in (bare, CONFIG_NAME) or _KUBERNETES.fullmatch(bare):
            continue
        found = _in_environment(bare)
        if found is None:
            source.problems.append(_unknown(f"environment {name}", name, _env_names()))
        else:
            key, said = found
            origin = f"environment {name}"
            source.given.append(
                Given(key, said.setting_key, said.spelling, text, origin, name, Path(), is_text=True)
            )
    return source


def from_file(path: Path) -> Source:
    """A TOML file."""
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


def _in_environment(bare: str) -> tuple[Key, Said] | None:
    name = re.sub("_+", "_", bare)
    for pattern, said in env_patterns():
        found = pattern.fullmatch(name)
        if found:
            places = iter(found.groups())
            path = said.setting_key.path
            return tuple(int(next(places)) if part == INDEX else part for part in path), said
    return None


def _walk(table: Mapping[str, object], above: Key, file: Path, problems: list[Problem]) -> Iterator[Given]:
    """Every value of a table. As deep as the settings are; what is deeper is not known and not entered."""
    for name, value in table.items():
        key: Key = (*above, name)
        pattern = _pattern(key)
        said = spellings().get(pattern)
        if said:
            origin = f"file {file}"
            yield Given(
                (*above, said.setting_key.path[-1]),
                said.setting_key,
                said.spelling,
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
            what = f"'{key_text(key)}' in {file} is a value; expected a table [{key_text(key)}]"
            problems.append(Problem(what, plain_key(key)))
        else:
            problems.append(_unknown(f"'{key_text(key)}' in {file}", key_text(key), _known_beside(above)))


def _walk_list(value: object, key: Key, file: Path, problems: list[Problem]) -> Iterator[Given]:
    name = key_text(key)
    if not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
        what = f"'{name}' in {file} is no list of tables; expected [[{name}]]"
        problems.append(Problem(what, plain_key(key)))
        return
    for place, item in enumerate(value):
        if not item:
            what = f"'{name}[{place}]' in {file} is empty; expected at least one key"
            problems.append(Problem(what, plain_key(key)))
        yield from _walk(item, (*key, place), file, problems)


def _pattern(key: Key) -> tuple[str, ...]:
    return tuple(INDEX if isinstance(part, int) else part for part in key)


def _known_beside(above: Key) -> dict[str, str]:
    """Keys of the same table, and of all others, into which one may have strayed. Each with its knob."""
    depth, pattern = len(above), _pattern(above)
    known = {
        key_text((*above, path[depth])): plain_key(
            said.setting_key.path if len(path) == depth + 1 else path[: depth + 1]
        )
        for path, said in spellings().items()
        if path[:depth] == pattern
    }
    return known | {
        key_text(path): plain_key(said.setting_key.path)
        for path, said in spellings().items()
        if INDEX not in path
    }


def _env_names() -> dict[str, str]:
    """Every name, with its knob."""
    return {
        env_name(tuple(0 if part == INDEX else part for part in path)): plain_key(said.setting_key.path)
        for path, said in spellings().items()
    }


def _unknown(what: str, name: str, known: Mapping[str, str]) -> Problem:
    close = next((one for one in get_close_matches(name, known, len(known)) if _is_close(name, one)), None)
    if close is None:
        return Problem(f"{what} is no setting; see `trace-drain config show` for all")
    return Problem(f"{what} is no setting; did you mean '{close}'?", known[close])


def _is_close(name: str, other: str) -> bool:
    """Whether they are alike where they differ: a table's name before them makes no two keys alike."""
    one_words, other_words = (re.split(r"[._\[\]]+", text) for text in (name, other))
    while one_words and other_words and one_words[0] == other_words[0]:
        del one_words[0], other_words[0]
    one_rest, other_rest = "_".join(one_words), "_".join(other_words)
    return SequenceMatcher(None, one_rest, other_rest).ratio() >= CLOSE_MIN
