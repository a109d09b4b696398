"""State of a segment while the writer processes it: content, counts, tokens and decisions.

Invariant: the content is final before the first INSERT. One rewrite, durable before any row is sent, merges
small blocks and leaves out duplicates and damaged records.
"""

from __future__ import annotations

import builtins
import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from receiver.engine.store import Held
from receiver.errors import StoreTrouble
from receiver.journal.frame import Answered, answers_of, footer_counts_of
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core, RowRange, Scan
from receiver.ledger.line_sums import Rest
from receiver.model import Heading, SegmentId
from receiver.redelivery.decisions import DUPLICATE
from receiver.writer.outcome import partition_id
from receiver.writer.row_search import RowSearch

BLOCK_ROWS_MIN = 200
"""Average rows per block below which a segment is rewritten first: each block costs the engine 0.4 ms."""
DAYS_MAX = 90
"""Maximum of partitions per INSERT: ClickHouse refuses more than 100 by default."""
ANY_TIME_MS = (0, 9_999_999_999_999)
"""A range that contains every ReceivedAt."""


class SegmentFile(Protocol):
    """A sealed segment in the journal."""

    @property
    def id(self) -> SegmentId:
        """Identity of the segment."""

    @property
    def path(self) -> Path:
        """Path of the file."""

    @property
    def bytes(self) -> int:
        """Size of the file."""

    @property
    def codec(self) -> str:
        """Compression of its blocks: `lz4` or `zstd`."""

    def read(self) -> builtins.bytes:
        """Read the whole file."""

    def replace(self, content: builtins.bytes) -> object:
        """Replace the content durably and atomically."""

    def unlink(self) -> None:
        """Delete the file."""


class Journal(Protocol):
    """Sealed segments of the journal, as the writer sees them."""

    def sealed(self) -> Iterable[SegmentFile]:
        """List the sealed segments, oldest first."""

    @property
    def held(self) -> Sequence[SegmentId]:
        """Segments that only another version can read: the writer keeps its state about them."""


class DeadLettered(Exception):  # noqa: N818 - control flow: ends the processing of a segment at any call depth
    """The rows of a segment that are not stored become a dead letter."""

    def __init__(self, cause: str, text: str, *, days: Collection[str] = ()) -> None:
        """`days`: the days whose rows are not stored; empty: all rows of the segment that are not stored."""
        super().__init__(text)
        self.cause = cause
        self.days = days


@dataclass(slots=True)
class SegmentState:
    """A segment, its counts and its decisions so far."""

    file: SegmentFile
    rows: int
    received_ms: tuple[int, int]
    in_doubt: bool
    """An INSERT may have been applied without a response, so the companion table may have a gap."""
    must_count: bool
    """The next step must count the stored rows first."""
    deliveries: tuple[Answered, ...] = ()
    verdicts: builtins.bytes = b""
    """The deduplication verdict on each delivery."""
    answered: bool = False
    """An INSERT of the whole segment returned OK."""
    days_answered: set[str] = field(default_factory=set)
    """Days of which an INSERT of single days returned OK."""
    token: int = 0
    """Token number of the next INSERT of the whole segment; incremented only after an OK."""
    day_tokens: Counter[str] = field(default_factory=Counter)
    """The same for each day, for INSERTs of single days."""
    days_sent: tuple[str, ...] = ()
    """Days of the last INSERT; empty: the whole segment."""
    days_left: tuple[str, ...] = ()
    """Missing days that were not sent since the last count."""
    days_refused: dict[str, str] = field(default_factory=dict)
    """Days that the store refuses individually, and its error messages."""
    rows_stored: int = 0
    """Stored rows at the last count."""
    days_stored: tuple[str, ...] = ()
    """Partitions that held rows of the segment at the last count."""
    days_refilled: set[str] = field(default_factory=set)
    """Partitions whose traces were written into the companion table again."""
    inconsistent_counts: int = 0
    refusals: int = 0
    """How often the store accepted a probe row but not this segment."""
    failures: int = 0
    """Failed statements since the last successful one."""
    pending_dead_letter: DeadLettered | None = None
    """Why the missing rows become a dead letter, while the stored rows are being finished."""
    refused_for: StoreTrouble | None = None
    """The error that suggests refused rows: starts a search after the next count."""
    is_damaged_after_insert: bool = False
    """The file was damaged after rows of it were stored: they are counted, and no row is inserted."""
    stored: Mapping[Heading, int] | None = None
    """Stored rows by heading; `None`: all accepted rows that are not duplicates."""
    checksums: Mapping[Heading, int] | None = None
    """Checksums of the stored rows by heading; `None`: not queried yet."""
    rest: Rest = "duplicate"
    """How the ledger counts the rows that are not stored."""
    search: RowSearch | None = None
    """The search for refused rows, while it is running."""
    is_searched: bool = False
    """The search is over; it is not repeated."""
    is_too_large: bool = False
    """The store repeatedly lacked time or memory for the segment: split after the next count."""
    by_day: bool = False
    """The segment has too many partitions for one INSERT, so it is inserted in groups of days."""
    days_per_statement: int = DAYS_MAX
    """Maximum of partitions per INSERT; reduced after a refusal."""

    @property
    def held(self) -> Held:
        """The conditions that select its rows in the table."""
        return Held(self.file.id, ANY_TIME_MS if self.is_damaged_after_insert else self.received_ms)

    @property
    def duplicates(self) -> list[Answered]:
        """Deliveries that were stored before."""
        decided = zip(self.deliveries, self.verdicts, strict=True)
        return [delivery for delivery, verdict in decided if verdict == DUPLICATE]

    def token_of_whole(self) -> str:
        """Return the token of the next INSERT of the whole segment."""
        return f"{self._name}#{self.token}"

    def token_of_days(self, days: Sequence[str]) -> str:
        """Return the token of the next INSERT of these days.

        Different days are different content, which must never share a token.
        """
        number = max(self.day_tokens[day] for day in days)
        return f"{self._name}@{name_of_days(days)}#{number}"

    @property
    def _name(self) -> str:
        """Prefix of its tokens. It changes with the content, when the refused rows are removed."""
        return f"{self.file.id}{'!' if self.is_searched else ''}"


