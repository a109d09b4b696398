"""Loading of settings: combines all sources into one complete, checked, frozen `Settings`.

For each key, flags override the environment, which overrides the file, which overrides the default. All
problems are reported together. Reloading (SIGHUP) is the same call.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from receiver.config.addresses import parse_store_url
from receiver.config.checks import problems_of, unreadable_of, warnings_of
from receiver.config.keys import Key, SettingKey, bare, key_text, plain_key, setting_keys
from receiver.config.sources import (
    CONFIG_NAME,
    Problem,
    RawValue,
    Source,
    from_environment,
    from_file,
    from_flags,
)
from receiver.config.values import ValueProblem, read
from receiver.errors import OperatorError
from receiver.printable import harmless_text
from receiver.settings import Drain, Settings, Store

DEFAULT_FILE = "trace-drain.toml"
DEFAULT_DRAIN = Drain(name="default")
"""Drain that is used if none is configured. It has no credentials, so it is allowed on loopback only."""


@dataclass(frozen=True)
class Loaded:
    """Settings, and the origin of each."""

    settings: Settings
    origins: dict[str, str]
    """Origin of each key. A missing key has its default value."""
    warnings: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    config: str | None
    """Value of `--config`. `None`: use `TRACE_DRAIN_CONFIG`, otherwise `trace-drain.toml` if it exists."""
    environ: Mapping[str, str]
    flags: Mapping[str, tuple[str, object]]
    """Key and value of each flag that was given."""

    def load(self) -> Loaded:
        """Read all sources. Raises `OperatorError` with every problem."""
        file = self.file()
        # From the weakest to the strongest source.
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
        # A check that depends on a wrong value would only report the same mistake a second time.
        unknown = {problem.key for problem in problems if problem.key}
        problems += map(Problem, problems_of(settings, unknown))
        problems += map(Problem, unreadable_of(settings, origins))
        _refuse(problems)
        origins |= derived
        return Loaded(settings, origins, tuple(dict.fromkeys([*warnings, *warnings_of(settings)])))

    def file(self) -> Path | None:
        """Return the file to read, if any. Raises `OperatorError`."""
        if self.config == "":
            raise OperatorError("--config is empty; expected the path of a file")
        name = self.config or self.environ.get(CONFIG_NAME)
        if name:
            return Path(name)
        default = Path(DEFAULT_FILE)
        return default if default.is_file() else None


def _refuse(problems: Iterable[Problem]) -> None:
    # A dictionary removes repeated problems and keeps their order.
    lines = dict.fromkeys(f"  {harmless_text(problem.text)}" for problem in problems)
    if lines:
        raise OperatorError("\n".join(["the configuration cannot be used:", *lines]))


def _merged(
    sources: Iterable[Source], problems: list[Problem], warnings: list[str]
) -> tuple[dict[Key, object], dict[str, str]]:
    """Return the value and the origin of every key that is set; later sources override earlier sources."""
    winners: dict[Key, RawValue] = {}
    for source in sources:
        in_source: dict[Key, RawValue] = {}
        for raw_value in source.raw_values:
            if raw_value.key in in_source:
                other = in_source[raw_value.key].written_as
                text = f"'{other}' and '{raw_value.written_as}' set the same key; expected only one of them"
                problems.append(Problem(text))
            in_source[raw_value.key] = raw_value
        # Per source, so that two spellings conflict only within one source and override across sources.
        winners |= in_source
    values: dict[Key, object] = {}
    for key, raw_value in winners.items():
        try:
            values[key] = read(raw_value, warnings)
        except ValueProblem as error:
            # Continue, so that all problems are reported in one run.
            values[key] = _placeholder(raw_value.setting_key)
            text = f"'{raw_value.written_as}' ({raw_value.origin}) {error}"
            problems.append(Problem(text, plain_key(raw_value.setting_key.path)))
    return values, {key_text(key): raw_value.origin for key, raw_value in winners.items()}


def _placeholder(setting_key: SettingKey) -> object:
    """Return a substitute for an unusable value, so that the other settings can be checked."""
    if not setting_key.required:
        return setting_key.default
    return 0 if bare(setting_key.type) is int else ""


def _tables(values: Mapping[Key, object], problems: list[Problem]) -> dict[str, object]:
    """Build the nested tables, with complete lists and every required key."""
    root: dict[str | int, object] = {}
    for key, value in values.items():
        # Indexes are keys here: the file and the environment may each set some keys of one drain.
        table = root
        for part in key[:-1]:
            below = table.setdefault(part, {})
            assert isinstance(below, dict)  # noqa: S101 - no key is both a table and a value
            table = below
        table[key[-1]] = value
    for path in (("drain",), ("sampling", "rule"), ("api", "user"), ("store", "retention_rule")):
        _make_list(root, path, problems)
    return {str(name): value for name, value in root.items()}


def _make_list(root: dict[str | int, object], path: tuple[str, ...], problems: list[Problem]) -> None:
    """Replace tables by index with a list of tables."""
    above = root
    for part in path[:-1]:
        below = above.get(part, {})
        assert isinstance(below, dict)  # noqa: S101 - as above
        above = below
    by_index = above.get(path[-1])
    if not isinstance(by_index, dict):
        return
    # An index such as 10**9 must not start a long loop: with a gap, the first missing index is found early.
    for index in range(max(by_index) + 1 if len(by_index) <= max(by_index) else 0):
        if index not in by_index:
            text = f"'{key_text(path)}[{index}]' is missing; expected indexes without a gap"
            problems.append(Problem(text, key_text(path)))
            break
    for index, table in sorted(by_index.items()):
        for setting_key in setting_keys():
            name = setting_key.path[-1]
            if setting_key.path[: len(path)] == path and setting_key.required and name not in table:
                table[name] = _placeholder(setting_key)
                text = f"'{key_text((*path, index))}' has no {name}; expected a value for it"
                problems.append(Problem(text, plain_key(setting_key.path)))
    above[path[-1]] = [table for _, table in sorted(by_index.items())]


def _built(tables: dict[str, object]) -> Settings:
    return msgspec.convert(tables, Settings)


def _completed(
    settings: Settings, values: Mapping[Key, object], origins: Mapping[str, str]
) -> tuple[Settings, dict[str, str]]:
    """Add the default drain, sampling mode and URL password. Return the settings and their origins."""
    derived = {}
    # Last, so that it is never merged with drains that were configured.
    if not settings.drain:
        settings = msgspec.structs.replace(settings, drain=(DEFAULT_DRAIN,))
    sampling = settings.sampling
    if ("sampling", "mode") not in values and (sampling.rule or sampling.rate < 1):
        sampling = msgspec.structs.replace(sampling, mode="equalizing")
        settings = msgspec.structs.replace(settings, sampling=sampling)
        derived["sampling.mode"] = "derived: a sampling rate or rule is set"
    store = _without_url_password(settings.store)
    if store is not settings.store:
        settings = msgspec.structs.replace(settings, store=store)
        derived["store.password"] = origins["store.url"]
    return settings, derived


def _without_url_password(store: Store) -> Store:
    """Move a password in `store.url` to `store.password`, which is never printed."""
    try:
        url = parse_store_url(store.url)
    # `checks` reports the address; here it only means that no password was found.
    except OperatorError:
        return store
    if url is None or not url.password or store.password:
        return store
    return msgspec.structs.replace(store, url=url.without_password(), password=url.password)
