"""What the intake's end tells of a disk in trouble, and of a start directory that is gone."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.durable.files import DISK
from receiver.errors import DiskTrouble, JournalFull, OperatorError
from receiver.journal import appender as appender_room
from receiver.journal.appender import TROUBLE_S, Appender
from receiver.journal.ceiling import Ceiling, DiskUsage
from receiver.journal.names import start_name
from receiver.journal.segments import Journal
from receiver.logs import RateLimited
from receiver.settings import MIB
from tests.support.journal import ROOT, Clock, append, appender, limits, look_after, recovered
from tests.support.memory_disk import MemoryDisk


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
    look_after(journal)
    shutil.rmtree(tmp_path / "journal" / start_name(journal.epoch))

    with pytest.raises(OperatorError, match="epoch directory"):
        look_after(journal)


def test_nothing_is_stored_of_a_start_whose_directory_was_removed(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    segment = append(journal, "a")
    shutil.rmtree(tmp_path / "journal" / start_name(journal.epoch))

    assert not journal.is_stored(segment)


def test_a_start_whose_directory_was_replaced_promises_nothing_in_it(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    directory = tmp_path / "journal" / start_name(journal.epoch)
    directory.rename(tmp_path / "elsewhere")
    directory.mkdir()
    (directory / "start").touch()

    with pytest.raises(DiskTrouble, match="was removed"):
        append(journal, "a")


def test_a_segment_that_cannot_be_sealed_is_told_once_in_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    files, clock = MemoryDisk(), Clock()
    monkeypatch.setattr(appender_room, "limited", RateLimited())
    journal = appender(files, clock=clock)
    append(journal, "a")
    files.fail("rename", times=99)

    with capture_logs() as logs:
        journal.seal()
        for _ in range(9):
            clock.now_s += 1
            look_after(journal)

    assert [line["event"] for line in logs] == ["segment cannot be sealed yet"]


def test_the_event_loop_is_told_what_is_full_without_a_look_at_the_disk() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock, disk_free_min=4 * MIB)
    files.free = 0
    clock.now_s += 60
    before = journal.full_reason()

    look_after(journal)
    files.fault = unreachable

    assert before is None
    assert journal.full_reason() == "disk has 0 bytes free; the floor is 4 MiB"


def unreachable(_count: int, call: str) -> None:
    raise AssertionError(call)


def test_a_journal_that_cannot_be_measured_takes_nothing(tmp_path: Path) -> None:
    clock = Clock()
    journal = Appender(tmp_path / "journal", limits(), now=clock)
    (tmp_path / "journal").rename(tmp_path / "elsewhere")
    clock.now_s += 1

    with pytest.raises(JournalFull, match="cannot be measured"):
        append(journal, "a")

    (tmp_path / "elsewhere").rename(tmp_path / "journal")
    append(journal, "b")


@pytest.mark.parametrize("mask", [0, 0o077])
def test_nobody_else_may_read_what_was_promised(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        append(Appender(tmp_path / "journal", limits()), "a")
    finally:
        os.umask(before)

    found = sorted((tmp_path / "journal").rglob("*"))
    modes = {oct(path.stat().st_mode & 0o777) for path in found if path.is_file()}
    assert (modes, oct(found[0].stat().st_mode & 0o777)) == ({"0o600"}, "0o700")


def test_a_long_backlog_costs_the_ceiling_the_listing_of_its_names() -> None:
    files, clock = MeasuredDisk(), Clock()
    journal = appender(files, clock=clock)
    for name in "abc":
        append(journal, name)
        journal.seal()
    append(journal, "open")
    scales = DiskUsage(ROOT, files)
    scales.bytes_total()
    files.measured.clear()

    assert scales.bytes_total() == Journal(ROOT, files).bytes_total()
    assert "0000000003.open" in files.measured
    assert files.measured[: files.measured.index("start") + 1].count("0000000000.native.lz4") == 0


def test_parts_of_segments_that_were_cut_up_count_as_journal(tmp_path: Path) -> None:
    root = tmp_path / "journal"
    append(Appender(root, limits()), "a")
    before = Journal(root).bytes_total()
    parts = tmp_path / "cuts" / "0000000000000007-0000000001.0000000000000008"
    parts.mkdir(parents=True)
    (parts / "0000000001.native.lz4").write_bytes(bytes(1_000))
    (tmp_path / "cuts" / "strange").write_bytes(bytes(5))

    ceiling = Ceiling(root, limits(bytes_max=before + 999), DISK, lambda: 0.0)
    ceiling.measure()

    assert Journal(root).bytes_total() == before + 1_000
    assert "the ceiling is" in (ceiling.reason() or "")


class MeasuredDisk(MemoryDisk):
    """It notes whose size it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: list[str] = []

    def size_bytes(self, path: Path) -> int | None:
        self.measured.append(path.name)
        return super().size_bytes(path)


def test_while_there_is_a_backlog_groups_are_committed_without_asking_for_it_each_time() -> None:
    files, clock = MeasuredDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    journal.seal()
    append(journal, "b")
    clock.now_s += 60
    journal.choose()
    files.measured.clear()

    chosen = [journal.choose().seq for _ in range(9)]

    assert (chosen, files.measured) == ([1] * 9, [])


def test_what_the_disk_refused_to_seal_is_left_alone_once_the_journal_is_closed() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    files.fail("sync")
    journal.close()
    clock.now_s += 60
    calls_count = len(files.calls)

    journal.seal_retired()

    assert files.calls[calls_count:] == []
    assert recovered(files) == ["a"]
