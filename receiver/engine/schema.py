"""Schema migrations: numbered statements, each applied once, in order, forward only, and recorded.

A line that ends in `-- if FACT` is removed from its statement unless the fact holds:

    retention       spans are deleted by age, after `{retention_days}` days
    event_retention the same of deployment events, after `{event_retention_days}` days
    single_stream   the engine has a setting for how strings are stored (25.10 and later)
    merge_base      the engine has a setting for how many parts are merged at a time (24.12 and later)
    embedded        the embedded engine: the receiver decides that it syncs its writes

A statement that is then empty except for comments is skipped. It is applied once the engine is new enough.

The columns of promoted attributes have no number: after the statements, the missing columns are added.

Invariant: a table that another program or a development version created is never changed.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from receiver import __version__
from receiver.config.addresses import parse_store_url
from receiver.config.promoted import PromotedAttribute, promoted_attributes
from receiver.engine import promoted
from receiver.engine.cluster import ONE_SERVER, Layout
from receiver.engine.retention import ROLLUP_TABLES, retention_of, set_event_retention, set_retention
from receiver.engine.sql_text import compose, identifier
from receiver.engine.store import DEPLOYMENT_EVENTS, TABLE, Store, Version
from receiver.engine.unusable import columns_of_table, refuse_altered, refuse_unusable, unusable_reason
from receiver.errors import OperatorError, StoreTrouble
from receiver.settings import PlatformEvents, Settings

MIGRATIONS = "trace_drain_migrations"
LOCK = "trace_drain_schema_lock"
LOCK_STALE_S = 60
"""Age from which on a lock is stale. Applying the schema takes a second, so its process has died."""

VERSION_MIN = Version(24, 3)
"""The oldest version that was tested."""
SINGLE_STREAM_SINCE = Version(25, 10)
MERGE_BASE_SINCE = Version(24, 12)
EVENT_RETENTION_DAYS = PlatformEvents().retention_days
UNKNOWN_DATABASE = 81
TABLE_ALREADY_EXISTS = 57
PROMOTED = "promoted attributes"
"""Name of their columns, in the lists of what is applied and what is missing."""

_OF_TABLE = re.compile(r"(?:CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS|ALTER TABLE) (?:\w+\.)?(\w+)")
_TABLES = "SELECT name FROM system.tables WHERE database = currentDatabase()"
_CONDITION = re.compile(r"\s*-- if (\w+)$")
_COMMENT = re.compile(r"--.*")


class Engine(NamedTuple):
    """Properties of the engine that decide how a statement is emitted."""

    version: Version
    embedded: bool


class Statement(NamedTuple):
    """One numbered statement, ready to run."""

    number: int
    name: str
    sql: str


@dataclass(frozen=True, slots=True)
class Status:
    """State of a store's tables."""

    engine: Engine
    applied: tuple[str, ...]
    missing: tuple[str, ...]
    unusable: str
    """Reason that the existing table cannot be used (another program or version created it), or empty."""
    retention_days: int | None
    """Retention of the main table; `None` if there is no table yet."""
    settings: tuple[tuple[str, str], ...]
    """Settings that decide whether acknowledged rows survive a crash."""
    nodes: tuple[tuple[str, str], ...] = ()
    """Nodes of the cluster, and the state of the tables of each."""


def wanted(settings: Settings) -> tuple[int, tuple[PromotedAttribute, ...], int]:
    """Return the retentions and the promoted attributes of the settings, for `apply` and `status`."""
    store, events = settings.store, settings.platform.events
    return store.retention_days, promoted_attributes(store.promoted_attributes), events.retention_days


def layout_of(settings: Settings) -> Layout:
    store, url = settings.store, parse_store_url(settings.store.url)
    return Layout(store.cluster, (url.database if url else "") or store.database, store.storage_policy)


def emit(
    sources: Sequence[tuple[str, str]],
    engine: Engine,
    retention_days: int,
    event_retention_days: int = EVENT_RETENTION_DAYS,
    layout: Layout = ONE_SERVER,
) -> list[Statement]:
    """Return the statements for an engine. `sources`: file name and text of each migration.

    On a cluster a migration may have two statements, which have its number.
    """
    facts = {
        "retention": retention_days > 0,
        "event_retention": event_retention_days > 0,
        "single_stream": engine.version >= SINGLE_STREAM_SINCE,
        "merge_base": engine.version >= MERGE_BASE_SINCE,
        "embedded": engine.embedded,
    }
    days = {"{retention_days}": str(retention_days), "{event_retention_days}": str(event_retention_days)}
    rendered = ((name, _render(text, facts, days)) for name, text in sources)
    return [
        Statement(int(name[:4]), name.removesuffix(".sql"), statement)
        for name, sql in rendered
        if _COMMENT.sub("", sql).strip()
        for statement in layout.statements(sql)
    ]


