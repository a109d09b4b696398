"""Special tables of digests: tables of version 1, and digests chosen to collide."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path
from random import Random

from receiver.redelivery.digests import FrozenTable, GrowingTable

SLOTS = 4_096
SALT = bytes(range(16))
RANDOM = Random(7)


def random_digests(count: int) -> list[bytes]:
    return [RANDOM.randbytes(16) for _ in range(count)]


def version_1_table(digests: list[bytes]) -> bytes:
    """Return a table as version 1 wrote it."""
    factor = int.from_bytes(SALT, "little") | 1
    slots = [bytes(16)] * SLOTS
    for digest in digests:
        at = (int.from_bytes(digest, "little") * factor >> 64) % (1 << 64) % SLOTS
        while any(slots[at]):
            at = (at + 1) % SLOTS
        slots[at] = digest
    head = struct.Struct("<4sIQQdd16sI4x")
    fields, content = (b"TDRW", 1, SLOTS, len(digests), 1.0, 2.0, SALT), b"".join(slots)
    return head.pack(*fields, zlib.crc32(head.pack(*fields, 0), zlib.crc32(content))) + content


def test_version_1_table_is_read_and_rewritten_unchanged(tmp_path: Path) -> None:
    stored, others = random_digests(2_700), random_digests(2_700)
    path, again = tmp_path / "table", tmp_path / "again"
    path.write_bytes(version_1_table(stored))

    frozen = FrozenTable.open(path)
    frozen.write(again)

    assert frozen.known(b"".join(stored)) == list(range(len(stored)))
    assert frozen.known(b"".join(others)) == []
    assert again.read_bytes() == path.read_bytes()


class SlotReadCounter(FrozenTable):
    """Frozen table that counts slot reads."""

    slot_reads = 0

    def _is_in_slot(self, slot: int, digest: bytes) -> bool:
        self.slot_reads += 1
        return super()._is_in_slot(slot, digest)


def test_similar_digests_cost_no_more_slot_reads_than_random_ones(tmp_path: Path) -> None:
    """The first twelve bytes are equal: version 1 would hash all of these digests to the same slot.

    The tests in `transcode/src/digests.rs` check the distribution over the slots.
    """
    count = 2_000
    stored = b"".join(b"alike, alike" + number.to_bytes(4, "big") for number in range(count))
    fresh = GrowingTable()
    fresh.add(stored)
    fresh.write(tmp_path / "table", first_s=1.0, last_s=2.0)
    frozen = SlotReadCounter.open(tmp_path / "table")

    assert fresh.known(stored) == frozen.known(stored) == list(range(count))
    assert count <= frozen.slot_reads < 1.1 * count
