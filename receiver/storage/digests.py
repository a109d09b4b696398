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

from receiver.storage.dead import write_durably

DIGEST_BYTES = 16
SLOTS_MIN = 1 << 10
_EMPTY = bytes(DIGEST_BYTES)
_ZERO = bytes(DIGEST_BYTES - 1) + b"\x01"
"""What stands for the digest that looks like an empty slot."""
_HEAD = struct.Struct("<4sIQQdd16sI4x")
_MAGIC = b"TDRW"
_VERSION = 1
_LOW_64 = (1 << 64) - 1


class NotATable(ValueError):  # noqa: N818 - a finding, not an accident
    """The file is not what was once written there."""


class Digests:
    """A set of 16-byte digests: `add`, `in`, `len`."""

    def __init__(
        self,
        slots: bytearray | mmap.mmap | None = None,
        *,
        entries: int = 0,
        salt: bytes | None = None,
        base: int = 0,
    ) -> None:
        self._slots: bytearray | mmap.mmap = bytearray(SLOTS_MIN * DIGEST_BYTES) if slots is None else slots
        self._base = base
        self._slot_count = (len(self._slots) - base) // DIGEST_BYTES
        self._entries = entries
        self._salt = secrets.token_bytes(16) if salt is None else salt
        self._factor = int.from_bytes(self._salt, "little") | 1

    def __len__(self) -> int:
        return self._entries

    def __contains__(self, digest: bytes) -> bool:
        at = self._place_of(digest)
        return self._slots[at : at + DIGEST_BYTES] != _EMPTY

    @property
    def held_bytes(self) -> int:
        """What it takes, in memory or on the disk."""
        return self._slot_count * DIGEST_BYTES

    def add(self, digest: bytes) -> None:
        """Put it in; twice is once."""
        at = self._place_of(digest)
        if self._slots[at : at + DIGEST_BYTES] != _EMPTY:
            return
        self._slots[at : at + DIGEST_BYTES] = _ZERO if digest == _EMPTY else digest
        self._entries += 1
        if self._entries * 3 > self._slot_count * 2:
            self._grow()

    def write(self, path: Path, *, first_s: float, last_s: float) -> None:
        """Freeze it into a file, durably."""
        checksum = zlib.crc32(self._slots)
        told = (_MAGIC, _VERSION, self._slot_count, self._entries, first_s, last_s, self._salt)
        write_durably(path, _HEAD.pack(*told, _checksum(told, checksum)), self._slots)

    def _place_of(self, digest: bytes) -> int:
        """Where it lies, or would."""
        slots, base, end = self._slots, self._base, self._base + self._slot_count * DIGEST_BYTES
        wanted = _ZERO if digest == _EMPTY else digest
        mixed = int.from_bytes(wanted, "little") * self._factor >> 64 & _LOW_64
        at = base + mixed % self._slot_count * DIGEST_BYTES
        while True:
            found = slots[at : at + DIGEST_BYTES]
            if found in (wanted, _EMPTY):
                return at
            at += DIGEST_BYTES
            if at == end:
                at = base

    def _grow(self) -> None:
        old, self._slots = self._slots, bytearray(2 * self._slot_count * DIGEST_BYTES)
        self._slot_count *= 2
        for start in range(0, len(old), DIGEST_BYTES):
            digest = bytes(old[start : start + DIGEST_BYTES])
            if digest != _EMPTY:
                at = self._place_of(digest)
                self._slots[at : at + DIGEST_BYTES] = digest


class Frozen(Digests):
    """A set that lies in a file, and when its entries came."""

    def __init__(
        self, mapped: mmap.mmap, *, entries: int, salt: bytes, first_s: float, last_s: float
    ) -> None:
        super().__init__(mapped, entries=entries, salt=salt, base=_HEAD.size)
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
        with memoryview(mapped) as whole, whole[_HEAD.size :] as slots:
            sound = checksum == _checksum(tuple(told), zlib.crc32(slots))
            sound = sound and len(slots) == told[2] * DIGEST_BYTES
        if not sound or told[:2] != [_MAGIC, _VERSION]:
            raise NotATable("checksum or length disagrees; expected a table of digests")
        _, _, _, entries, first_s, last_s, salt = told
        return cls(mapped, entries=entries, salt=salt, first_s=first_s, last_s=last_s)


def _checksum(told: tuple[object, ...], of_slots: int) -> int:
    return zlib.crc32(_HEAD.pack(*told, 0), of_slots)
