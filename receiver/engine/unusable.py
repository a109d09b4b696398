"""Detection of tables that the receiver cannot use: of another program, of another version, or altered.

Invariant: such a table is never changed.
"""

from __future__ import annotations

from collections.abc import Sequence

from receiver.engine.columns import altered_merging, altered_table, altered_values, columns_of
from receiver.engine.store import COMPANION, TABLE, Store
from receiver.errors import OperatorError

OUTDATED_SORTING_KEY = "ProjectId, toStartOfFiveMinutes(Timestamp), TraceId"
"""Sorting key of the table before the first release. An ALTER cannot change a sorting key."""


def unusable_reason(store: Store, sources: Sequence[tuple[str, str]]) -> str:
    """Return the reason that an existing table cannot be used; empty if all can."""
    reason = _foreign_reason(store) or _outdated_reason(store)
    return reason or _altered(store, sources) or altered_merging(store, sources)


def _altered(store: Store, sources: Sequence[tuple[str, str]]) -> str:
    return altered_table(store, columns_of(sources)) or altered_values(store, sources)


def columns_of_table(store: Store, table: str) -> set[str]:
    """Return the names of the columns of a table; none if it does not exist."""
    rows = store.rows(
        "SELECT name FROM system.columns WHERE database = currentDatabase() AND table = {table:String}",
        {"table": table},
    )
    return {str(name) for (name,) in rows}


def _foreign_reason(store: Store) -> str:
    columns = columns_of_table(store, TABLE)
    # Only the receiver's own tables have this column.
    if not columns or "SegmentEpoch" in columns:
        return ""
    maker = "an OpenTelemetry Collector" if "SpanAttributes" in columns else "another program"
    return f"table '{TABLE}' was made by {maker}: it has {len(columns)} columns, but no SegmentEpoch"


def _outdated_reason(store: Store) -> str:
    key = store.rows(
        "SELECT sorting_key FROM system.tables WHERE database = currentDatabase() AND name = {table:String}",
        {"table": TABLE},
    )
    if not key or key[0][0] != OUTDATED_SORTING_KEY:
        return ""
    return (
        f"table '{TABLE}' was made by a development version of the receiver: it is sorted by "
        f"({OUTDATED_SORTING_KEY})"
    )


def refuse_unusable(store: Store) -> None:
    """Raise `OperatorError` if the table of spans belongs to another program or version."""
    if reason := _outdated_reason(store):
        raise OperatorError(
            f"{reason}, which cannot be changed. To keep its spans: stop the receiver, export the table to a "
            "file, create a new store or database with `trace-drain schema apply`, and load the file; "
            "docs/operations.md has the commands (Tables of a development version)"
        )
    if reason := _foreign_reason(store):
        raise OperatorError(
            f"{reason}; expected a table of this receiver. To adopt its spans: "
            f"RENAME TABLE {TABLE} TO {TABLE}_before; the same with {COMPANION}; drop its materialized view; "
            "`trace-drain schema apply`; then INSERT the columns both have from the old table into the new "
            "one. Or name another database in store.url"
        )


def refuse_altered(store: Store, sources: Sequence[tuple[str, str]]) -> None:
    """Raise `OperatorError` if a table was altered so that it would store, merge or return other values."""
    if reason := _altered(store, sources):
        raise OperatorError(
            f"{reason}. Restore the column or the view with ALTER TABLE; see `trace-drain schema print`. "
            "A rollup can also be dropped: it is derived again"
        )
    if reason := altered_merging(store, sources):
        raise OperatorError(
            f"{reason}, so that it would merge other rows. A rollup can be dropped: it is derived again. For "
            "another table, create a table as `trace-drain schema print` shows, copy the rows, and rename it"
        )
