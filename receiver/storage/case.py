"""One segment on its way into the store: what is known of it, and the names it goes by there.

Keeps: its content is final before the first INSERT. Blocks that are too small are merged and damaged records
left out first, in one rewrite that is on the disk before anything is sent.
"""

from __future__ import annotations

import builtins
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from receiver.journal.frame import claim_of
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.storage.outcome import DayRun, spelled
from receiver.storage.store import Held

BLOCK_ROWS_MIN = 200
"""Every block costs the engine 0.4 ms; below this average a segment is rewritten first."""
BLOCK_ROWS_MAX = 65_536
"""Rows of a block after a rewrite."""


class Record(Protocol):
    """A record, as the core tells of it."""

    @property
    def rows(self) -> int:
        """Rows of its block."""

    @property
    def received_ms(self) -> tuple[int, int]:
        """Earliest and latest ReceivedAt."""


class Scan(Protocol):
    """What the core reads out of a segment."""

    @property
    def epoch(self) -> int:
        """Of the identity that every record and every row carries."""

    @property
    def seq(self) -> int:
        """The same."""

    @property
    def records(self) -> Sequence[Record]:
        """The whole records."""

    @property
    def damage(self) -> Sequence[tuple[int, int, str]]:
        """Offset, length and description of what was promised and cannot be read."""

    @property
    def sealed(self) -> bool:
        """A whole footer closes it: no record is missing at its end."""


class Core(Protocol):
    """The part of the compiled core that knows segments: `receiver.transcode`."""

    def scan(self, segment: bytes, /) -> Scan:
        """Read a segment, whole records only."""

    def rewrite(
        self, segment: bytes, keep: Sequence[tuple[int, int]], codec: str, block_rows_max: int, /
    ) -> bytes:
        """Merge its blocks, keeping only these row ranges."""

    def day_runs(self, segment: bytes, /) -> Sequence[DayRun]:
        """Tell which rows belong to which day."""


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


@dataclass(slots=True)
class Case:
    """One segment, and how far it has come."""

    file: SegmentFile
    rows: int
    received_ms: tuple[int, int]
    in_doubt: bool
    """An INSERT of it may have been applied without our knowing: the companion may have a hole."""
    must_look: bool
    """Count before doing anything else."""
    answered: bool = False
    """An INSERT of the whole answered plainly OK."""
    days_answered: set[str] = field(default_factory=set)
    """Days of which an INSERT of their own did."""
    token: int = 0
    """Of the next INSERT of the whole: it moves on only after a plain OK."""
    day_tokens: Counter[str] = field(default_factory=Counter)
    """The same, for INSERTs of single days."""
    day: str = ""
    """Whose INSERT was sent last; empty: the whole's."""
    days_refused: dict[str, str] = field(default_factory=dict)
    """Days the store will not take alone, and what it says of them."""
    rows_stored: int = 0
    """At the last count."""
    odd_looks: int = 0
    refusals: int = 0
    """How often the store took a row of our own, but not this segment."""
    by_day: bool = False
    """Too many partitions for one INSERT: it goes in day by day."""

    @property
    def held(self) -> Held:
        """How its rows are found in the table."""
        return Held(self.file.id, self.received_ms)

    def token_of_whole(self) -> str:
        """Name the next INSERT of the whole segment."""
        return f"{self.file.id}#{self.token}"

    def token_of_day(self, day: str) -> str:
        """Name the next INSERT of one day: another form of the statement, so never a token of the whole."""
        return f"{self.file.id}@{day}#{self.day_tokens[day]}"


def only_days(
    content: builtins.bytes, days: Collection[str], core: Core, codec: str
) -> tuple[builtins.bytes, int]:
    """Cut a segment down to these days: its content and its rows. Raises what the core says if it cannot."""
    keep = [(first, end) for first, end, day in core.day_runs(content) if spelled(day) in days]
    return core.rewrite(content, keep, codec, BLOCK_ROWS_MAX), sum(end - first for first, end in keep)


def _rewritten(file: SegmentFile, core: Core, content: builtins.bytes, rows: int) -> bool:
    """Merge its blocks and leave out what is damaged. False: the core cannot, and the file is as it was."""
    try:
        merged = core.rewrite(content, [(0, rows)], file.codec, BLOCK_ROWS_MAX)
    except ValueError as reason:
        limited.error("writer: rewrite", f"segment {file.id} cannot be rewritten", why=str(reason))
        return False
    file.replace(merged)
    return True


def opened(
    file: SegmentFile,
    core: Core,
    *,
    in_doubt: bool,
    on_damage: Callable[[SegmentFile, bytes, str, int | None], None],
) -> Case:
    """Read a segment and make its content final. `on_damage` must keep a copy before it returns.

    One that cannot be rewritten is inserted as it is; if it is damaged, the copy is all that is left of it.
    The same holds for the records of another segment, which would never be found under this name.
    """
    content = file.read()
    scan = core.scan(content)
    is_ours = not scan.records or (scan.epoch, scan.seq) == (file.id.epoch, file.id.seq)
    rows = sum(record.rows for record in scan.records) if is_ours else 0
    damage = [text for _, _, text in scan.damage]
    if not scan.sealed:
        damage.append("footer is missing or disagrees; expected a sealed segment")
    if not is_ours:
        damage.append(f"holds records of segment {SegmentId(scan.epoch, scan.seq)}")
    if damage:
        promised = claim_of(content) if scan.sealed else None
        on_damage(file, content, "; ".join(damage), promised.rows - rows if promised else None)
    blocks = sum(1 for record in scan.records if record.rows)
    is_rewritten = is_ours and (damage or (blocks > 1 and rows < blocks * BLOCK_ROWS_MIN))
    if is_rewritten and not _rewritten(file, core, content, rows):
        rows = 0 if damage else rows
    received = [record.received_ms for record in scan.records if record.rows] or [(0, 0)]
    return Case(
        file=file,
        rows=rows,
        received_ms=(min(first for first, _ in received), max(last for _, last in received)),
        in_doubt=in_doubt,
        must_look=in_doubt or not rows,
    )
