"""Segments as the writer reads them from the journal: content, deliveries and damage."""

from __future__ import annotations

import builtins
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from receiver.journal.frame import Answered, answers_of, footer_counts_of
from receiver.journal.segment_core import Core
from receiver.model import SegmentId

BLOCK_ROWS_MIN = 200
"""Average rows per block below which blocks are merged first: each block costs the engine 0.4 ms."""


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


class SealedJournal(Protocol):
    def sealed(self) -> Iterable[SegmentFile]:
        """List the sealed segments, oldest first."""

    @property
    def newer(self) -> Sequence[SegmentId]:
        """Segments that only a newer version can read. The writer keeps its state about them."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A segment as read from the journal, before any decision."""

    file: SegmentFile
    content: builtins.bytes
    is_ours: bool
    """Whether the records belong to this segment. A count by its id would miss rows of another segment."""
    rows: int
    blocks: int
    received_ms: tuple[int, int]
    deliveries: tuple[Answered, ...]
    damage: str
    """Description of the damage; empty if there is none."""
    rows_lost: int | None
    """Rows lost by the damage; `None`: unknown, because the footer is missing."""

    @property
    def rows_lost_unanswered(self) -> int:
        """Lost rows of unlisted deliveries. After a rewrite the first record lists every delivery."""
        answered = sum(delivery.rows for delivery in self.deliveries)
        return max(0, (self.rows_lost or 0) - max(0, answered - self.rows))

    @property
    def is_whole(self) -> bool:
        """Return whether the segment holds every row of its deliveries, so that none was left out before."""
        return sum(delivery.rows for delivery in self.deliveries) == self.rows

    @property
    def has_small_blocks(self) -> bool:
        """Return whether merging the blocks first is cheaper than inserting them unchanged."""
        return self.blocks > 1 and self.rows < self.blocks * BLOCK_ROWS_MIN


def read_segment(file: SegmentFile, core: Core, *, content: bytes | None = None) -> Reading:
    """Read a segment, or an earlier `content` of it.

    Records of another segment are reported as damage and not counted.
    """
    content = file.read() if content is None else content
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
    # A delivery whose spans are all sampled out has a record without rows.
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
    )
