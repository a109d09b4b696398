"""Special tables of digests: tables of other versions, and digests chosen to collide."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import pytest

from receiver.redelivery.digests import FrozenTable, GrowingTable, NotATable


@pytest.mark.parametrize("version", [1, 3])
def test_table_of_another_version_is_refused(version: int, tmp_path: Path) -> None:
    head = struct.Struct("<4sIQQdd16sI4x")
    fields = (b"TDRW", version, 0, 0, 1.0, 2.0, bytes(16))
    checksum = zlib.crc32(head.pack(*fields, 0))
    (tmp_path / "table").write_bytes(head.pack(*fields, checksum))

    with pytest.raises(NotATable, match="version is wrong; expected a table of digests of version 2"):
        FrozenTable.open(tmp_path / "table")


class SlotReadCounter(FrozenTable):
    """Frozen table that counts slot reads."""

    slot_reads = 0

    def _is_in_slot(self, slot: int, digest: bytes) -> bool:
        self.slot_reads += 1
        return super()._is_in_slot(slot, digest)


def test_similar_digests_need_no_more_slot_reads_than_random_digests(tmp_path: Path) -> None:
    """The first twelve bytes are equal: a weaker hash would map all of these digests to the same slot.

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
