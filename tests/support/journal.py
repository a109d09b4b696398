"""Support for journal tests: a clock, and functions that append and read back a record."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from receiver import settings
from receiver.durable.files import DISK, Files
from receiver.journal.appender import Appender
from receiver.journal.epoch_directory import EpochDirectory
from receiver.journal.frame import answers_of
from receiver.journal.names import start_name
from receiver.journal.segments import Journal, SegmentFile
from tests.support.clock import Clock
from tests.support.record_layout import record

if TYPE_CHECKING:
    from receiver.model import SegmentId

ROOT = Path("/journal")
"""Journal directory on a `MemoryDisk`."""


def limits(**setting_keys: int | str) -> settings.Journal:
    """Journal settings without limits that a test could reach, unless the test sets them."""
    return msgspec.convert({"disk_free_min": 0, **setting_keys}, settings.Journal)


def appender(
    files: Files = DISK, root: Path = ROOT, clock: Clock | None = None, **setting_keys: int | str
) -> Appender:
    """Start an intake's journal."""
    return Appender(root, limits(**setting_keys), now=clock or Clock(), files=files)


def maintain(journal: Appender) -> None:
    """Retire and seal due segments, as the committer does periodically."""
    journal.retire_if_due()
    journal.seal_retired()


def append(
    journal: Appender, name: str, *, rows: int = 1, padding_bytes: int = 0, is_awaited: bool = False
) -> SegmentId:
    """Commit one record that is identified by its name."""
    segment = journal.choose(is_awaited=is_awaited)
    content = record(name, epoch=segment.epoch, seq=segment.seq, rows=rows, padding_bytes=padding_bytes)
    journal.append(segment, content, rows)
    return segment


def names_in(segment: SegmentFile) -> list[str]:
    """Return the names of the records of a sealed segment."""
    return [answer.drain for record in segment.scan().records for answer in answers_of(record)]


def recovered(files: Files = DISK, root: Path = ROOT) -> list[str]:
    """Return the names of all records that the writer can read."""
    return [name for segment in Journal(root, files).sealed() for name in names_in(segment)]


def files_of(files: Files, journal: Appender) -> list[str]:
    """Return the file names in the epoch directory, without its note."""
    return [name for name in files.names(ROOT / start_name(journal.epoch)) if name != "start"]


def store_oldest(files: Files) -> None:
    """Delete the oldest sealed segment, as the writer does after it stored the rows."""
    Journal(ROOT, files).sealed()[0].unlink()


def try_to_adopt(directory: Path) -> bool:
    """Try to adopt an epoch directory from another process; return whether it succeeded."""
    return EpochDirectory.adopt(directory, DISK) is not None
