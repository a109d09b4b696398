"""Tests of the lazy journal, which opens once a disk that was full at the start has space."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from receiver.errors import JournalFull
from receiver.intake.run import NOT_OPEN, LazyJournal
from receiver.journal.appender import Appender
from receiver.model import SegmentId
from receiver.settings import Journal
from tests.support.clock import Clock
from tests.support.memory_disk import MemoryDisk

ROOT = Path("/journal")


def lazy_journal(disk: MemoryDisk, clock: Clock) -> LazyJournal:
    limits = Journal(disk_free_min=0)
    return LazyJournal(lambda: Appender(ROOT, limits, now=clock, files=disk), clock)


@pytest.mark.parametrize("call", ["make_directory", "create", "write", "sync"])
def test_journal_is_opened_once_a_full_disk_has_space(call: str) -> None:
    disk, clock = MemoryDisk(), Clock()
    disk.fail(call, code=errno.ENOSPC, times=2)

    journal = lazy_journal(disk, clock)
    before = (journal.full_reason(), journal.trouble)
    clock.now_s += 1
    journal.retire_if_due()
    after_a_second = journal.full_reason()
    clock.now_s += 1
    journal.retire_if_due()
    segment = journal.choose()
    journal.append(segment, b"record", 1)

    assert before[0] == after_a_second == NOT_OPEN
    assert os.strerror(errno.ENOSPC) in before[1]
    assert (journal.full_reason(), journal.trouble) == (None, "")


def test_failed_open_is_retried_at_intervals() -> None:
    disk, clock = MemoryDisk(), Clock()
    disk.fail("make_directory", code=errno.ENOSPC)

    journal = lazy_journal(disk, clock)
    journal.retire_if_due()

    assert journal.full_reason() == NOT_OPEN
    assert not journal.is_stored(SegmentId(1, 0))
    with pytest.raises(JournalFull):
        journal.choose()
    journal.close()
