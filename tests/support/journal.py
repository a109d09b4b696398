"""What the journal's tests share: a clock that is told the time, one record's way in and out."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from receiver import settings
from receiver.durable.files import DISK, Files
from receiver.journal.appender import Appender
from receiver.journal.frame import answers_of
from receiver.journal.segments import Journal, SegmentFile
from receiver.journal.start import EpochDirectory
from tests.support.record_layout import record

if TYPE_CHECKING:
    from receiver.model import SegmentId

ROOT = Path("/journal")
"""On a `MemoryDisk`."""


class Clock:
    """Seconds that pass when they are told to."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now_s


def limits(**setting_keys: int | str) -> settings.Journal:
    """Journal settings that never stand in a test's way, except where it says so."""
    return msgspec.convert({"disk_free_min": 0, **setting_keys}, settings.Journal)


def appender(
    files: Files = DISK, root: Path = ROOT, clock: Clock | None = None, **setting_keys: int | str
) -> Appender:
    """Start an intake's journal."""
    return Appender(root, limits(**setting_keys), now=clock or Clock(), files=files)


def look_after(journal: Appender) -> None:
    """Do what the committer does again and again."""
    journal.retire_if_due()
    journal.seal_retired()


def append(journal: Appender, name: str, *, rows: int = 1, padding_bytes: int = 0) -> SegmentId:
    """Commit one record that is known by its name."""
    segment = journal.choose()
    content = record(name, epoch=segment.epoch, seq=segment.seq, rows=rows, padding_bytes=padding_bytes)
    journal.append(segment, content, rows)
    return segment


def names_in(found: SegmentFile) -> list[str]:
    """Names of the records of a sealed segment."""
    return [answer.drain for record in found.scan().records for answer in answers_of(record)]


def recovered(files: Files = DISK, root: Path = ROOT) -> list[str]:
    """Names of all records that the writer gets to see."""
    return [name for found in Journal(root, files).sealed() for name in names_in(found)]


def try_to_adopt(directory: Path) -> bool:
    """Try it, in another process."""
    return EpochDirectory.adopt(directory, DISK) is not None
