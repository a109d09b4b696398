"""The directory of one start: whose it is, and what is left of it."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING

import pytest

from receiver.journal.names import start_name
from receiver.journal.start import EpochDirectory, Note, draw_epoch, note_of
from tests.support.journal import ROOT, append, appender
from tests.support.memory_disk import MemoryDisk

if TYPE_CHECKING:
    from pathlib import Path


def test_a_start_that_is_left_keeps_its_note_while_segments_wait() -> None:
    files = MemoryDisk()
    journal = appender(files)
    append(journal, "a")

    journal.close()

    assert files.names(ROOT / start_name(journal.epoch)) == ["0000000000.native.lz4", "start"]


def test_starts_are_drawn_from_64_bits() -> None:
    drawn = [draw_epoch() for _ in range(64)]

    assert len(set(drawn)) == 64
    assert 1 << 56 < max(drawn) < 1 << 64


@pytest.mark.parametrize("torn", [b"", b'{"pid": 1', b"\x00\x00", b"[]"])
def test_a_torn_note_is_nobody(torn: bytes) -> None:
    files = MemoryDisk()
    files.make_directory(ROOT)
    fd = files.create(ROOT / "start")
    files.write(fd, memoryview(torn), 0)

    assert note_of(ROOT, files) == Note()


def test_a_disk_that_does_not_say_whether_a_start_is_there_takes_it_from_nobody() -> None:
    class Silent(MemoryDisk):
        """Tells who lies where, until it does not."""

        is_silent = False

        def is_at(self, fd: int, path: Path) -> bool:
            if self.is_silent:
                raise OSError(errno.EIO, "Input/output error")
            return super().is_at(fd, path)

    files = Silent()
    start = EpochDirectory.create(ROOT, files)
    files.is_silent = True

    assert not start.is_gone()
