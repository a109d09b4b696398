"""Tests of the appender with a failing disk or a removed epoch directory."""

from __future__ import annotations

import errno
import os
import shutil
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver.errors import DiskTrouble, JournalFull, OperatorError
from receiver.journal.appender import TROUBLE_S, Appender
from receiver.journal.ceiling import DiskUsage
from receiver.journal.names import start_name
from receiver.journal.segments import Journal
from receiver.settings import MIB
from tests.support.clock import Clock
from tests.support.journal import ROOT, append, appender, limits, maintain, recovered
from tests.support.memory_disk import MemoryDisk


def test_disk_error_is_reported_until_an_append_succeeds_or_it_is_old(
    files: MemoryDisk, clock: Clock, journal: Appender
) -> None:
    def fail_to_create(_count: int, call: str) -> None:
        if call == "create":
            raise OSError(errno.EROFS, "Read-only file system")

    reports = [journal.trouble]
    files.fault = fail_to_create
    with pytest.raises(DiskTrouble):
        append(journal, "a")
    reports.append(journal.trouble)
    clock.now_s += TROUBLE_S
    reports.append(journal.trouble)
    with pytest.raises(DiskTrouble):
        append(journal, "b")
    reports.append(journal.trouble)
    files.fault = lambda _count, _call: None
    append(journal, "c")
    reports.append(journal.trouble)

    assert [bool(report) for report in reports] == [False, True, False, True, False]
    assert journal.full_reason() is None


def test_appender_stops_if_its_epoch_directory_was_removed(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    maintain(journal)
    shutil.rmtree(tmp_path / "journal" / start_name(journal.epoch))

    with pytest.raises(OperatorError, match="epoch directory"):
        maintain(journal)


def test_segment_in_a_removed_epoch_directory_is_not_reported_as_stored(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    segment = append(journal, "a")
    shutil.rmtree(tmp_path / "journal" / start_name(journal.epoch))

    assert not journal.is_stored(segment)


def test_append_to_a_replaced_epoch_directory_fails(tmp_path: Path) -> None:
    journal = Appender(tmp_path / "journal", limits())
    directory = tmp_path / "journal" / start_name(journal.epoch)
    directory.rename(tmp_path / "moved")
    directory.mkdir()
    (directory / "start").touch()

    with pytest.raises(DiskTrouble, match="was removed"):
        append(journal, "a")


def test_segment_that_cannot_be_sealed_is_logged_at_a_limited_rate(files: MemoryDisk, clock: Clock) -> None:
    journal = appender(files, clock=clock)
    append(journal, "a")
    files.fail("rename", times=99)

    with capture_logs() as logs:
        journal.seal()
        for _ in range(9):
            clock.now_s += 1
            maintain(journal)

    assert [line["event"] for line in logs] == ["segment cannot be sealed yet"]


def test_full_reason_does_not_access_the_disk(files: MemoryDisk, clock: Clock) -> None:
    journal = appender(files, clock=clock, disk_free_min=4 * MIB)
    files.free = 0
    clock.now_s += 60
    before = journal.full_reason()

    maintain(journal)
    files.fault = fail_on_any_call

    assert before is None
    assert journal.full_reason() == "disk has 0 bytes free; the floor is 4 MiB"


def fail_on_any_call(_count: int, call: str) -> None:
    raise AssertionError(call)


def test_journal_of_unknown_size_refuses_records(tmp_path: Path) -> None:
    clock = Clock()
    journal = Appender(tmp_path / "journal", limits(), now=clock)
    (tmp_path / "journal").rename(tmp_path / "moved")
    clock.now_s += 1

    with pytest.raises(JournalFull, match="cannot be measured"):
        append(journal, "a")

    (tmp_path / "moved").rename(tmp_path / "journal")
    append(journal, "b")


@pytest.mark.parametrize("mask", [0, 0o077])
def test_journal_files_are_private(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        append(Appender(tmp_path / "journal", limits()), "a")
    finally:
        os.umask(before)

    paths = sorted((tmp_path / "journal").rglob("*"))
    modes = {oct(path.stat().st_mode & 0o777) for path in paths if path.is_file()}
    assert (modes, oct(paths[0].stat().st_mode & 0o777)) == ({"0o600"}, "0o700")


def test_measuring_a_long_backlog_does_not_stat_sealed_segments_again() -> None:
    files, clock = MeasuredDisk(), Clock()
    journal = appender(files, clock=clock)
    for name in "abc":
        append(journal, name)
        journal.seal()
    append(journal, "open")
    usage = DiskUsage(ROOT, files)
    usage.bytes_total()
    files.measured.clear()

    assert usage.bytes_total() == Journal(ROOT, files).bytes_total()
    assert "0000000003.open" in files.measured
    assert files.measured[: files.measured.index("start") + 1].count("0000000000.native.lz4") == 0


class MeasuredDisk(MemoryDisk):
    """Disk that records which files are measured."""

    def __init__(self) -> None:
        super().__init__()
        self.measured: list[str] = []

    def size_bytes(self, path: Path) -> int | None:
        self.measured.append(path.name)
        return super().size_bytes(path)


def test_choosing_a_segment_with_a_backlog_does_not_access_the_disk() -> None:
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


def test_closed_journal_does_not_retry_a_failed_seal(
    files: MemoryDisk, clock: Clock, journal: Appender
) -> None:
    append(journal, "a")
    files.fail("sync")
    journal.close()
    clock.now_s += 60
    calls_count = len(files.calls)

    journal.seal_retired()

    assert files.calls[calls_count:] == []
    assert recovered(files) == ["a"]
