"""Retention of the tables: deletion of rows by age, as the settings say."""

from __future__ import annotations

import re

from receiver.engine.cluster import Layout
from receiver.engine.sql_text import compose, identifier
from receiver.engine.store import COMPANION, DEPLOYMENT_EVENTS, TABLE, Store

ROLLUP_TABLES = (
    "otel_rollup_slots",
    "otel_red",
    "otel_red_day",
    "otel_red_deployment",
    "otel_red_deployment_day",
    "otel_attribute_keys",
    "otel_attribute_values",
    "otel_errors",
    "otel_deployments",
    "otel_calls",
)
"""Tables whose rows expire a week after the spans that they were derived from; the slots first."""
_DELETE_HOURS = """
ALTER TABLE {rollup} DELETE WHERE Hour >= {midnight} - 3600 AND Hour <= {midnight} + 86400
SETTINGS mutations_sync = 0
"""
_TTL = re.compile(r"toIntervalDay\((\d+)\)")


def retention_of(store: Store, table: str) -> int | None:
    """Return the days after which rows of a table are deleted; 0: never, `None`: there is no such table."""
    rows = store.rows(
        "SELECT create_table_query FROM system.tables "
        "WHERE database = currentDatabase() AND name = {table:String}",
        {"table": table},
    )
    if not rows:
        return None
    days = _TTL.search(str(rows[0][0]))
    return int(days[1]) if days else 0


def empty_rollups(store: Store) -> None:
    """Delete all rows of the rollups. They are derived again, and until then queries read the spans."""
    # The slots first: no query reads rows without a slot, while a slot without its rows would fail the proof.
    for table in ROLLUP_TABLES:
        store.command(f"TRUNCATE TABLE {store.layout.altered(table)}")


def delete_rollup_rows(store: Store, day: str) -> None:
    """Begin to delete the rows of the rollups for a day, written like the table's partition.

    Also for the hours beside it, because calls are counted in the hour of the called span.
    """
    midnight = compose("toDateTime(YYYYMMDDToDate({day}), 'UTC')", day=int(day))
    for table in ROLLUP_TABLES:
        store.command(compose(_DELETE_HOURS, rollup=identifier(table), midnight=midnight))


def set_retention(store: Store, retention_days: int, layout: Layout) -> list[str]:
    """Change the tables' TTL to the setting. Existing parts are not rewritten for it."""
    if retention_of(store, layout.stored(TABLE)) == retention_days:
        return []
    rollups = [(table, "Hour", " + INTERVAL 7 DAY") for table in ROLLUP_TABLES]
    # The main table last: its TTL is the one that is compared, so an interrupted change is repeated.
    for table, column, extra in (*rollups, (COMPANION, "End", " + INTERVAL 2 DAY"), (TABLE, "Timestamp", "")):
        _modify_ttl(store, layout.altered(table), column, retention_days, extra)
    return [f"retention of {retention_days} days"]


def set_event_retention(store: Store, days: int, layout: Layout) -> list[str]:
    """Change the TTL of deployment events to the setting."""
    # `None`: sources of an older release, without the table.
    if retention_of(store, layout.stored(DEPLOYMENT_EVENTS)) in {days, None}:
        return []
    _modify_ttl(store, layout.altered(DEPLOYMENT_EVENTS), "FetchedAt", days)
    return [f"retention of {days} days for deployment events"]


def _modify_ttl(store: Store, table: str, column: str, days: int, extra: str = "") -> None:
    change = (
        f"MODIFY TTL toDateTime({column}, 'UTC') + INTERVAL {days:d} DAY{extra}" if days else "REMOVE TTL"
    )
    store.command(f"ALTER TABLE {table} {change} SETTINGS materialize_ttl_after_modify = 0")
