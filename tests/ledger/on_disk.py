"""A ledger on a simulated disk."""

from __future__ import annotations

from pathlib import Path

from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import Counts
from receiver.model import Heading, SegmentId
from receiver.settings import Ledger as Limits
from tests.support.memory_disk import MemoryDisk

ROOT = Path("/data/ledger")
HOUR = 500_000
PLACE = Heading("d", "p", HOUR)


def new_disk() -> MemoryDisk:
    """Return a disk with an empty data directory."""
    disk = MemoryDisk()
    disk.make_directory(ROOT.parent)
    disk.sync_directory(Path("/"))
    return disk


def open_ledger(disk: MemoryDisk, *, is_first: bool = True) -> Ledger:
    return Ledger(ROOT, Limits(), lambda: HOUR * 3_600.0, is_first=is_first, files=disk)


def segment(seq: int) -> SegmentId:
    return SegmentId(7, seq)


def total(lines: dict[Heading, Counts]) -> Counts:
    """Return the sum of all lines."""
    result = Counts()
    for counts in lines.values():
        result = result.plus(counts)
    return result
