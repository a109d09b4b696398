"""State of the rollups: how much of each day their slots cover, and how much disk they use."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from receiver.console.queries.rollup.derivation import Closing, DayReport, survey
from receiver.console.queries.rollup.proof import day_name
from receiver.console.queries.rollup.tables import ROLLUPS, TABLES
from receiver.engine.sql_text import compose
from receiver.engine.store import Store

_SIZES = compose("""
SELECT name, toUInt64(ifNull(total_rows, 0)) AS rows, toUInt64(ifNull(total_bytes, 0)) AS bytes
FROM system.tables WHERE database = currentDatabase() AND name IN {tables:Array(String)}
""")


class DayStatus(msgspec.Struct, frozen=True):
    """Coverage of a day."""

    day: str
    spans: int
    slots: int
    """Hours that a slot covers."""
    due: int
    """Closed hours that are to be derived, for the first time or again."""
    late: int
    """Spans that arrived after their slot was derived; queries read them in addition to it."""
    proven: bool
    """Whether queries read the slots; if not, they read the spans."""
    version: int
    """Highest version of a slot."""


class TableStatus(msgspec.Struct, frozen=True):
    """Size of a table of the rollups."""

    table: str
    rows: int
    bytes: int


def days(store: Store, closing: Closing) -> Iterator[DayStatus]:
    """Return the coverage of each day that has closed hours, newest first."""
    # Without `settled`: a report must show the state of every day, also of those that nothing is due for.
    return map(_status_of, survey(store, closing))


def tables(store: Store) -> list[TableStatus]:
    """Return the size of each table of the rollups, on all nodes together."""
    named = {store.layout.stored(table): table for table in sorted(TABLES)}
    sizes = store.layout.rows_of_nodes(store, _SIZES, {"tables": list(named)})
    return [
        TableStatus(table, *(sum(size[place] for size in sizes if size[1] == name) for place in (2, 3)))
        for name, table in named.items()
        if any(size[1] == name for size in sizes)
    ]


def _status_of(report: DayReport) -> DayStatus:
    day = report.day
    return DayStatus(
        day=day_name(day.number),
        spans=day.rows,
        slots=len(day.slots),
        due=len(report.due),
        late=sum(late.spans for late in day.late.values()),
        proven=day.is_balanced and not day.differing(ROLLUPS),
        version=max((slot.version for slot in day.slots.values()), default=0),
    )
