"""Rows of one day that are deleted, and the statements that count and delete them.

The set of rows is fixed when a deletion begins: it names the segments of the rows, and rows that are inserted
later have other segments. A deletion can therefore be repeated at any time and never deletes more.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import msgspec

from receiver.engine.sql_text import Sql, compose, identifier, joined
from receiver.engine.store import RowSum, Store
from receiver.ledger.line_sums import HOUR_MS
from receiver.model import Heading, SegmentId

DAY: Final = re.compile(r"[0-9]{8}")
"""A day, written like the table's partition."""

_compose: Final = compose.knowing(hour_ms=HOUR_MS)
# Epoch 0 is that of the writer's probe row.
_EPOCHS = """
SELECT SegmentEpoch, max(SegmentSeq)
FROM {table}
WHERE _partition_id = '{day}' AND {chosen} AND SegmentEpoch != 0
  AND NOT has({unfinished:Array(UInt64)}, SegmentEpoch)
GROUP BY SegmentEpoch
{settings}
"""
_BY_DAY = """
SELECT _partition_id AS Day, count()
FROM {table}
WHERE {chosen} AND SegmentEpoch != 0
GROUP BY Day
ORDER BY Day
{settings}
"""
_BY_HEADING = """
SELECT
    Drain, ProjectId, toUInt32(intDiv(toUnixTimestamp64Milli(ReceivedAt), {hour_ms})) AS Hour,
    count(), {row_checksum}
FROM {table}
WHERE _partition_id = '{day}' AND {rows} AND has({epochs:Array(UInt64)}, SegmentEpoch)
GROUP BY Drain, ProjectId, Hour
{settings}
"""
_COUNT = "SELECT count() FROM {table} WHERE _partition_id = '{day}' AND {rows} {settings}"
# In the background: the embedded engine waits for its mutations by default, and the writer would wait, too.
_DELETE = "ALTER TABLE {table} DELETE IN PARTITION ID '{day}' WHERE {rows} SETTINGS mutations_sync = 0"


class Chosen(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Spans that are deleted: those with this project, drain and trace. `None`: with any."""

    project: str | None = None
    trace: str | None = None
    drain: str | None = None

    def __str__(self) -> str:
        values = (
            f"{name} '{value}'" for name, value in msgspec.structs.asdict(self).items() if value is not None
        )
        return ", ".join(values) or "all"

    @property
    def condition(self) -> Sql:
        """Return the condition in SQL. A statement that deletes takes no parameters, so values are in hex."""
        values = {"ProjectId": self.project, "TraceId": self.trace, "Drain": self.drain}
        conditions = [
            compose("{column} = {value}", column=identifier(column), value=_text(value))
            for column, value in values.items()
            if value is not None
        ]
        return joined(" AND ", conditions or [compose("1")])


class Deletion(msgspec.Struct, frozen=True):
    """A set of rows of one day. Its file exists until they are deleted."""

    id: int
    """Random number: the ledger counts a deletion once."""
    day: str
    """Written like the table's partition: `20260131`."""
    chosen: tuple[Chosen, ...]
    """A span is chosen by any of them."""
    epochs: dict[int, int]
    """Epochs of the rows' segments, each with the highest sequence number."""
    waiting: tuple[SegmentId, ...]
    """Segments of these epochs that are in the journal, so that their rows stay."""

    @property
    def _rows(self) -> Sql:
        epochs = [
            compose("SegmentEpoch = {epoch} AND SegmentSeq <= {seq}", epoch=epoch, seq=seq)
            for epoch, seq in self.epochs.items()
        ]
        # No row has (0, 0), so that the list is never empty.
        waiting = [compose("({epoch}, {seq})", epoch=each.epoch, seq=each.seq) for each in self.waiting]
        return compose(
            "{chosen} AND ({epochs}) AND (SegmentEpoch, SegmentSeq) NOT IN ({waiting})",
            chosen=any_of(self.chosen),
            epochs=joined(" OR ", epochs),
            waiting=joined(", ", [compose("(0, 0)"), *waiting]),
        )

    def by_heading(self, store: Store, epochs: list[int]) -> dict[Heading, RowSum]:
        """Count the rows of these epochs by drain, project and hour of receipt."""
        statement = _compose(_BY_HEADING, day=identifier(self.day), rows=self._rows)
        return {
            Heading(drain, project, hour): RowSum(rows, checksum)
            for drain, project, hour, rows, checksum in store.rows(statement, {"epochs": epochs})
        }

    def count(self, store: Store) -> int:
        """Count the rows."""
        return self._count(store, self._rows)

    @property
    def is_all(self) -> bool:
        """Return whether every span of the day is chosen."""
        return Chosen() in self.chosen

    def is_whole_day(self, store: Store) -> bool:
        """Return whether the day has no other rows."""
        others = compose("SegmentEpoch != 0 AND NOT ({rows})", rows=self._rows)
        return self.is_all and not self._count(store, others)

    def delete(self, store: Store) -> None:
        """Delete the rows: a whole day at once, other rows by a mutation, which goes on in the background."""
        day = identifier(self.day)
        if self.is_whole_day(store):
            store.command(compose("ALTER TABLE {table} DROP PARTITION ID '{day}'", day=day))
        else:
            store.command(compose(_DELETE, day=day, rows=self._rows))

    def _count(self, store: Store, rows: Sql) -> int:
        count: int = store.rows(_compose(_COUNT, day=identifier(self.day), rows=rows))[0][0]
        return count


def epochs_in(store: Store, day: str, chosen: Iterable[Chosen], unfinished: list[int]) -> dict[int, int]:
    """Return the epochs of a day's rows, each with the highest sequence number of its segments."""
    statement = _compose(_EPOCHS, day=identifier(day), chosen=any_of(chosen))
    return dict(store.rows(statement, {"unfinished": unfinished}))


def by_day(store: Store, chosen: Sql) -> dict[str, int]:
    """Count the spans with this condition by day."""
    return dict(store.rows(_compose(_BY_DAY, chosen=chosen)))


def any_of(chosen: Iterable[Chosen]) -> Sql:
    """Return the condition of the spans that are chosen by any of these; of no span without any."""
    conditions = [compose("({condition})", condition=each.condition) for each in chosen]
    return compose("({any})", any=joined(" OR ", conditions or [compose("0")]))


def _text(value: str) -> Sql:
    """Return a string in SQL, by the hexadecimal digits of its bytes: nothing in it can end a literal."""
    return compose("unhex('{digits}')", digits=identifier(value.encode().hex()))
