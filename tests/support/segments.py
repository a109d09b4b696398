"""Segments that the real engines can read, made without the Rust core."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

import lz4.frame  # type: ignore[import-untyped]  # it has no types

from receiver.engine.store import RowLocation, Store
from receiver.journal.segment_core import DayRun
from receiver.model import SegmentId
from tests.support.fake_clickhouse import DAY_S, NOW_S, TODAY, FakeRecord, FakeScan, Rows

EPOCH = 0xFEDCBA9876543210
DIGEST_KEY = bytes(range(32))
RECEIVED_MS = (NOW_S * 1000, NOW_S * 1000)
SKIPPABLE = struct.pack("<II", 0x184D2A54, 4) + b"note"


@dataclass(frozen=True)
class Segment:
    """A segment file, its location in the store, and its rows."""

    path: Path
    location: RowLocation
    rows: Rows

    @property
    def days(self) -> dict[str, int]:
        """Expected row counts by day once the segment is stored."""
        return {day: count for day, (_, count) in self.rows.items()}


def stored_days(store: Store, segment: Segment) -> dict[str, int]:
    """Count the stored rows of a segment and its pieces by day."""
    rows = store.rows(
        "SELECT toString(toYYYYMMDD(Timestamp, 'UTC')) AS day, count() FROM otel_traces "
        "WHERE startsWith(TraceId, {trace:String}) GROUP BY day",
        {"trace": f"{segment.location.segment.seq:016x}"},
    )
    return {str(day): int(count) for day, count in rows}


class SegmentMaker:
    """Makes segment files and implements `Core` for them: it remembers the rows of each file content."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._seq = 0
        self._known: dict[bytes, tuple[SegmentId, tuple[int, ...]]] = {}

    def make(self, *ages_days: int) -> Segment:
        """Write a segment with one block and row per age."""
        self._seq += 1
        segment = SegmentId(EPOCH, self._seq)
        path = self._directory / f"{self._seq:010d}.native.lz4"
        path.write_bytes(self._encode(segment, ages_days, range(len(ages_days))))
        return Segment(path, RowLocation(segment, RECEIVED_MS), self.rows_of(path))

    def rows_of(self, path: Path) -> Rows:
        """Return the rows of a file."""
        segment, ages = self._known[sha256(path.read_bytes()).digest()]
        return {day: (segment, count) for day, count in Counter(day_of(age) for age in ages).items()}

    def scan(self, segment: bytes, /) -> FakeScan:
        """See `Core`. Reports one record, so that the writer does not merge blocks."""
        segment_id, ages = self._known[sha256(segment).digest()]
        return FakeScan([FakeRecord(len(ages), RECEIVED_MS)], epoch=segment_id.epoch, seq=segment_id.seq)

    def rewrite(
        self,
        segment: bytes,
        keep: Sequence[tuple[int, int]],
        _codec: str,
        _block_rows_max: int,
        identity: tuple[int, int, bool] | None = None,
        /,
    ) -> bytes:
        """See `Core`. The rows keep their trace ids."""
        old_id, ages = self._known[sha256(segment).digest()]
        segment_id = SegmentId(*identity[:2]) if identity else old_id
        rows = [row for first, end in keep for row in range(first, end)]
        return self._encode(segment_id, [ages[row] for row in rows], rows, trace_of=old_id)

    def day_runs(self, segment: bytes, _shards: int, /) -> list[DayRun]:
        """See `Core`."""
        _, ages = self._known[sha256(segment).digest()]
        return [(row, row + 1, TODAY - age, 0) for row, age in enumerate(ages)]

    def _encode(
        self, segment: SegmentId, ages: Sequence[int], rows: Iterable[int], trace_of: SegmentId | None = None
    ) -> bytes:
        blocks = [block_of(age * DAY_S, segment, row, trace_of) for age, row in zip(ages, rows, strict=True)]
        content = b"".join(SKIPPABLE + lz4.frame.compress(block) for block in blocks)
        self._known[sha256(content).digest()] = (segment, tuple(ages))
        return content


def block_of(age_s: int, segment: SegmentId, row: int, trace_of: SegmentId | None = None) -> bytes:
    """Encode one span as a Native block with the columns that the store's queries use.

    `trace_of`: the segment whose number the trace id contains, if it is another one.
    """
    trace = (trace_of or segment).seq
    columns = [
        ("Timestamp", "DateTime64(9)", struct.pack("<q", (NOW_S - age_s) * 10**9 + row)),
        ("TraceId", "String", _text(f"{trace:016x}{row:016x}")),
        ("SpanId", "String", _text(f"{row + 1:016x}")),
        ("SpanName", "String", _text("it's a \\ 'name' {a:String}")),
        ("ServiceName", "String", _text("shop" if row % 2 else "cart")),
        ("ProjectId", "String", _text(f"prj_{row % 2}")),
        ("SpanAttributes", "Map(String, String)", struct.pack("<Q", 1) + _text("k") + _text(f"v{row}")),
        ("Duration", "UInt64", struct.pack("<Q", 2**63 + row)),
        ("ReceivedAt", "DateTime64(3, 'UTC')", struct.pack("<q", NOW_S * 1000)),
        ("SegmentEpoch", "UInt64", struct.pack("<Q", segment.epoch)),
        ("SegmentSeq", "UInt64", struct.pack("<Q", segment.seq)),
    ]
    parts = [_text(name) + _text(kind) + value for name, kind, value in columns]
    return bytes([len(columns), 1]) + b"".join(parts)


def day_of(age_days: int) -> str:
    """Return the name of the day `age_days` ago: `20260131`."""
    return datetime.fromtimestamp(NOW_S - age_days * DAY_S, UTC).strftime("%Y%m%d")


def _text(text: str) -> bytes:
    raw = text.encode()
    assert len(raw) < 128
    return bytes([len(raw)]) + raw
