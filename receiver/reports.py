"""Reports of the receiver to operators: ledger, dead letters and progress, as the console reads them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, Literal, NamedTuple, Protocol

import msgspec

from receiver.model import SegmentId

LEDGER_SINCE: Final = "24h"
"""Age of the oldest hour in the response of a ledger query without `since`."""
CRASHED: Final = "crashed"
"""Cause of a dead letter: the body crashed the decoder."""


class Finding(NamedTuple):
    """The result of a check of the settings, this machine or the store."""

    level: Literal["problem", "warning", "note"]
    """A problem prevents `serve` from working."""
    text: str


class LedgerLine(msgspec.Struct, frozen=True):
    """Spans of one drain and project, received in one hour."""

    drain: str
    project: str
    hour: str
    """UTC, ISO 8601; empty: all hours older than those that are kept."""
    received: int
    stored: int
    sampled_out: int
    rejected: int
    duplicate: int
    dead: int
    deleted: int
    """Spans that were stored, and were deleted by an operator or by the limit of disk space."""
    journal: int
    difference: int
    """Received spans without an outcome. Any value but 0 is a bug."""
    table: int | None = None
    """Rows counted in the table; `None`: it was not compared."""
    verdict: str = ""
    problem: str = ""
    """Difference between the rows and the ledger; empty: none."""


class UnknownRows(msgspec.Struct, frozen=True):
    """Rows in the table from an epoch that this ledger does not know."""

    epoch: str
    """Epoch of the intake that wrote them."""
    rows: int
    first: str
    last: str
    """Hours of receipt, formatted as in a line."""
    is_lost: bool
    """True: this receiver wrote them and the ledger lost them. False: another receiver may have."""


class LedgerReport(msgspec.Struct, frozen=True):
    """Response of a ledger query."""

    taken_at: str
    since: str
    complete_from: str
    """First hour of the complete history; empty: the whole history is complete."""
    trouble: str
    """Losses of history that no operator has acknowledged; empty: none."""
    lines: list[LedgerLine]
    unknown: list[UnknownRows]
    """Rows of epochs that the ledger does not know; filled only if the table is compared."""


class DeletionReport(msgspec.Struct, frozen=True):
    """Stored spans that a deletion is for, and the deletion that runs."""

    days: dict[str, int]
    """Day, such as `20260131` → spans."""
    deleting: str
    """Day whose spans are being deleted; empty: none."""
    trouble: str
    """Reason that the deletion does not go on; empty if it does."""


class DeletionBegun(msgspec.Struct, frozen=True):
    """A deletion that has begun."""

    spans: int


class DeadDelivery(msgspec.Struct, frozen=True):
    """Rows of one delivery in a dead letter."""

    drain: str
    projects: tuple[str, ...]
    """Projects of all spans of the delivery. With several, the project of these rows is unknown."""
    rows: int
    digest: str


class DeadLetterEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter or a quarantined body."""

    id: str
    cause: str
    rows: int | None
    """Number of rows; `None` if unknown."""
    bytes: int
    at: str
    text: str
    deliveries: tuple[DeadDelivery, ...]
    path: str


class Beginning(NamedTuple):
    """Texts of the first rows of a dead letter, or of the beginning of a body."""

    texts: tuple[str, ...]
    problem: str = ""
    """Reason that there is no text."""


class Replayed(NamedTuple):
    """Result of a replay."""

    id: str
    segment: str
    """Id of the new segment; empty if there were no rows to store."""
    rows: int


class DeadLetterOperations(Protocol):
    """Dead letters as operators read and change them. Every method blocks.

    A method with an id raises `NoSuchDeadLetter`; `replay` and `drop` also raise `DeadLetterConflict`.
    """

    def entries(self) -> list[DeadLetterEntry]:
        """Return all dead letters and quarantined bodies."""

    def entry(self, name: str) -> DeadLetterEntry:
        """Return one dead letter or body."""

    def beginning(self, name: str) -> Beginning:
        """Return its first rows as text."""

    def replay(self, name: str) -> Replayed:
        """Move it back into the journal. An exception leaves it unchanged."""

    def drop(self, name: str) -> None:
        """Delete it permanently."""


class WriterProgress(Protocol):
    """Counters of the writer since the start, and its backlog."""

    inserts: int
    rows: int
    window_entries: int
    window_covered_s: float
    backlog_segments: int
    backlog_bytes: int

    def oldest_age_s(self, now_s: float) -> float:
        """Return the age of the oldest segment that is not stored yet; 0 without a backlog."""


class RecordedSegment(NamedTuple):
    """A segment whose rows were counted in the store and recorded in the ledger."""

    id: SegmentId
    received_ms: tuple[int, int]
    """Earliest and latest ReceivedAt of its rows."""
    parts_epoch: int | None
    """Epoch that rows of a split segment may have in the store, in place of the segment's epoch."""
    rows: int
    """Rows in the store."""


class RecordedLog(Protocol):
    """Recorded segments, for a reader that counts the rows of each of them once. Thread-safe."""

    def entries(self) -> list[RecordedSegment]:
        """Return all segments of the log, oldest first, also those that were counted.

        The reader remembers durably which of these it has counted; a segment that is not listed any more
        never returns.
        """

    def discard(self, counted: Collection[SegmentId]) -> None:
        """Allow the log to remove segments that the reader has counted, durably."""


class LedgerQueries(Protocol):
    """Source of ledger reports."""

    def __call__(self, query: Mapping[str, str], /) -> LedgerReport:
        """Run a ledger query with these parameters; blocks. Raises `MalformedBody`, `DiskTrouble`."""
