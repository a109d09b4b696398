"""Rows of a store with a value in every column, and a move between two stores."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import IO, Any, cast

from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.columns import PROBE_ROW
from receiver.engine.copying import HOUR_S
from receiver.engine.sql_text import Sql, compose, names
from receiver.engine.store import Store
from receiver.model import SegmentId
from receiver.move.ends import MoveSource, OpenStore, UnfinishedSegments
from receiver.move.mover import Moved, Mover
from receiver.transcode import COLUMNS
from tests.support import engines

# Noon of yesterday: with the next hour and 48 hours before it, the same days at any time of the test.
HOUR = int(time.time()) // (24 * HOUR_S) * 24 - 12
EPOCH = 2**64 - 5
NAME = "trace-drain-move-test"
NONE_UNFINISHED = UnfinishedSegments(frozenset(), frozenset())

_VALUES = {
    **PROBE_ROW,
    "Timestamp": "fromUnixTimestamp64Nano({from_ns:Int64} + toInt64(number) * 999999937 % 3600000000000)",
    "TraceId": "if(number % 7 = 6, '', lower(hex(cityHash64({seq:UInt64}, intDiv(number, 3)))))",
    "SpanId": "lower(hex(number))",
    "SpanName": "multiIf(number = 1, unhex('ff00fe'), number = 2, '日本 \\'\\\\', 'GET')",
    "SpanAttributes": "map('key', toString(number), 'empty', '')",
    "Duration": "toUInt64(18446744073709551615 - number)",
    "Drain": "'drain'",
    "Events.Timestamp": "arrayMap(i -> fromUnixTimestamp64Nano(1769853600123456789 + i), range(number % 3))",
    "Events.Name": "arrayMap(i -> toString(i), range(number % 3))",
    "Events.Attributes": "arrayMap(i -> map('a', toString(i)), range(number % 3))",
    "ReceivedAt": "fromUnixTimestamp64Milli(intDiv({from_ns:Int64}, 1000000) + toInt64(number), 'UTC')",
    "SegmentEpoch": "{epoch:UInt64}",
    "SegmentSeq": "{seq:UInt64}",
    "SampleWeight": "if(number % 2, NULL, if(number = 4, nan, number / 3))",
    "SampleThreshold": "if(number % 2, NULL, toUInt64(18446744073709551615))",
}
_NAMES = names(name for name, _ in COLUMNS)
_INSERT = compose(
    """
INSERT INTO {table} ({names}) SELECT {values}
FROM (SELECT * FROM numbers({rows:UInt64})) SETTINGS insert_deduplicate = 0
""",
    names=_NAMES,
    values=Sql(", ".join(_VALUES[name] for name, _ in COLUMNS)),
)
_CONTENT = compose("SELECT count(), sum(cityHash64(toString(tuple({names})))) FROM {table}", names=_NAMES)
_UNREACHABLE = compose("""
SELECT count() FROM {table} AS spans
LEFT JOIN (SELECT TraceId, min(Start) AS First, max(End) AS Last FROM {companion} GROUP BY TraceId) AS known
ON spans.TraceId = known.TraceId
WHERE spans.TraceId != '' AND NOT (spans.Timestamp BETWEEN First AND Last)
""")


def segment(seq: int) -> SegmentId:
    return SegmentId(EPOCH, seq)


def add(store: Store, seq: int, *, rows: int = 10, hour: int = HOUR, epoch: int = EPOCH) -> None:
    """Insert the rows of a segment that begin in an hour."""
    parameters = {"seq": seq, "rows": rows, "from_ns": hour * HOUR_S * 10**9, "epoch": epoch}
    store.rows(_INSERT, parameters)


def content(store: Store) -> tuple[int, int]:
    """Return the number of rows, and a checksum of all their columns."""
    [(rows, checksum)] = store.rows(_CONTENT)
    return int(rows), int(checksum)


def unreachable(store: Store) -> int:
    """Return the number of rows that the companion table lacks."""
    return int(store.rows(_UNREACHABLE)[0][0])


class TargetDouble:
    """A target whose INSERTs a test counts or replaces."""

    def __init__(self, target: ClickHouseStore) -> None:
        self.target = target

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - any attribute
        return getattr(self.target, name)

    def insert_arrow(self, table: str, body: IO[bytes], *, token: str, query_id: str) -> int:
        return self.insert(lambda: self.target.insert_arrow(table, body, token=token, query_id=query_id))

    def insert(self, send: Callable[[], int]) -> int:
        """Answer an INSERT, which `send` sends."""
        return send()


@dataclass
class Move:
    """A move whose parts a test replaces. It does not wait."""

    source: Store
    target: ClickHouseStore
    reported: list[str] = field(default_factory=list)

    def begin(self) -> None:
        """Empty both stores, for the next case of a table."""
        engines.delete_rows(self.source)
        engines.delete_rows(self.target)
        self.reported.clear()

    def run(
        self,
        *,
        source: MoveSource | None = None,
        target: TargetDouble | None = None,
        unfinished: Callable[[], UnfinishedSegments] = lambda: NONE_UNFINISHED,
        retention_days: int = 0,
        now_s: Callable[[], float] = time.time,
    ) -> Moved:
        return Mover(
            source or OpenStore(self.source),
            cast("ClickHouseStore", target or self.target),
            unfinished,
            NAME,
            self.reported.append,
            retention_days,
            sleep=lambda _: None,
            now_s=now_s,
        ).run()
