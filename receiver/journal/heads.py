"""Backlog reader: lists the deliveries in the journal from the record headers, without the payloads.

The result is sufficient to count spans, but not to store them. Reading a segment stops at a header that is
incomplete, invalid or of another version: at a torn tail, at damage (which the writer reports) or at data of
a newer version.

Invariant: a file that has grown is read only from the end of the last read.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from receiver import transcode
from receiver.durable.files import DISK, open_to_read
from receiver.journal.frame import Answered, decoded
from receiver.journal.names import SEALED, Kind, epoch_of, parse_file_name
from receiver.journal.segment import Place
from receiver.model import SegmentId


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Position up to which a file was read."""

    inode: int
    """Detects a rewritten segment, which is a new file."""
    offset: int = 0


class ReadResult(NamedTuple):
    deliveries: list[Answered]
    position: ReadPosition
    continues_previous: bool
    """Whether only deliveries after the previous position are listed, and not all of the segment."""


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """A segment in the journal that is not stored yet."""

    id: SegmentId
    place: Place

    def read(self, after: ReadPosition | None) -> ReadResult | None:
        """Read the deliveries after this position. Returns `None` if the file was deleted."""
        # The open name first: a file that is sealed meanwhile is then found under its sealed name.
        for kind in (Kind.OPEN, *SEALED):
            with suppress(FileNotFoundError), open_to_read(self.place.path(kind)) as file:
                return self._read(file, after)
        return None

    def _read(self, file: BinaryIO, after: ReadPosition | None) -> ReadResult:
        inode, valid_bytes = os.fstat(file.fileno()).st_ino, self.place.bytes_promised()
        size = file.seek(0, os.SEEK_END)
        # Bytes after the size in the marker were never acknowledged, so they are not counted.
        end = size if valid_bytes is None else min(size, valid_bytes)
        # A rewritten or truncated segment is read from its beginning.
        continues_previous = after is not None and after.inode == inode and after.offset <= end
        offset = after.offset if after is not None and continues_previous else 0
        deliveries: list[Answered] = []
        # The payload is not read, so its end is compared with the size: a torn record does not count.
        while (record := _record_at(file, offset)) is not None and record[1] <= end:
            record_deliveries, offset = record
            deliveries += record_deliveries
        return ReadResult(deliveries, ReadPosition(inode, offset), continues_previous)


def pending_segments(root: Path) -> Iterator[PendingSegment]:
    """Yield each segment once, open or sealed."""
    epochs = [path for path in root.iterdir() if epoch_of(path.name) is not None] if root.is_dir() else []
    for directory in epochs:
        with suppress(FileNotFoundError, NotADirectoryError):
            names = [name for path in directory.iterdir() if (name := parse_file_name(path.name)) is not None]
            # A set, because a listing during a rename may contain both names of a segment.
            for seq in sorted({name.seq for name in names if name.kind in (Kind.OPEN, *SEALED)}):
                yield PendingSegment(
                    SegmentId(epoch_of(directory.name) or 0, seq), Place(directory, seq, DISK)
                )


def _record_at(file: BinaryIO, offset: int) -> tuple[tuple[Answered, ...], int] | None:
    file.seek(offset)
    head = transcode.record_head(file.read(transcode.HEAD_BYTES))
    if head is None:
        return None
    answers_end, length_bytes = head
    try:
        answers = decoded(file.read(answers_end - transcode.HEAD_BYTES))
    # The checksum is not verified, because it covers the payload, so these bytes may be damaged.
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answers, offset + length_bytes
