"""Backlog reader: reads which deliveries wait in the journal from record headers, without the payloads.

Good enough to count waiting spans, not to store them. Reading a segment stops at a header that is incomplete,
invalid or of another version: a torn tail, damage (which the writer reports) or data for a newer version.

Invariant: a file that has grown is read from where the last read ended.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from receiver.durable.files import DISK
from receiver.journal.frame import Answered, decoded
from receiver.journal.names import SEALED, Kind, epoch_of, parse_file_name
from receiver.journal.newer import VERSION
from receiver.journal.segment import Place
from receiver.model import SegmentId

_PREFIX = struct.Struct("<II")
_HEAD = struct.Struct("<4sHHQIIQQqqQ")
_RECORD_MAGIC = 0x184D2A54
_HEAD_MAGIC = b"TDRJ"


@dataclass(frozen=True, slots=True)
class ReadPosition:
    """Position up to which a file was read."""

    inode: int
    """Detects a rewritten segment, which is a new file."""
    offset: int = 0


class ReadResult(NamedTuple):
    """Deliveries read from a segment."""

    deliveries: list[Answered]
    position: ReadPosition
    continues_previous: bool
    """True: the deliveries are those after the previous position. False: they are all of the segment."""


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """A segment in the journal that is not stored yet."""

    id: SegmentId
    place: Place

    def read(self, after: ReadPosition | None) -> ReadResult | None:
        """Read the deliveries after this position. `None`: the file was deleted."""
        for kind in (Kind.OPEN, *SEALED):
            with suppress(FileNotFoundError), self.place.path(kind).open("rb") as file:
                return self._read(file, after)
        return None

    def _read(self, file: BinaryIO, after: ReadPosition | None) -> ReadResult:
        inode, valid_bytes = os.fstat(file.fileno()).st_ino, self.place.bytes_promised()
        size = file.seek(0, os.SEEK_END)
        end = size if valid_bytes is None else min(size, valid_bytes)
        continues_previous = after is not None and after.inode == inode and after.offset <= end
        offset = after.offset if after is not None and continues_previous else 0
        deliveries: list[Answered] = []
        while (record := _record_at(file, offset)) is not None and record[1] <= end:
            record_deliveries, offset = record
            deliveries += record_deliveries
        return ReadResult(deliveries, ReadPosition(inode, offset), continues_previous)


def pending_segments(root: Path) -> Iterator[PendingSegment]:
    """Yield each segment once, open or sealed."""
    epochs = [path for path in root.iterdir() if epoch_of(path.name) is not None] if root.is_dir() else []
    for directory in epochs:
        with suppress(FileNotFoundError):
            names = [name for path in directory.iterdir() if (name := parse_file_name(path.name)) is not None]
            for seq in sorted({name.seq for name in names if name.kind in (Kind.OPEN, *SEALED)}):
                yield PendingSegment(
                    SegmentId(epoch_of(directory.name) or 0, seq), Place(directory, seq, DISK)
                )


def _record_at(file: BinaryIO, offset: int) -> tuple[tuple[Answered, ...], int] | None:
    file.seek(offset)
    start = file.read(_PREFIX.size + _HEAD.size)
    if len(start) < _PREFIX.size + _HEAD.size:
        return None
    magic, frame_bytes = _PREFIX.unpack_from(start)
    name, version, _, payload_bytes, _, answers_bytes, *_ = _HEAD.unpack_from(start, _PREFIX.size)
    is_ours = (magic, name, version) == (_RECORD_MAGIC, _HEAD_MAGIC, VERSION)
    if not is_ours or frame_bytes < _HEAD.size + answers_bytes:
        return None
    try:
        answers = decoded(file.read(answers_bytes))
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None
    return answers, offset + _PREFIX.size + frame_bytes + payload_bytes
