"""Schema migrations: numbered statements, each applied once, in order, forward only, and recorded.

A line that ends in `-- if FACT` is removed from its statement unless the fact holds:

    retention     spans are deleted by age, after `{retention_days}` days
    map_buckets   the engine can store the keys of a map in buckets (26.3 and later)
    merge_base    the engine has a setting for how many parts are merged at a time (24.12 and later)
    embedded      the embedded engine: the receiver decides that it syncs its writes

A statement that is then empty except for comments is skipped. It is applied once the engine is new enough.

Invariant: a table that another program created is never changed.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

from receiver import __version__
from receiver.engine.store import COMPANION, TABLE, Store, Version
from receiver.errors import OperatorError, StoreTrouble

MIGRATIONS = "trace_drain_migrations"
LOCK = "trace_drain_schema_lock"
LOCK_STALE_S = 60
"""A lock this old was left by a process that died: applying takes a second."""

VERSION_MIN = Version(24, 3)
"""The oldest version that was tested."""
MAP_BUCKETS_SINCE = Version(26, 3)
MERGE_BASE_SINCE = Version(24, 12)
UNKNOWN_DATABASE = 81
TABLE_ALREADY_EXISTS = 57

_OF_TABLE = re.compile(r"(?:CREATE (?:TABLE|MATERIALIZED VIEW) IF NOT EXISTS|ALTER TABLE) (\w+)")
_TABLES = "SELECT name FROM system.tables WHERE database = currentDatabase()"
_CONDITION = re.compile(r"\s*-- if (\w+)$")
_COMMENT = re.compile(r"--.*")
_TTL = re.compile(r"toIntervalDay\((\d+)\)")


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
    foreign: str
    """Why an existing table does not belong to a receiver; empty if it does, or if there is none."""
    retention_days: int | None
    """Retention of the main table; `None` if there is no table yet."""
    settings: tuple[tuple[str, str], ...]
    """Settings that decide whether acknowledged rows survive a crash."""


def emit(sources: Sequence[tuple[str, str]], engine: Engine, retention_days: int) -> list[Statement]:
    """Return the statements for an engine. `sources`: file name and text of each migration."""
    facts = {
        "retention": retention_days > 0,
        "map_buckets": engine.version >= MAP_BUCKETS_SINCE,
        "merge_base": engine.version >= MERGE_BASE_SINCE,
        "embedded": engine.embedded,
    }
    rendered = ((name, _render(text, facts, retention_days)) for name, text in sources)
    return [
        Statement(int(name[:4]), name.removesuffix(".sql"), sql)
        for name, sql in rendered
        if _COMMENT.sub("", sql).strip()
    ]


def apply(
    store: Store,
    sources: Sequence[tuple[str, str]],
    retention_days: int,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> list[str]:
    """Apply the missing statements and the retention. Returns the names of the changes that were made."""
    engine = _engine_with_database(store)
    statements = emit(sources, engine, retention_days)
    _refuse_foreign(store)
    if not _pending(store, statements) and _retention_of(store) == retention_days:
        return []
    with _locked(store, sleep):
        pending = _pending(store, statements)
        _unrecord(store, pending)
        changes = [_apply_one(store, engine, statement) for statement in pending]
        return changes + _set_retention(store, retention_days)


def status(store: Store, sources: Sequence[tuple[str, str]], retention_days: int) -> Status:
    """Return the state of the tables without changing anything."""
    engine = Engine(store.version(), store.embedded)
    statements = emit(sources, engine, retention_days)
    pending = {statement.name for statement in _pending(store, statements)}
    return Status(
        engine=engine,
        applied=tuple(statement.name for statement in statements if statement.name not in pending),
        missing=tuple(statement.name for statement in statements if statement.name in pending),
        foreign=_foreign_reason(store),
        retention_days=_retention_of(store),
        settings=tuple(_durability(store)),
    )


def _render(text: str, facts: dict[str, bool], retention_days: int) -> str:
    lines = []
    for line in text.splitlines():
        condition = _CONDITION.search(line)
        if condition is None:
            lines.append(line)
        elif facts[condition[1]]:
            lines.append(line[: condition.start()])
    return "\n".join(lines).replace("{retention_days}", str(retention_days)).strip()


def _engine_with_database(store: Store) -> Engine:
    try:
        version = store.version()
    except StoreTrouble as trouble:
        if trouble.code != UNKNOWN_DATABASE:
            raise
        store.create_database()
        version = store.version()
    if version < VERSION_MIN:
        raise OperatorError(f"ClickHouse is {version}; expected {VERSION_MIN} or newer")
    return Engine(version, store.embedded)


def _columns(store: Store, table: str) -> set[str]:
    rows = store.rows(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
        {"table": table},
    )
    return {str(name) for (name,) in rows}


def _foreign_reason(store: Store) -> str:
    columns = _columns(store, TABLE)
    if not columns or "SegmentEpoch" in columns:
        return ""
    maker = "an OpenTelemetry Collector" if "SpanAttributes" in columns else "another program"
    return f"table '{TABLE}' was made by {maker}: it has {len(columns)} columns, but no SegmentEpoch"


def _refuse_foreign(store: Store) -> None:
    reason = _foreign_reason(store)
    if reason:
        raise OperatorError(
            f"{reason}; expected a table of this receiver. To adopt its spans: "
            f"RENAME TABLE {TABLE} TO {TABLE}_before; the same with {COMPANION}; drop its materialized view; "
            "`trace-drain schema apply`; then INSERT the columns both have from the old table into the new "
            "one. Or name another database in store.url"
        )


def _pending(store: Store, statements: list[Statement]) -> list[Statement]:
    applied = _recorded(store)
    existing = {str(name) for (name,) in store.rows(_TABLES)}
    return [
        statement
        for statement in statements
        if statement.number not in applied or _tables_of(statement) - existing
    ]


def _recorded(store: Store) -> set[object]:
    if not _columns(store, MIGRATIONS):
        return set()
    return {number for (number,) in store.rows(f"SELECT Number FROM {MIGRATIONS}")}  # noqa: S608 - ours


def _unrecord(store: Store, pending: list[Statement]) -> None:
    """Delete the records of statements that must run again, so that an interruption leaves them pending."""
    recorded = _recorded(store)
    numbers = ", ".join(str(statement.number) for statement in pending if statement.number in recorded)
    if numbers:
        store.command(
            f"ALTER TABLE {MIGRATIONS} DELETE WHERE Number IN ({numbers}) SETTINGS mutations_sync = 1"
        )


def _tables_of(statement: Statement) -> set[str]:
    """Return the tables that a statement creates or changes. It runs again if one was dropped."""
    return set(_OF_TABLE.findall(statement.sql))


def _apply_one(store: Store, engine: Engine, statement: Statement) -> str:
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


def _retention_of(store: Store) -> int | None:
    rows = store.rows(
        "SELECT create_table_query FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String}",
        {"table": TABLE},
    )
    if not rows:
        return None
    days = _TTL.search(str(rows[0][0]))
    return int(days[1]) if days else 0


def _set_retention(store: Store, retention_days: int) -> list[str]:
    """Change the tables' TTL to the setting. Existing parts are not rewritten for it."""
    if _retention_of(store) == retention_days:
        return []
    for table, column, extra in ((COMPANION, "End", " + INTERVAL 2 DAY"), (TABLE, "Timestamp", "")):
        change = f"MODIFY TTL toDateTime({column}, 'UTC') + INTERVAL {retention_days:d} DAY{extra}"
        if not retention_days:
            change = "REMOVE TTL"
        store.command(f"ALTER TABLE {table} {change} SETTINGS materialize_ttl_after_modify = 0")
    return [f"retention of {retention_days} days"]


def _durability(store: Store) -> Iterator[tuple[str, str]]:
    """Yield the durability settings in effect: the engine's defaults, overridden by the table's own."""
    defaults = store.rows(
        "SELECT name, value FROM system.merge_tree_settings WHERE name IN "
        "('fsync_after_insert', 'fsync_part_directory', 'min_rows_to_fsync_after_merge', "
        "'non_replicated_deduplication_window') ORDER BY name"
    )
    query = store.rows(
        "SELECT create_table_query FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String}",
        {"table": TABLE},
    )
    overrides = dict(re.findall(r"(\w+) = (\w+)", str(query[0][0]).partition("SETTINGS")[2])) if query else {}
    for name, value in defaults:
        yield str(name), str(overrides.get(name, value))


@contextmanager
def _locked(store: Store, sleep: Callable[[float], None]) -> Iterator[None]:
    """Hold the schema lock of a shared server. The embedded engine needs none, because it has one owner."""
    if store.embedded:
        yield
        return
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
        if stale:
            store.command(f"DROP TABLE IF EXISTS {LOCK}")
        return False
    return True


def _holder() -> str:
    return re.sub(r"[^\w.-]", "_", socket.gethostname())
