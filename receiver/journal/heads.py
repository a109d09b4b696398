"""What segments answer for, read from the heads of their records alone: payloads are skipped, not verified.

Enough to count what waits, not to store it. A head that is not whole, is none or is of another version ends
the reading: a torn tail, rot, which the writer meets and tells of, or what is left for the version it is of.

Keeps: a file that grows is read on from where it was left.
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
    """How far a file was read."""

    inode: int
    """A rewritten segment is another file."""
    offset: int = 0


class ReadResult(NamedTuple):
    """What was read of a segment."""

    deliveries: list[Answered]
    mark: ReadPosition
    continues_previous: bool
    """They come on top of what was read before; else they are all there is."""


@dataclass(frozen=True, slots=True)
class PendingSegment:
    """A segment that lies in the journal."""

    id: SegmentId
    place: Place

    def read(self, mark: ReadPosition | None) -> ReadResult | None:
        """Read what it answers for behind the mark. `None`: the file is gone."""
        for kind in (Kind.OPEN, *SEALED):
            with suppress(FileNotFoundError), self.place.path(kind).open("rb") as file:
                return self._read(file, mark)
        return None

    def _read(self, file: BinaryIO, mark: ReadPosition | None) -> ReadResult:
        inode, promised = os.fstat(file.fileno()).st_ino, self.place.bytes_promised()
        size = file.seek(0, os.SEEK_END)
        behind = size if promised is None else min(size, promised)
        continues_previous = mark is not None and mark.inode == inode and mark.offset <= behind
        offset = mark.offset if mark is not None and continues_previous else 0
        found: list[Answered] = []
        while (record := _record_at(file, offset)) is not None and record[1] <= behind:
            answers, offset = record
            found += answers
        return ReadResult(found, ReadPosition(inode, offset), continues_previous)


def pending_segments(root: Path) -> Iterator[PendingSegment]:
    """Every segment, once each, whatever it is called now."""
    starts = [path for path in root.iterdir() if epoch_of(path.name) is not None] if root.is_dir() else []
    for directory in starts:
        with suppress(FileNotFoundError):
            named = [one for path in directory.iterdir() if (one := parse_file_name(path.name)) is not None]
            for seq in sorted({one.seq for one in named if one.kind in (Kind.OPEN, *SEALED)}):
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
