"""A set of digests that fits: 16 bytes a slot, in memory while it grows, mapped from a file once frozen.

    file:  "TDRW" │ version u32 │ slots u64 │ entries u64 │ first_s f64 │ last_s f64 │ salt 16 bytes
           │ crc32 u32 │ 4 bytes of nothing │ slots, 16 bytes each

Open addressing: a digest lies in its home slot or in the next free one behind it. The home depends on a salt
that nobody outside knows, so that no sender can choose bodies which all want the same slot. Never more than
two thirds are full: an entry costs 24 to 48 bytes.

Keeps: a file that is not what was written is never believed.
"""

from __future__ import annotations

import mmap
import secrets
import struct
import zlib
from pathlib import Path
from typing import Self

from receiver.journal.files import write_durably

DIGEST_BYTES = 16
SLOTS_MIN = 1 << 10
_HALVES = struct.Struct("=QQ")
_HEAD = struct.Struct("<4sIQQdd16sI4x")
_MAGIC = b"TDRW"
_VERSION = 1
_LOW_64 = (1 << 64) - 1


class NotATable(ValueError):  # noqa: N818 - a finding, not an accident
    """The file is not what was once written there."""


class Digests:
    """A set of 16-byte digests: `add`, `in`, `len`."""

    def __init__(
        self, halves: memoryview | None = None, *, entries: int = 0, salt: bytes | None = None
    ) -> None:
        self._halves = _cleared(SLOTS_MIN) if halves is None else halves
        """Two to a slot; the first is 0 in an empty one."""
        self._slot_count = len(self._halves) // 2
        self._entries = entries
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._factor = int.from_bytes(self._salt, "little") | 1

    def __len__(self) -> int:
        return self._entries

    def __contains__(self, digest: bytes) -> bool:
        first, second = _HALVES.unpack(digest)
        return self._halves[self._place_of(first or 1, second)] != 0

    @property
    def held_bytes(self) -> int:
        """What it takes, in memory or on the disk."""
        return self._slot_count * DIGEST_BYTES

    def add(self, digest: bytes) -> None:
        """Put it in; twice is once."""
        first, second = _HALVES.unpack(digest)
        if self._put(first or 1, second):
            self._entries += 1
            if self._entries * 3 > self._slot_count * 2:
                self._grow()

    def write(self, path: Path, *, first_s: float, last_s: float) -> None:
        """Freeze it into a file, durably."""
        told = (_MAGIC, _VERSION, self._slot_count, self._entries, first_s, last_s, self._salt)
        slots = self._halves.cast("B")
        write_durably(path, _HEAD.pack(*told, _checksum(told, zlib.crc32(slots))), slots)

    def _place_of(self, first: int, second: int) -> int:
        """Where it lies, or would."""
        halves = self._halves
        mixed = ((second << 64 | first) * self._factor >> 64) & _LOW_64
        at = mixed % self._slot_count * 2
        while found := halves[at]:
            if found == first and halves[at + 1] == second:
                break
            at += 2
            if at == len(halves):
                at = 0
        return at

    def _put(self, first: int, second: int) -> bool:
        at = self._place_of(first, second)
        if self._halves[at]:
            return False
        self._halves[at], self._halves[at + 1] = first, second
        return True

    def _grow(self) -> None:
        old, self._halves = self._halves, _cleared(2 * self._slot_count)
        self._slot_count *= 2
        for at in range(0, len(old), 2):
            if old[at]:
                self._put(old[at], old[at + 1])


def _cleared(slot_count: int) -> memoryview:
    return memoryview(bytearray(slot_count * DIGEST_BYTES)).cast("Q")


class Frozen(Digests):
    """A set that lies in a file, and when its entries came."""

    def __init__(
        self, halves: memoryview, *, entries: int, salt: bytes, first_s: float, last_s: float
    ) -> None:
        super().__init__(halves, entries=entries, salt=salt)
        self.first_s = first_s
        self.last_s = last_s

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
        *told, checksum = _HEAD.unpack_from(mapped)
        slots = memoryview(mapped)[_HEAD.size :]
        sound = checksum == _checksum(tuple(told), zlib.crc32(slots))
        if not sound or told[:2] != [_MAGIC, _VERSION] or len(slots) != told[2] * DIGEST_BYTES:
            raise NotATable("checksum or length disagrees; expected a table of digests")
        _, _, _, entries, first_s, last_s, salt = told
        return cls(slots.cast("Q"), entries=entries, salt=salt, first_s=first_s, last_s=last_s)


def _checksum(told: tuple[object, ...], of_slots: int) -> int:
    return zlib.crc32(_HEAD.pack(*told, 0), of_slots)
