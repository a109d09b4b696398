"""Tables of digests that are not ordinary: the first version's, and of digests that somebody chose."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

from receiver.redelivery.digests import FrozenTable, GrowingTable

SLOTS = 4_096
SALT = bytes(range(16))
RANDOM = Random(7)


def some(count: int) -> list[bytes]:
    return [RANDOM.randbytes(16) for _ in range(count)]


def first_version(digests: list[bytes]) -> bytes:
    """A table as the first version wrote it."""
    factor = int.from_bytes(SALT, "little") | 1
    slots = [bytes(16)] * SLOTS
    for digest in digests:
        at = (int.from_bytes(digest, "little") * factor >> 64) % (1 << 64) % SLOTS
        while any(slots[at]):
            at = (at + 1) % SLOTS
        slots[at] = digest
    head = struct.Struct("<4sIQQdd16sI4x")
    told, content = (b"TDRW", 1, SLOTS, len(digests), 1.0, 2.0, SALT), b"".join(slots)
    return head.pack(*told, zlib.crc32(head.pack(*told, 0), zlib.crc32(content))) + content


def test_version_1_table_is_read_and_rewritten_unchanged(tmp_path: Path) -> None:
    put, others = some(2_700), some(2_700)
    path, again = tmp_path / "table", tmp_path / "again"
    path.write_bytes(first_version(put))

    frozen = FrozenTable.open(path)
    frozen.write(again)

    assert frozen.known(b"".join(put)) == list(range(len(put)))
    assert frozen.known(b"".join(others)) == []
    assert again.read_bytes() == path.read_bytes()


class Watched(FrozenTable):
    """Counts how often a slot is looked at."""

    looks = 0

    def _is_in_slot(self, slot: int, digest: bytes) -> bool:
        self.looks += 1
        return super()._is_in_slot(slot, digest)


def test_similar_digests_cost_no_more_slot_reads_than_random_ones(tmp_path: Path) -> None:
    """Alike in their first twelve bytes: in the first version's tables all of them want the same slot.

    That they have homes of their own is seen where these are: `transcode/src/digests.rs`.
    """
    count = 2_000
    put = b"".join(b"alike, alike" + number.to_bytes(4, "big") for number in range(count))
    fresh = GrowingTable()
    fresh.add(put)
    fresh.write(tmp_path / "table", first_s=1.0, last_s=2.0)
    frozen = Watched.open(tmp_path / "table")

    assert fresh.known(put) == frozen.known(put) == list(range(count))
    assert count <= frozen.looks < 1.1 * count
