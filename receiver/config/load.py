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
from receiver.config.checks import problems_of, unreadable_of, warnings_of
from receiver.config.keys import Key, SettingKey, key_text, plain_key, setting_keys
from receiver.config.sources import (
    CONFIG_NAME,
    Given,
    Problem,
    Source,
    from_environment,
    from_file,
    from_flags,
)
from receiver.config.values import ValueProblem, read
from receiver.errors import OperatorError
from receiver.logs import harmless_text
from receiver.settings import Drain, Settings, Store

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
        file = self.file()
        sources = [
            from_file(file) if file else Source(),
            from_environment(self.environ),
            from_flags(self.flags),
        ]
        problems = [problem for source in sources for problem in source.problems]
        warnings: list[str] = []
        values, origins = _merged(sources, problems, warnings)
        settings = _built(_tables(values, problems))
        settings, derived = _completed(settings, values, origins)
        problems += map(Problem, problems_of(settings, unknown={one.key for one in problems if one.key}))
        problems += map(Problem, unreadable_of(settings, origins))
        _refuse(problems)
        origins |= derived
        return Loaded(settings, origins, tuple(dict.fromkeys([*warnings, *warnings_of(settings)])))

    def file(self) -> Path | None:
        """The file that is read, if any. Raises `OperatorError`."""
        if self.config == "":
            raise OperatorError("--config is empty; expected the path of a file")
        said = self.config or self.environ.get(CONFIG_NAME)
        if said:
            return Path(said)
        default = Path(DEFAULT_FILE)
        return default if default.is_file() else None


def _refuse(problems: Iterable[Problem]) -> None:
    told = dict.fromkeys(f"  {harmless_text(one.text)}" for one in problems)
    if told:
        raise OperatorError("\n".join(["the configuration cannot be used:", *told]))


def _merged(
    sources: Iterable[Source], problems: list[Problem], warnings: list[str]
) -> tuple[dict[Key, object], dict[str, str]]:
    """The value of every key that was said, by the source that wins, and who that is."""
    winners: dict[Key, Given] = {}
    for source in sources:
        said_here: dict[Key, Given] = {}
        for given in source.given:
            if given.key in said_here:
                other = said_here[given.key].said_as
                problems.append(Problem(f"'{other}' and '{given.said_as}' say the same; expected one"))
            said_here[given.key] = given
        winners |= said_here
    values: dict[Key, object] = {}
    for key, given in winners.items():
        try:
            values[key] = read(given, warnings)
        except ValueProblem as reason:
            values[key] = _stand_in(given.setting_key)
            what = f"'{given.said_as}' ({given.origin}) {reason}"
            problems.append(Problem(what, plain_key(given.setting_key.path)))
    return values, {key_text(key): given.origin for key, given in winners.items()}


def _stand_in(setting_key: SettingKey) -> object:
    """What stands for a value that cannot be used, so that the others can be judged."""
    return "" if setting_key.required else setting_key.default


def _tables(values: Mapping[Key, object], problems: list[Problem]) -> dict[str, object]:
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


def _make_list(root: dict[str | int, object], path: tuple[str, ...], problems: list[Problem]) -> None:
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
            what = f"'{key_text(path)}[{place}]' is missing, though later ones are there"
            problems.append(Problem(what, key_text(path)))
            break
    for place, table in sorted(places.items()):
        for setting_key in setting_keys():
            name = setting_key.path[-1]
            if setting_key.path[: len(path)] == path and setting_key.required and name not in table:
                table[name] = _stand_in(setting_key)
                what = f"'{key_text((*path, place))}' has no {name}; expected one"
                problems.append(Problem(what, plain_key(setting_key.path)))
    above[path[-1]] = [table for _, table in sorted(places.items())]


def _built(tables: dict[str, object]) -> Settings:
    return msgspec.convert(tables, Settings)


def _completed(
    settings: Settings, values: Mapping[Key, object], origins: Mapping[str, str]
) -> tuple[Settings, dict[str, str]]:
    """What follows from what was said, and from what: the open drain, the sampling mode, a URL's password."""
    derived = {}
    if not settings.drain:
        settings = msgspec.structs.replace(settings, drain=(DEFAULT_DRAIN,))
    sampling = settings.sampling
    if ("sampling", "mode") not in values and (sampling.rule or sampling.rate < 1):
        sampling = msgspec.structs.replace(sampling, mode="equalizing")
        settings = msgspec.structs.replace(settings, sampling=sampling)
        derived["sampling.mode"] = "because something is to be sampled"
    store = _without_url_password(settings.store)
    if store is not settings.store:
        settings = msgspec.structs.replace(settings, store=store)
        derived["store.password"] = origins["store.url"]
    return settings, derived


def _without_url_password(store: Store) -> Store:
    """A password in `store.url` moves to where nothing prints it."""
    try:
        url = parse_store_url(store.url)
    except OperatorError:
        return store
    if url is None or not url.password or store.password:
        return store
    return msgspec.structs.replace(store, url=url.without_password(), password=url.password)