def apply(  # noqa: PLR0913 - the tables, and both retentions
    store: Store,
    sources: Sequence[tuple[str, str]],
    retention_days: int,
    attributes: Sequence[PromotedAttribute] = (),
    event_retention_days: int = EVENT_RETENTION_DAYS,
    *,
    layout: Layout = ONE_SERVER,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Apply the missing statements, the columns of promoted attributes, and the retention.

    Returns the names of the changes that were made. Raises `OperatorError` if a table cannot be used.
    """
    engine = _engine_with_database(store)
    statements = emit(sources, engine, retention_days, event_retention_days, layout)
    # Before the first change: a table of another program must stay as it is.
    refuse_unusable(store)
    if (
        # Without the lock first: nearly every start finds nothing to do and must not wait for others.
        not _pending(store, statements, layout)
        and retention_of(store, layout.stored(TABLE)) == retention_days
        and retention_of(store, layout.stored(DEPLOYMENT_EVENTS)) in {event_retention_days, None}
        and not (attributes and promoted.outdated(store, attributes, engine.version))
    ):
        refuse_altered(store, sources)
        return []
    if layout.cluster:
        layout.require_macros(store)
    with _locked(store, sleep):
        # Read again under the lock, because another receiver may have applied some in the meantime.
        pending = _pending(store, statements, layout)
        created = layout.create_queries(store) if pending else {}
        _unrecord(store, pending)
        applied = (_apply_one(store, engine, as_created(statement, created)) for statement in pending)
        changes = list(dict.fromkeys(applied))
        changes += _promote(store, attributes, engine)
        changes += set_event_retention(store, event_retention_days, layout)
        changes += set_retention(store, retention_days, layout)
    # After the statements, which bring the tables of an older release up to date.
    refuse_altered(store, sources)
    return changes


def dropped(store: Store, sources: Sequence[tuple[str, str]], *, has_stored: bool) -> list[str]:
    """Return the tables whose rows are lost: they existed, and `apply` will create them again, empty.

    Rollups are not among them, because they are derived again. `has_stored`: the store contained spans, so
    the table of spans existed even if no statement is recorded.
    """
    try:
        existing = _existing(store)
        recorded = _recorded(store)
    except StoreTrouble as trouble:
        if trouble.code != UNKNOWN_DATABASE:
            raise
        existing, recorded = set(), set()
    known = {
        table for name, text in sources if int(name[:4]) in recorded for table in _OF_TABLE.findall(text)
    }
    known |= {TABLE} if has_stored else set()
    return sorted(known - existing - {*ROLLUP_TABLES})


def status(  # noqa: PLR0913 - as `apply`
    store: Store,
    sources: Sequence[tuple[str, str]],
    retention_days: int,
    attributes: Sequence[PromotedAttribute] = (),
    event_retention_days: int = EVENT_RETENTION_DAYS,
    *,
    layout: Layout = ONE_SERVER,
) -> Status:
    """Return the state of the tables without changing anything."""
    engine = Engine(store.version(), store.embedded)
    statements = emit(sources, engine, retention_days, event_retention_days, layout)
    names = list(dict.fromkeys(statement.name for statement in statements))
    pending = {statement.name for statement in _pending(store, statements, layout)}
    if attributes and promoted.computes_columns(store):
        names.append(PROMOTED)
        pending |= {PROMOTED} if promoted.outdated(store, attributes, engine.version) else set()
    return Status(
        engine=engine,
        applied=tuple(name for name in names if name not in pending),
        missing=tuple(name for name in names if name in pending),
        unusable=unusable_reason(store, sources),
        retention_days=retention_of(store, layout.stored(TABLE)),
        settings=tuple(_durability(store, layout.stored(TABLE))),
        nodes=tuple(_states_of_nodes(store, statements, layout)) if layout.cluster else (),
    )


def _states_of_nodes(
    store: Store, statements: Sequence[Statement], layout: Layout
) -> Iterator[tuple[str, str]]:
    expected = set[str]().union(*map(_tables_of, statements))
    for node, tables in layout.tables_of_nodes(store).items():
        lacking = ", ".join(sorted(expected - (tables or frozenset())))
        state = f"lacks {lacking}" if lacking else "complete"
        yield f"shard {node.shard}, {node.host}", "does not answer" if tables is None else state


def _render(text: str, facts: dict[str, bool], days: dict[str, str]) -> str:
    lines = []
    for line in text.splitlines():
        condition = _CONDITION.search(line)
        if condition is None:
            lines.append(line)
        elif facts[condition[1]]:
            lines.append(line[: condition.start()])
    rendered = "\n".join(lines)
    for placeholder, number in days.items():
        rendered = rendered.replace(placeholder, number)
    return rendered.strip()


def _engine_with_database(store: Store) -> Engine:
    try:
        version = store.version()
    except StoreTrouble as trouble:
        # Any statement fails with this code until the database exists, also that for the version.
        if trouble.code != UNKNOWN_DATABASE:
            raise
        store.create_database()
        version = store.version()
    if version < VERSION_MIN:
        raise OperatorError(f"ClickHouse is {version}; expected {VERSION_MIN} or newer")
    return Engine(version, store.embedded)


def _existing(store: Store, layout: Layout = ONE_SERVER) -> set[str]:
    """Return the tables of the server; on a cluster those that every node has."""
    if layout.cluster:
        # Without the nodes that are away: a receiver must start without them, if the others have the tables.
        answers = [tables for tables in layout.tables_of_nodes(store).values() if tables is not None]
        return set(frozenset.intersection(*answers)) if answers else set()
    return {str(name) for (name,) in store.rows(_TABLES)}


def _pending(store: Store, statements: list[Statement], layout: Layout) -> list[Statement]:
    applied = _recorded(store)
    existing = _existing(store, layout)
    return [
        statement
        for statement in statements
        # A dropped table makes its later changes necessary again, so a record alone is not trusted.
        if statement.number not in applied or _tables_of(statement) - existing
    ]


def _recorded(store: Store) -> set[object]:
    # The first statement creates this table.
    if not columns_of_table(store, MIGRATIONS):
        return set()
    return {
        number
        for (number,) in store.rows(
            compose("SELECT Number FROM {migrations}", migrations=identifier(MIGRATIONS))
        )
    }


def _unrecord(store: Store, pending: list[Statement]) -> None:
    """Mark statements as not applied before they run, so that they run again after an interruption."""
    recorded = _recorded(store)
    numbers = ", ".join(str(statement.number) for statement in pending if statement.number in recorded)
    if numbers:
        store.command(
            f"ALTER TABLE {MIGRATIONS} DELETE WHERE Number IN ({numbers}) SETTINGS mutations_sync = 1"
        )


def _tables_of(statement: Statement) -> set[str]:
    """Return the tables that a statement creates or changes. It runs again if one was dropped."""
    return set(_OF_TABLE.findall(statement.sql))


def as_created(statement: Statement, created: Mapping[str, str]) -> Statement:
    """Return the statement that creates a table as some nodes of a cluster have it."""
    if "CREATE TABLE" not in statement.sql:
        return statement
    (table,) = _tables_of(statement)
    return statement._replace(sql=created.get(table, statement.sql))


def _apply_one(store: Store, engine: Engine, statement: Statement) -> str:
    # Before its record: after a crash in between it runs again, which changes nothing.
    store.command(statement.sql)
    store.rows(
        f"INSERT INTO {MIGRATIONS} (Number, Name, Receiver, Engine) "
        "SELECT {number:UInt32}, {name:String}, {receiver:String}, {engine:String}",
        {
            "number": statement.number,
            "name": statement.name,
            "receiver": __version__,
            "engine": str(engine.version),
        },
    )
    return statement.name


def _promote(store: Store, attributes: Sequence[PromotedAttribute], engine: Engine) -> list[str]:
    """Add the columns of promoted attributes that the table lacks. Existing parts are not rewritten."""
    columns = promoted.outdated(store, attributes, engine.version) if attributes else []
    if columns:
        promoted.add(store, columns)
    return [PROMOTED] if columns else []


def _durability(store: Store, table: str) -> Iterator[tuple[str, str]]:
    """Yield the durability settings in effect: the engine's defaults, overridden by the table's own."""
    window = "non_replicated" if table == TABLE else "replicated"
    defaults = store.rows(
        "SELECT name, value FROM system.merge_tree_settings WHERE name IN "
        "('fsync_after_insert', 'fsync_part_directory', 'min_rows_to_fsync_after_merge', {window:String}) "
        "ORDER BY name",
        {"window": f"{window}_deduplication_window"},
    )
    query = store.rows(
        "SELECT create_table_query FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String}",
        {"table": table},
    )
    overrides = dict(re.findall(r"(\w+) = (\w+)", str(query[0][0]).partition("SETTINGS")[2])) if query else {}
    for name, value in defaults:
        yield str(name), str(overrides.get(name, value))


@contextmanager
def _locked(store: Store, sleep: Callable[[float], None]) -> Iterator[None]:
    """Hold the schema lock of a shared server. The embedded engine needs no lock, as it has one owner."""
    if store.embedded:
        yield
        return
    # No limit: a holder that died is replaced after `LOCK_STALE_S`.
    while not _take_lock(store):
        sleep(1.0)
    try:
        yield
    finally:
        store.command(f"DROP TABLE IF EXISTS {LOCK}")


def _take_lock(store: Store) -> bool:
    """Try to take the lock: of several clients, only one can create the table. Drops a stale lock."""
    try:
        store.command(f"CREATE TABLE {LOCK} (Holder String) ENGINE = Memory COMMENT '{_holder()}'")
    except StoreTrouble as trouble:
        if trouble.code != TABLE_ALREADY_EXISTS:
            raise
        stale = store.rows(
            "SELECT 1 FROM system.tables WHERE database = currentDatabase() AND name = {lock:String} "
            "AND metadata_modification_time < now() - {stale_s:UInt32}",
            {"lock": LOCK, "stale_s": LOCK_STALE_S},
        )
        # Dropped but not taken: another client that waits may create it first, which the next try finds out.
        if stale:
            store.command(f"DROP TABLE IF EXISTS {LOCK}")
        return False
    return True


def _holder() -> str:
    # The name becomes part of a statement, in quotes.
    return re.sub(r"[^\w.-]", "_", socket.gethostname())
