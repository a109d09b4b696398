"""What was said, and where: in a TOML file, in the environment, by flags.

Never: a default, a conversion, or a secret in a message. A key nobody knows is a problem with a suggestion.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from pathlib import Path

from receiver.config.knobs import (
    ENV_PREFIX,
    INDEX,
    Key,
    Knob,
    Said,
    Spelling,
    env_name,
    env_patterns,
    is_list_of_tables,
    is_table,
    key_text,
    spellings,
)
from receiver.errors import OperatorError

CONFIG_NAME = f"{ENV_PREFIX}CONFIG"
"""The environment's word for `--config`."""

_KUBERNETES = re.compile(r"SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP)(_(PROTO|PORT|ADDR))?)?")
"""What Kubernetes puts into every container beside a service named `trace-drain`."""


@dataclass(frozen=True)
class Given:
    """One value as it was said."""

    key: Key
    """Of the knob, whatever the spelling."""
    knob: Knob
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


@dataclass
class Source:
    """Everything one source said."""

    given: list[Given] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def from_flags(flags: Mapping[str, tuple[str, object]]) -> Source:
    """Flags that were given: flag → (key, value)."""
    known = spellings()
    return Source(
        [
            Given(said.path, said.knob, "value", value, f"flag {flag}", flag, Path(), is_text=True)
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
            source.problems.append(f"environment {name} is no setting{_did_you_mean(name, _env_names())}")
        else:
            key, said = found
            origin = f"environment {name}"
            source.given.append(
                Given(key, said.knob, said.spelling, text, origin, name, Path(), is_text=True)
            )
    return source


def from_file(path: Path) -> Source:
    """A TOML file."""
    try:
        content = tomllib.loads(path.read_text())
    except OSError as reason:
        raise OperatorError(f"configuration file '{path}' cannot be read: {reason.strerror}") from reason
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as reason:
        raise OperatorError(f"configuration file '{path}' is not TOML: {_without_text(reason)}") from reason
    source = Source()
    for given in _walk(content, (), path, source.problems):
        source.given.append(given)
    return source


def _without_text(reason: Exception) -> str:
    """TOML's messages name a place; a message that quotes text could quote a secret."""
    place = re.search(r"at line \d+, column \d+|at end of document", str(reason))
    return place.group() if place else "expected UTF-8 text"


def _in_environment(bare: str) -> tuple[Key, Said] | None:
    name = re.sub("_+", "_", bare)
    for pattern, said in env_patterns():
        found = pattern.fullmatch(name)
        if found:
            places = iter(found.groups())
            path = said.knob.path
            return tuple(int(next(places)) if part == INDEX else part for part in path), said
    return None


def _walk(table: Mapping[str, object], above: Key, file: Path, problems: list[str]) -> Iterator[Given]:
    """Every value of a table. As deep as the settings are; what is deeper is not known and not entered."""
    for name, value in table.items():
        key: Key = (*above, name)
        pattern = _pattern(key)
        said = spellings().get(pattern)
        if said:
            origin = f"file {file}"
            yield Given(
                (*above, said.knob.path[-1]),
                said.knob,
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
            problems.append(f"'{key_text(key)}' in {file} is a value; expected a table [{key_text(key)}]")
        else:
            guess = _did_you_mean(key_text(key), _known_beside(above))
            problems.append(f"'{key_text(key)}' in {file} is no setting{guess}")


def _walk_list(value: object, key: Key, file: Path, problems: list[str]) -> Iterator[Given]:
    name = key_text(key)
    if not (isinstance(value, list) and all(isinstance(item, Mapping) for item in value)):
        problems.append(f"'{name}' in {file} is no list of tables; expected [[{name}]]")
        return
    for place, item in enumerate(value):
        if not item:
            problems.append(f"'{name}[{place}]' in {file} is empty; expected at least one key")
        yield from _walk(item, (*key, place), file, problems)


def _pattern(key: Key) -> tuple[str, ...]:
    return tuple(INDEX if isinstance(part, int) else part for part in key)


def _known_beside(above: Key) -> list[str]:
    """Keys of the same table, and of all others: a key may have landed in the wrong one."""
    depth, pattern = len(above), _pattern(above)
    beside = [key_text((*above, path[depth])) for path in spellings() if path[:depth] == pattern]
    return [*beside, *(key_text(path) for path in spellings() if INDEX not in path)]


def _env_names() -> list[str]:
    return [env_name(tuple(0 if part == INDEX else part for part in path)) for path in spellings()]


def _did_you_mean(name: str, known: Iterable[str]) -> str:
    close = get_close_matches(name, list(dict.fromkeys(known)), n=1, cutoff=0.6)
    return f"; did you mean '{close[0]}'?" if close else "; see `trace-drain config show` for all"
