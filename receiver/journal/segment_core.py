"""Interface to the compiled core for whole segments: scan, rewrite, rows by day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

BLOCK_ROWS_MAX = 65_536
"""Maximum number of rows in a block after a rewrite."""

RowRange = tuple[int, int]
"""First row, and the row after the last row."""
DayRun = tuple[int, int, int, int]
"""Adjacent rows of a day and a shard: first row, row after the last, days since 1970, number of the shard.

Without a cluster the shard is 0.
"""
NewIdentity = tuple[int, int, bool]
"""Identity of a rewritten segment: epoch, sequence number, whether it keeps the list of deliveries."""


class Record(Protocol):
    @property
    def offset(self) -> int:
        """Offset of the record in the segment."""

    @property
    def rows(self) -> int:
        """Number of rows in its block."""

    @property
    def received_ms(self) -> tuple[int, int]:
        """Earliest and latest ReceivedAt."""

    @property
    def answers(self) -> bytes:
        """Encoded deliveries that the record acknowledges."""


class Scan(Protocol):
    """Result of scanning a segment."""

    @property
    def epoch(self) -> int:
        """Epoch of the segment, from the identity in every record and every row."""

    @property
    def seq(self) -> int:
        """Sequence number of the segment, from the same identity."""

    @property
    def records(self) -> Sequence[Record]:
        """Complete records."""

    @property
    def damage(self) -> Sequence[tuple[int, int, str]]:
        """Offset, length and description of each unreadable range before the end of valid data."""

    @property
    def sealed(self) -> bool:
        """Whether a complete footer ends the segment, so that no record is missing at its end."""


class Core(Protocol):
    """Functions of the compiled core that read and rewrite segments. `receiver.transcode` provides them."""

    def scan(self, segment: bytes, /) -> Scan:
        """Read the complete records of a segment."""

    def rewrite(
        self,
        segment: bytes,
        keep: Sequence[RowRange],
        codec: str,
        block_rows_max: int,
        identity: NewIdentity | None = None,
        /,
    ) -> bytes:
        """Merge the blocks of a segment, keeping only these row ranges; with a new identity, if given."""

    def day_runs(self, segment: bytes, shards: int, /) -> Sequence[DayRun]:
        """Return the runs of rows of the same day and of the same of `shards` shards (0: no cluster)."""
