"""What the intake's end tells of a disk in trouble, and of a start directory that is gone."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

from receiver.errors import DiskTrouble, OperatorError
from receiver.journal.appender import TROUBLE_S, Appender
from receiver.journal.names import start_name
from tests.journal_support import Clock, append, appender, limits
from tests.memory_disk import MemoryDisk


def test_trouble_is_told_until_an_append_succeeds_or_it_is_old() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)

    def broken(_count: int, call: str) -> None:
        if call == "create":
            raise OSError(errno.EROFS, "Read-only file system")

    told = [journal.trouble]
    files.fault = broken
    with pytest.raises(DiskTrouble):
        append(journal, "a")
    told.append(journal.trouble)
    clock.now_s += TROUBLE_S
    told.append(journal.trouble)
    with pytest.raises(DiskTrouble):
        append(journal, "b")
    told.append(journal.trouble)
    files.fault = lambda _count, _call: None
    append(journal, "c")
    told.append(journal.trouble)

    assert [bool(one) for one in told] == [False, True, False, True, False]
    assert journal.full_reason() is None


def test_a_start_whose_directory_was_removed_is_over(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    journal.seal_if_due()
    shutil.rmtree(tmp_path / "journal" / start_name(journal.epoch))

    with pytest.raises(OperatorError, match="start directory"):
        journal.seal_if_due()


def test_nothing_is_stored_of_a_start_whose_directory_was_removed(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    segment = append(journal, "a")
    shutil.rmtree(tmp_path / "journal" / start_name(journal.epoch))

    assert not journal.is_stored(segment)
