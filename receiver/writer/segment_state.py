"""One segment on its way into the store: what is known of it, and the names it goes by there.

Keeps: its content is final before the first INSERT. Blocks that are too small are merged, duplicates and
damaged records left out first, in one rewrite that is on the disk before anything is sent.
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
from receiver.writer.outcome import spelled
from receiver.writer.row_search import RowSearch

BLOCK_ROWS_MIN = 200
"""Every block costs the engine 0.4 ms; below this average a segment is rewritten first."""
DAYS_MAX = 90
"""Partitions that one INSERT touches at most: ClickHouse refuses more than 100 by default."""
ANY_TIME_MS = (0, 9_999_999_999_999)
"""Whatever ReceivedAt is, in this century and the next two."""


class SegmentFile(Protocol):
    """A sealed segment in the journal."""

    @property
    def id(self) -> SegmentId:
        """Who it is."""

    @property
    def path(self) -> Path:
        """Where it lies."""

    @property
    def bytes(self) -> int:
        """How long it is."""

    @property
    def codec(self) -> str:
        """How its blocks are compressed: `lz4` or `zstd`."""

    def read(self) -> builtins.bytes:
        """Read it whole."""

    def replace(self, content: builtins.bytes) -> object:
        """Replace its content, durably and in one step."""

    def unlink(self) -> None:
        """Let go of it."""


class Journal(Protocol):
    """The end of the journal where segments come out."""

    def sealed(self) -> Iterable[SegmentFile]:
        """Name the sealed segments, oldest first."""

    @property
    def held(self) -> Sequence[SegmentId]:
        """Those that another version wrote and will come back for: what is known of them stays known."""


class SetAside(Exception):  # noqa: N818 - not an error: how a case is closed from any depth
    """What is not stored of a segment goes to the dead letters."""

    def __init__(self, cause: str, text: str, *, days: Collection[str] = ()) -> None:
        """`days`: the days whose rows are not stored because of this; empty: all rows that are not stored."""
        super().__init__(text)
        self.cause = cause
        self.days = days


@dataclass(slots=True)
class SegmentState:
    """One segment, and how far it has come."""

    file: SegmentFile
    rows: int
    received_ms: tuple[int, int]
    in_doubt: bool
    """An INSERT of it may have been applied without our knowing: the companion may have a hole."""
    must_look: bool
    """Count before doing anything else."""
    deliveries: tuple[Answered, ...] = ()
    verdicts: builtins.bytes = b""
    """What was decided about each of them."""
    answered: bool = False
    """An INSERT of the whole answered plainly OK."""
    days_answered: set[str] = field(default_factory=set)
    """Days of which an INSERT of some days did."""
    token: int = 0
    """Of the next INSERT of the whole: it moves on only after a plain OK."""
    day_tokens: Counter[str] = field(default_factory=Counter)
    """The same for each day, for INSERTs of some days only."""
    days_sent: tuple[str, ...] = ()
    """Days of the last INSERT; empty: it was the whole segment."""
    days_left: tuple[str, ...] = ()
    """Missing days that were not sent yet since the last count."""
    days_refused: dict[str, str] = field(default_factory=dict)
    """Days the store will not take alone, and what it says of them."""
    rows_stored: int = 0
    """At the last count."""
    days_stored: tuple[str, ...] = ()
    """Partitions that held rows of it at the last count."""
    days_refilled: set[str] = field(default_factory=set)
    """Partitions whose traces were written into the companion table once more."""
    odd_looks: int = 0
    refusals: int = 0
    """How often the store accepted a probe row, but not this segment."""
    failures: int = 0
    """Statements that failed since the last one that brought the segment forward."""
    given_up: SetAside | None = None
    """Why the rest goes to the dead letters, while what is stored is being closed."""
    refused_for: StoreTrouble | None = None
    """Why its data may be at fault: looked into after the next count."""
    is_rotten: bool = False
    """It rotted after rows of it were stored: only counted, nothing of it is inserted any more."""
    stored: Mapping[Heading, int] | None = None
    """Whose rows are in the store; `None`: all that were accepted and not left out."""
    checksums: Mapping[Heading, int] | None = None
    """Of the rows in the store; `None`: not asked for yet."""
    rest: Rest = "duplicate"
    """What those are that are not."""
    search: RowSearch | None = None
    """For the rows the store refuses, while it goes on."""
    is_searched: bool = False
    """They were left out, or there were none: it is not searched again."""
    is_too_large: bool = False
    """The store has neither time nor memory for it again and again: cut up after the next count."""
    by_day: bool = False
    """Too many partitions for one INSERT: it is inserted in groups of days."""
    days_per_statement: int = DAYS_MAX
    """How many partitions one INSERT may touch; smaller after the store refused so many."""

    @property
    def held(self) -> Held:
        """How its rows are found in the table."""
        return Held(self.file.id, ANY_TIME_MS if self.is_rotten else self.received_ms)

    @property
    def duplicates(self) -> list[Answered]:
        """Deliveries that are stored already."""
        told = zip(self.deliveries, self.verdicts, strict=True)
        return [one for one, verdict in told if verdict == DUPLICATE]

    def token_of_whole(self) -> str:
        """Name the next INSERT of the whole segment."""
        return f"{self._name}#{self.token}"

    def token_of_days(self, days: Sequence[str]) -> str:
        """Return the token of the next INSERT of these days: the same days always give the same name.

        Other days are other content, and must never share a token with it.
        """
        number = max(self.day_tokens[day] for day in days)
        return f"{self._name}@{name_of_days(days)}#{number}"

    @property
    def _name(self) -> str:
        """Without the rows that were refused it is another content, which no earlier token may stand for."""
        return f"{self.file.id}{'!' if self.is_searched else ''}"


def name_of_days(days: Sequence[str]) -> str:
    """Name a group of days: a single day by itself, several by their span and a digest of the list."""
    if len(days) == 1:
        return days[0]
    digest = hashlib.blake2b(",".join(days).encode(), digest_size=8).hexdigest()
    return f"{min(days)}-{max(days)}-{digest}"


def runs_of(content: builtins.bytes, days: Collection[str], core: Core) -> list[RowRange]:
    """Tell which rows are of these days."""
    return [(first, end) for first, end, day in core.day_runs(content) if spelled(day) in days]


def only_rows(content: builtins.bytes, keep: Sequence[RowRange], core: Core, codec: str) -> builtins.bytes:
    """Cut rows out of a segment."""
    return core.rewrite(content, keep, codec, BLOCK_ROWS_MAX)


@dataclass(frozen=True, slots=True)
class Reading:
    """A segment as it was found in the journal, before anything is decided."""

    file: SegmentFile
    content: builtins.bytes
    is_ours: bool
    """It holds the records that its name promises; another segment's would never be found under this name."""
    rows: int
    blocks: int
    received_ms: tuple[int, int]
    deliveries: tuple[Answered, ...]
    damage: str
    """Empty: none."""
    rows_lost: int | None
    """By the damage; without a footer nobody knows."""
    lost: RowRange | None
    """Which rows these are, if they lie together; `None`: none, or nobody knows."""

    @property
    def held(self) -> Held:
        """How its rows are found in the table. When those that rotted were received, nobody knows."""
        return Held(self.file.id, ANY_TIME_MS if self.damage else self.received_ms)

    @property
    def rows_lost_unanswered(self) -> int:
        """Lost rows that no delivery speaks of. After a rewrite all answers are in the first record."""
        answered = sum(one.rows for one in self.deliveries)
        return max(0, (self.rows_lost or 0) - max(0, answered - self.rows))

    @property
    def is_whole(self) -> bool:
        """Every row that its deliveries speak of is there, in its place: none was ever left out."""
        return sum(one.rows for one in self.deliveries) == self.rows

    @property
    def has_small_blocks(self) -> bool:
        """Merging them is cheaper than inserting them."""
        return self.blocks > 1 and self.rows < self.blocks * BLOCK_ROWS_MIN


def reading_of(file: SegmentFile, core: Core) -> Reading:
    """Read a segment. The records of another one are damage, and count for nothing."""
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
    promised = footer_counts_of(content) if damage and scan.sealed else None
    rows_lost = promised.rows - rows if promised else None
    received = [record.received_ms for record in scan.records if record.rows] or [(0, 0)]
    return Reading(
        file=file,
        content=content,
        is_ours=is_ours,
        rows=rows,
        blocks=sum(1 for record in records if record.rows),
        received_ms=(min(first for first, _ in received), max(last for _, last in received)),
        deliveries=tuple(one for record in records for one in answers_of(record)),
        damage="; ".join(damage),
        rows_lost=rows_lost,
        lost=_lost(scan, rows_lost) if is_ours else None,
    )


def _lost(scan: Scan, rows_lost: int | None) -> RowRange | None:
    if not rows_lost or len(scan.damage) != 1:
        return None
    first = sum(record.rows for record in scan.records if record.offset < scan.damage[0][0])
    return (first, first + rows_lost)
