"""What a move reads: the source, and the segments that are not finished.

Never: opens a store or knows how a running receiver is reached; the command does.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import orjson

from receiver.durable.files import DISK
from receiver.engine.copying import Pieces, Read, named_pieces
from receiver.engine.store import Store
from receiver.errors import CommandFailed, StoreTrouble
from receiver.journal.heads import pending_segments
from receiver.journal.names import epoch_of
from receiver.model import SegmentId

Row = dict[str, Any]


class MoveSource(Protocol):
    """The embedded store: opened by the command, or behind the API of a running receiver."""

    def lines(self, read: Read) -> list[Row]: ...

    def arrow(self, read: Read) -> Iterator[bytes]:
        """Yield an Arrow stream. Raises if its end is missing."""


class OpenStore:
    """Source that this process has open."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def lines(self, read: Read) -> list[Row]:
        try:
            return lines_of(self._store, read)
        except StoreTrouble as trouble:
            raise _source_failed(trouble) from trouble

    def arrow(self, read: Read) -> Iterator[bytes]:
        try:
            yield from read.run(self._store)
        except StoreTrouble as trouble:
            raise _source_failed(trouble) from trouble


def lines_of(store: Store, read: Read) -> list[Row]:
    """Return the lines that a store answers a read with."""
    return [orjson.loads(line) for piece in read.run(store) for line in piece.splitlines()]


def pieces_in(lines: list[Row]) -> Pieces:
    """Return the rows of each piece, from the lines of a read of segments."""
    return named_pieces(
        (line["shard"], line["epoch"], line["seq"], line["rows"], line["checksum"]) for line in lines
    )


class UnfinishedSegments(NamedTuple):
    """Segments whose rows the writer may still insert or insert again, into either store."""

    segments: frozenset[SegmentId]
    epochs: frozenset[int]
    """Epochs of the pieces of split segments."""

    def holds(self, segment: SegmentId) -> bool:
        return segment in self.segments or segment.epoch in self.epochs


def unfinished_segments(data_dir: Path) -> UnfinishedSegments:
    """List the segments in the journal of a data directory, and the epochs of pieces."""
    splits = data_dir / "splits"
    # SEGMENT.EPOCH.json; not `glob`, which returns nothing for a directory that it may not read.
    parts = [name.split(".") for name in (DISK.names(splits) if splits.exists() else ())]
    epochs = (epoch_of(part[1]) for part in parts if len(part) > 1)
    return UnfinishedSegments(
        frozenset(pending.id for pending in pending_segments(data_dir / "journal")),
        frozenset(epoch for epoch in epochs if epoch is not None),
    )


def _source_failed(trouble: StoreTrouble) -> CommandFailed:
    return CommandFailed(f"the embedded store cannot be read: {trouble.label}")
