"""Tests of the epoch directory: its note, its id, and its removal."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from receiver.journal.appender import Appender
from receiver.journal.epoch_directory import EpochDirectory, EpochNote, draw_epoch, note_of
from receiver.journal.names import start_name
from tests.support.journal import ROOT, append
from tests.support.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from pathlib import Path


def test_closed_epoch_keeps_its_note_while_segments_are_pending(files: MemoryDisk, journal: Appender) -> None:
    append(journal, "a")

    journal.close()

    assert files.names(ROOT / start_name(journal.epoch)) == ["0000000000.native.lz4", "start"]


def test_epoch_ids_have_64_random_bits() -> None:
    drawn = [draw_epoch() for _ in range(64)]

    assert len(set(drawn)) == 64
    assert 1 << 56 < max(drawn) < 1 << 64


@pytest.mark.parametrize("torn", [b"", b'{"pid": 1', b"\x00\x00", b"[]"])
def test_torn_note_reads_as_empty(files: MemoryDisk, torn: bytes) -> None:
    files.make_directory(ROOT)
    fd = files.create(ROOT / "start")
    files.write(fd, memoryview(torn), 0)

    assert note_of(ROOT, files) == EpochNote()


def test_epoch_directory_counts_as_present_if_the_disk_check_fails() -> None:
    class FailingDisk(MemoryDisk):
        """Disk whose check of a path fails on demand."""

        is_failing = False

        def is_at(self, fd: int, path: Path) -> bool:
            if self.is_failing:
                raise OSError(errno.EIO, "Input/output error")
            return super().is_at(fd, path)

    files = FailingDisk()
    start = EpochDirectory.create(ROOT, files)
    files.is_failing = True

    assert not start.is_gone()
