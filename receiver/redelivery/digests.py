"""Sets of digests with 16 bytes per slot: in memory while they grow, mapped from a file once they are frozen.

    file:  "TDRW" │ version u32 │ slots u64 │ entries u64 │ first_s f64 │ last_s f64 │ salt 16 bytes
           │ crc32 u32 │ 4 bytes unused │ slots, 16 bytes each

The Rust core decides which digest goes into which slot (`transcode/src/digests.rs`). For a frozen set, one
tag byte per slot is kept in memory; a slot is read only if its tag matches.

Invariant: a file whose checksum is wrong is never used.
"""

from __future__ import annotations

import mmap
import secrets
import struct
import zlib
from pathlib import Path
from typing import NamedTuple, Self

from receiver import transcode
from receiver.durable.files import open_to_read, write_durably
from receiver.settings import MIB

DIGEST_BYTES = 16
_HEAD = struct.Struct("<4sIQQdd16sI4x")
_MAGIC = b"TDRW"
_VERSION = 2
_PIECE_BYTES = MIB
"""Size of the pieces in which a table is read, so that memory holds its tags but never the whole file."""


class NotATable(ValueError):  # noqa: N818 - an expected result, not a fault
    """Raised when a file is not a complete, undamaged table of digests."""


class Header(NamedTuple):
    """Fields of a table file's header, without magic, version, slot count and checksum."""

    entries: int
    first_s: float
    last_s: float
    salt: bytes


class GrowingTable:
    """Growing set of digests, in memory."""

    def __init__(self) -> None:
        # A fresh salt for each table, so that no sender can choose digests that all fall into the same slot.
        self._salt = secrets.token_bytes(16)
        self._set = transcode.Digests(self._salt)

    def __len__(self) -> int:
        return len(self._set)

    def add(self, digests: bytes) -> None:
        """Add digests. Adding a digest again has no effect."""
        self._set.add(digests)

    def known(self, digests: bytes) -> list[int]:
        return self._set.known(digests)

    def write(self, path: Path, *, first_s: float, last_s: float) -> None:
        """Write the set to a table file, durably."""
        _write(path, Header(len(self), first_s, last_s, self._salt), self._set.slots())


class FrozenTable:
    """Immutable set of digests, in a mapped file."""

    def __init__(self, header: Header, slots: memoryview) -> None:
        self.header = header
        self._slots = slots
        self._tags = transcode.DigestTags(header.salt)
        for at in range(0, len(slots), _PIECE_BYTES):
            self._tags.extend(bytes(slots[at : at + _PIECE_BYTES]))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file that `write` created. Raises `NotATable`."""
        # A mapping outlives its descriptor, and the kernel may drop its pages when memory is short.
        with open_to_read(path) as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as error:
                raise NotATable("file is empty; expected a table of digests") from error
        if len(mapped) < _HEAD.size:
            raise NotATable(f"file has {len(mapped)} bytes; expected a table of digests")
        magic, version, slot_count, *rest, checksum = _HEAD.unpack_from(mapped)
        header, slots = Header(*rest), memoryview(mapped)[_HEAD.size :]
        if (magic, version) != (_MAGIC, _VERSION):
            raise NotATable(f"magic or version is wrong; expected a table of digests of version {_VERSION}")
        # The checksum reads the whole file once, at start; lookups can then rely on every slot.
        if slot_count * DIGEST_BYTES != len(slots) or checksum != _checksum(header, slots):
            raise NotATable("checksum or length is wrong; expected a table of digests")
        return cls(header, slots)

    def __len__(self) -> int:
        return self.header.entries

    def known(self, digests: bytes) -> list[int]:
        return self._tags.known(digests, self._is_in_slot)

    def write(self, path: Path) -> None:
        """Write the file again durably, after it was removed."""
        _write(path, self.header, self._slots)

    def _is_in_slot(self, slot: int, digest: bytes) -> bool:
        return self._slots[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] == digest


def _write(path: Path, header: Header, slots: bytes | memoryview) -> None:
    write_durably(path, _encode_header(header, slots, _checksum(header, slots)), slots)


def _checksum(header: Header, slots: bytes | memoryview) -> int:
    # The header's own checksum field counts as 0, because its value is not known yet.
    return zlib.crc32(_encode_header(header, slots, 0), zlib.crc32(slots))


def _encode_header(header: Header, slots: bytes | memoryview, checksum: int) -> bytes:
    return _HEAD.pack(_MAGIC, _VERSION, len(slots) // DIGEST_BYTES, *header, checksum)
