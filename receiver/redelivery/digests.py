"""Sets of digests that fit: 16 bytes a slot, in memory while one grows, mapped from a file once frozen.

    file:  "TDRW" │ version u32 │ slots u64 │ entries u64 │ first_s f64 │ last_s f64 │ salt 16 bytes
           │ crc32 u32 │ 4 bytes of nothing │ slots, 16 bytes each

What lies in which slot is the core's business (`transcode/src/digests.rs`). Of a frozen set a byte a slot is
kept in memory; a slot is looked at only where that byte fits.

Keeps: a file that is not what was written is never believed.
"""

from __future__ import annotations

import mmap
import secrets
import struct
import zlib
from pathlib import Path
from typing import NamedTuple, Self

from receiver import transcode
from receiver.durable.files import write_durably
from receiver.settings import MIB

DIGEST_BYTES = 16
_HEAD = struct.Struct("<4sIQQdd16sI4x")
_MAGIC = b"TDRW"
_MIXED_ONCE, _VERSION = 1, 2
"""The first version found home slots otherwise: in one of its tables digests are looked for as it did."""
_PIECE_BYTES = MIB
"""Of a file that is read: a table of any size takes no more memory than its tags."""


class NotATable(ValueError):  # noqa: N818 - a finding, not an accident
    """The file is not what was once written there."""


class Told(NamedTuple):
    """What a head says of the set behind it."""

    version: int
    entries: int
    first_s: float
    last_s: float
    salt: bytes


class Fresh:
    """A set that grows."""

    def __init__(self) -> None:
        self._salt = secrets.token_bytes(16)
        self._set = transcode.Digests(self._salt)

    def __len__(self) -> int:
        return len(self._set)

    def add(self, digests: bytes) -> None:
        """Put these in; twice is once."""
        self._set.add(digests)

    def known(self, digests: bytes) -> list[int]:
        """Tell which of these are in it, by number."""
        return self._set.known(digests)

    def write(self, path: Path, *, first_s: float, last_s: float) -> None:
        """Freeze it into a file, durably."""
        _write(path, Told(_VERSION, len(self), first_s, last_s, self._salt), self._set.slots())


class Frozen:
    """A set that lies in a file."""

    def __init__(self, told: Told, slots: memoryview) -> None:
        self.told = told
        self._slots = slots
        self._tags = transcode.DigestTags(told.salt, mixed_once=told.version == _MIXED_ONCE)
        for at in range(0, len(slots), _PIECE_BYTES):
            self._tags.extend(bytes(slots[at : at + _PIECE_BYTES]))

    @classmethod
    def open(cls, path: Path) -> Self:
        """Map a file that `write` left. Raises `NotATable`."""
        with path.open("rb") as file:
            try:
                mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
            except ValueError as reason:
                raise NotATable("file is empty; expected a table of digests") from reason
        if len(mapped) < _HEAD.size:
            raise NotATable(f"file has {len(mapped)} bytes; expected a table of digests")
        magic, version, slot_count, *rest, checksum = _HEAD.unpack_from(mapped)
        told, slots = Told(version, *rest), memoryview(mapped)[_HEAD.size :]
        is_ours = (magic, slot_count * DIGEST_BYTES) == (_MAGIC, len(slots))
        is_readable = is_ours and version in (_MIXED_ONCE, _VERSION)
        if not is_readable or checksum != _checksum(told, slots):
            raise NotATable("checksum or length disagrees; expected a table of digests")
        return cls(told, slots)

    def __len__(self) -> int:
        return self.told.entries

    def known(self, digests: bytes) -> list[int]:
        """Tell which of these are in it, by number."""
        return self._tags.known(digests, self._lies_at)

    def write(self, path: Path) -> None:
        """Write it once more, durably: somebody took it away."""
        _write(path, self.told, self._slots)

    def _lies_at(self, slot: int, digest: bytes) -> bool:
        return self._slots[slot * DIGEST_BYTES : (slot + 1) * DIGEST_BYTES] == digest


def _write(path: Path, told: Told, slots: bytes | memoryview) -> None:
    write_durably(path, _head(told, slots, _checksum(told, slots)), slots)


def _checksum(told: Told, slots: bytes | memoryview) -> int:
    return zlib.crc32(_head(told, slots, 0), zlib.crc32(slots))


def _head(told: Told, slots: bytes | memoryview, checksum: int) -> bytes:
    version, *rest = told
    return _HEAD.pack(_MAGIC, version, len(slots) // DIGEST_BYTES, *rest, checksum)