def name_of_days(days: Sequence[str]) -> str:
    """Return the name of a group of days: the day, or first day, last day and a digest of the list."""
    if len(days) == 1:
        return days[0]
    digest = hashlib.blake2b(",".join(days).encode(), digest_size=8).hexdigest()
    return f"{min(days)}-{max(days)}-{digest}"


def ranges_of_days(content: builtins.bytes, days: Collection[str], core: Core) -> list[RowRange]:
    """Return the row ranges of these days."""
    return [(first, end) for first, end, day in core.day_runs(content) if partition_id(day) in days]


def extract_rows(content: builtins.bytes, keep: Sequence[RowRange], core: Core, codec: str) -> builtins.bytes:
    """Return a segment that holds only these rows."""
    return core.rewrite(content, keep, codec, BLOCK_ROWS_MAX)


@dataclass(frozen=True, slots=True)
class Reading:
    """A segment as read from the journal, before any decision."""

    file: SegmentFile
    content: builtins.bytes
    is_ours: bool
    """The records belong to this segment. Rows of another segment would never be counted under this id."""
    rows: int
    blocks: int
    received_ms: tuple[int, int]
    deliveries: tuple[Answered, ...]
    damage: str
    """Description of the damage; empty: none."""
    rows_lost: int | None
    """Rows lost by the damage; `None`: unknown, because the footer is missing."""
    lost: RowRange | None
    """Position of the lost rows if they are contiguous; `None`: no rows, or unknown."""

    @property
    def held(self) -> Held:
        """The conditions that select its rows in the table. Damage hides when rows were received."""
        return Held(self.file.id, ANY_TIME_MS if self.damage else self.received_ms)

    @property
    def rows_lost_unanswered(self) -> int:
        """Lost rows that belong to no listed delivery. After a rewrite the first record lists all."""
        answered = sum(delivery.rows for delivery in self.deliveries)
        return max(0, (self.rows_lost or 0) - max(0, answered - self.rows))

    @property
    def is_whole(self) -> bool:
        """Return whether the segment holds every row of its deliveries, so that none was left out before."""
        return sum(delivery.rows for delivery in self.deliveries) == self.rows

    @property
    def has_small_blocks(self) -> bool:
        """Return whether merging the blocks is cheaper than inserting them as they are."""
        return self.blocks > 1 and self.rows < self.blocks * BLOCK_ROWS_MIN


def read_segment(file: SegmentFile, core: Core) -> Reading:
    """Read a segment. Records of another segment are reported as damage and not counted."""
    content = file.read()
    scan = core.scan(content)
    is_ours = not scan.records or (scan.epoch, scan.seq) == (file.id.epoch, file.id.seq)
    records = scan.records if is_ours else ()
    rows = sum(record.rows for record in records)
    damage = [f"{length} bytes at byte {offset}: {text}" for offset, length, text in scan.damage]
    if not scan.sealed:
        damage.append("footer is missing or disagrees; expected a sealed segment")
    if not is_ours:
        damage.append(f"holds records of segment {SegmentId(scan.epoch, scan.seq)}")
    footer = footer_counts_of(content) if damage and scan.sealed else None
    rows_lost = footer.rows - rows if footer else None
    received = [record.received_ms for record in scan.records if record.rows] or [(0, 0)]
    return Reading(
        file=file,
        content=content,
        is_ours=is_ours,
        rows=rows,
        blocks=sum(1 for record in records if record.rows),
        received_ms=(min(first for first, _ in received), max(last for _, last in received)),
        deliveries=tuple(delivery for record in records for delivery in answers_of(record)),
        damage="; ".join(damage),
        rows_lost=rows_lost,
        lost=_lost(scan, rows_lost) if is_ours else None,
    )


def _lost(scan: Scan, rows_lost: int | None) -> RowRange | None:
    if not rows_lost or len(scan.damage) != 1:
        return None
    first = sum(record.rows for record in scan.records if record.offset < scan.damage[0][0])
    return (first, first + rows_lost)
