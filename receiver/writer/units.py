"""Units: a unit is the content of one INSERT, either a segment or a piece of a split segment.

The rows of a piece are ranges of the rows of its segment: the first row, and the row after the last.
"""

from __future__ import annotations

import builtins
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path

import msgspec

from receiver.engine.store import RowLocation
from receiver.journal.frame import Answered
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core, RowRange
from receiver.model import SegmentId
from receiver.redelivery.decisions import DUPLICATE
from receiver.writer.reading import SegmentFile

ANY_TIME_MS = (0, 9_999_999_999_999)
"""Range of receive times that contains every row."""
SPLITS_MAX = 150
"""Splits of one segment in search of refused rows. Finding 1 row in 200,000 takes 9, 10 rows about 80."""

Rows = tuple[RowRange, ...]
"""Row ranges in ascending order."""


class PlannedPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece that is not stored yet."""

    seq: int
    rows: Rows


class DeadRows(msgspec.Struct, frozen=True):
    """Rows that are never stored."""

    cause: str
    text: str
    rows: int
    """Number of rows that are not in the store."""
    ranges: Rows
    """Positions of these rows. May include stored rows that cannot be distinguished from dead rows."""


class Plan(msgspec.Struct, frozen=True):
    """Pieces and dead rows of a segment that could not be stored with one INSERT."""

    of_rows: int
    """Number of rows in the segment. All row positions in the plan count from its first row."""
    received_ms: tuple[int, int]
    pieces: tuple[PlannedPiece, ...] = ()
    dead: tuple[DeadRows, ...] = ()
    next_seq: int = 1
    refused_code: int | None = None
    """Error code of the refusal that began a search for refused rows."""
    splits: int = 0
    """Number of splits in the search for refused rows."""

    @property
    def may_split(self) -> bool:
        """Whether the segment may be split further in search of refused rows."""
        return self.splits < SPLITS_MAX


@dataclass(frozen=True, slots=True)
class Piece:
    """A set of rows of a segment, with its own identity."""

    id: SegmentId
    segment: SegmentFile
    rows: Rows
    plan: Plan
    core: Core

    @property
    def path(self) -> Path:
        """Path of the segment to which the piece belongs."""
        return self.segment.path

    @property
    def bytes(self) -> int:
        """Approximate size."""
        return self.segment.bytes * row_count(self.rows) // max(1, self.plan.of_rows)

    def read(self) -> builtins.bytes:
        """Return the rows as a segment. Raises `ValueError` if the segment was damaged meanwhile."""
        # `False`: a piece lists no deliveries, because the segment records them when no piece is left.
        identity = (self.id.epoch, self.id.seq, False)
        content = read_planned(self.segment, self.plan, self.core)
        return self.core.rewrite(content, self.rows, self.segment.codec, BLOCK_ROWS_MAX, identity)


Unit = SegmentFile | Piece
"""Content of one INSERT."""


def query_id_of(token: str) -> str:
    """Return the query id of an INSERT with this token. A unit's id gives the prefix of all its query ids."""
    return f"trace-drain-{token}"


def segment_of(unit: Unit) -> SegmentId:
    return unit.segment.id if isinstance(unit, Piece) else unit.id


def read_planned(segment: SegmentFile, plan: Plan, core: Core) -> bytes:
    """Read a split segment. Raises `ValueError` if rows were lost, which would shift the positions."""
    content = segment.read()
    scan = core.scan(content)
    if scan.damage or sum(record.rows for record in scan.records) != plan.of_rows:
        raise ValueError(f"segment was damaged after it was split; expected {plan.of_rows} rows")
    return content


@dataclass(slots=True)
class OpenUnit:
    """A unit that is being processed: its final content, and its rows in the store at the last count."""

    unit: Unit
    rows: int
    received_ms: tuple[int, int]
    deliveries: tuple[Answered, ...] = ()
    verdicts: builtins.bytes = b""
    """The deduplication verdict on each delivery."""
    is_damaged_after_insert: bool = False
    """Whether the file was damaged after rows of it were stored. Then rows are only counted, not inserted."""
    rows_stored: int = 0

    @property
    def location(self) -> RowLocation:
        """Location of its rows in the table. After damage it covers any time, as receive times are lost."""
        received_ms = ANY_TIME_MS if self.is_damaged_after_insert else self.received_ms
        return RowLocation(self.unit.id, received_ms, self.rows)

    @property
    def stored_text(self) -> str:
        return f"{self.rows_stored} of {self.rows} rows are stored"

    @property
    def duplicates(self) -> list[Answered]:
        """Deliveries that were stored before."""
        decided = zip(self.deliveries, self.verdicts, strict=True)
        return [delivery for delivery, verdict in decided if verdict == DUPLICATE]

    @property
    def accepted(self) -> list[Answered]:
        decided = zip(self.deliveries, self.verdicts, strict=True)
        return [delivery for delivery, verdict in decided if verdict != DUPLICATE]


def row_count(rows: Iterable[RowRange]) -> int:
    return sum(stop - first for first, stop in rows)


def positions(deliveries: Iterable[Answered]) -> list[RowRange]:
    """Return the rows of each delivery. They are contiguous, in the order of the deliveries."""
    stops = [*accumulate(delivery.rows for delivery in deliveries)]
    return [*zip([0, *stops], stops, strict=False)]


def split_in_half(rows: Rows) -> tuple[Rows, Rows]:
    """Split the rows into two halves. Requires at least two rows."""
    left = row_count(rows) // 2
    first: list[RowRange] = []
    second: list[RowRange] = []
    for start, stop in rows:
        cut = min(stop, start + left)
        left -= cut - start
        first += [(start, cut)] * (cut > start)
        second += [(cut, stop)] * (stop > cut)
    return tuple(first), tuple(second)


def merge_adjacent(rows: Iterable[RowRange]) -> Rows:
    """Sort ranges and join adjacent ranges."""
    joined: list[RowRange] = []
    for first, stop in sorted(rows):
        if joined and joined[-1][1] == first:
            joined[-1] = (joined[-1][0], stop)
        else:
            joined.append((first, stop))
    return tuple(joined)


def intersect(rows: Iterable[RowRange], others: Iterable[RowRange]) -> Rows:
    """Return the rows that are in both arguments, each of which must be in ascending order."""
    common: list[RowRange] = []
    left, right = list(rows), list(others)
    at = other = 0
    while at < len(left) and other < len(right):
        first, stop = max(left[at][0], right[other][0]), min(left[at][1], right[other][1])
        if first < stop:
            common.append((first, stop))
        if left[at][1] < right[other][1]:
            at += 1
        else:
            other += 1
    return tuple(common)
