"""The whole way: what was said → one complete, checked, frozen `Settings`.

Flags win over the environment, that over the file, that over the defaults; key by key. All problems are told
at once. Loading again (SIGHUP) is the same call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from receiver.config.addresses import parse_store_url
from receiver.config.checks import problems_of, warnings_of
from receiver.config.knobs import Key, key_text, knobs
from receiver.config.sources import CONFIG_NAME, Given, Source, from_environment, from_file, from_flags
from receiver.config.values import ValueProblem, read
from receiver.errors import OperatorError
from receiver.settings import Drain, Settings

DEFAULT_FILE = "trace-drain.toml"
DEFAULT_DRAIN = Drain(name="default")
"""What there is when no drain is configured: open, and therefore on loopback only."""


@dataclass(frozen=True)
class Loaded:
    """Settings, and how they came to be."""

    settings: Settings
    origins: dict[str, str]
    """Key → who said it; a key that is not here has its default."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """Where settings come from. Kept, so that they can be read again."""

    config: str | None
    """`--config`; none: the environment's word, else `trace-drain.toml` if it is there."""
    environ: Mapping[str, str]
    flags: Mapping[str, tuple[str, object]]
    """Flag → (key, value), only those that were given."""

    def load(self) -> Loaded:
        """Read everything. Raises `OperatorError` naming every problem."""
        file = self._file()
        sources = [
            from_file(file) if file else Source(),
            from_environment(self.environ),
            from_flags(self.flags),
        ]
        problems = [problem for source in sources for problem in source.problems]
        warnings: list[str] = []
        values, origins = _merged(sources, problems, warnings)
        tables = _tables(values, problems)
        _refuse(problems)
        settings = _completed(_built(tables), values)
        _refuse(problems_of(settings))
        return Loaded(settings, origins, tuple(dict.fromkeys([*warnings, *warnings_of(settings)])))

    def _file(self) -> Path | None:
        said = self.config or self.environ.get(CONFIG_NAME)
        if said:
            return Path(said)
        default = Path(DEFAULT_FILE)
        return default if default.is_file() else None


def _refuse(problems: list[str]) -> None:
    if problems:
        raise OperatorError(
            "\n".join(["the configuration cannot be used:", *(f"  {one}" for one in problems)])
        )


def _merged(
    sources: Iterable[Source], problems: list[str], warnings: list[str]
) -> tuple[dict[Key, object], dict[str, str]]:
    """The value of every key that was said, by the source that wins, and who that is."""
    winners: dict[Key, Given] = {}
    for source in sources:
        said_here: dict[Key, Given] = {}
        for given in source.given:
            if given.key in said_here:
                problems.append(
                    f"'{said_here[given.key].said_as}' and '{given.said_as}' say the same; expected one"
                )
            said_here[given.key] = given
        winners |= said_here
    values: dict[Key, object] = {}
    for key, given in winners.items():
        try:
            values[key] = read(given, warnings)
        except ValueProblem as reason:
            problems.append(f"'{given.said_as}' ({given.origin}) {reason}")
    return values, {key_text(key): given.origin for key, given in winners.items()}


def _tables(values: Mapping[Key, object], problems: list[str]) -> dict[str, object]:
    """Nested tables, lists complete and every required key there."""
    root: dict[str | int, object] = {}
    for key, value in values.items():
        table = root
        for part in key[:-1]:
            below = table.setdefault(part, {})
            assert isinstance(below, dict)  # noqa: S101 - no key is both a table and a value
            table = below
        table[key[-1]] = value
    for path in (("drain",), ("sampling", "rule")):
        _make_list(root, path, problems)
    return {str(name): value for name, value in root.items()}


def _make_list(root: dict[str | int, object], path: tuple[str, ...], problems: list[str]) -> None:
    """Turn tables by place into a list of tables."""
    above = root
    for part in path[:-1]:
        below = above.get(part, {})
        assert isinstance(below, dict)  # noqa: S101 - as above
        above = below
    places = above.get(path[-1])
    if not isinstance(places, dict):
        return
    for place in range(max(places) + 1 if len(places) <= max(places) else 0):
        if place not in places:
            problems.append(f"'{key_text(path)}[{place}]' is missing, though later ones are there")
            break
    required = [knob.path[-1] for knob in knobs() if knob.path[: len(path)] == path and knob.required]
    for place, table in sorted(places.items()):
        problems += [f"'{key_text((*path, place))}' has no {name}" for name in required if name not in table]
    above[path[-1]] = [table for _, table in sorted(places.items())]


def _built(tables: dict[str, object]) -> Settings:
    try:
        return msgspec.convert(tables, Settings)
    except msgspec.ValidationError as reason:
        raise OperatorError(f"the configuration cannot be used: {reason}") from reason


def _completed(settings: Settings, values: Mapping[Key, object]) -> Settings:
    """What follows from what was said: the open drain, the sampling mode, the password in a URL."""
    if not settings.drain:
        settings = msgspec.structs.replace(settings, drain=(DEFAULT_DRAIN,))
    sampling = settings.sampling
    if ("sampling", "mode") not in values and (sampling.rule or sampling.rate < 1):
        settings = msgspec.structs.replace(
            settings, sampling=msgspec.structs.replace(sampling, mode="equalizing")
        )
    return _without_url_password(settings)


def _without_url_password(settings: Settings) -> Settings:
    """A password in `store.url` moves to where nothing prints it."""
    store = settings.store
    try:
        url = parse_store_url(store.url)
    except OperatorError:
        return settings
    if url is None or not url.password:
        return settings
    if store.password:
        raise OperatorError("store.url holds a password and store.password is set; expected one")
    moved = msgspec.structs.replace(store, url=url.without_password(), password=url.password)
    return msgspec.structs.replace(settings, store=moved)
