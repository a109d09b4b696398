"""Tests of the appender: segment rotation, disk errors, and a full journal."""

import errno
import os
import re
from pathlib import Path

import pytest

from receiver.errors import DiskTrouble, JournalFull, OperatorError, ShuttingDown, StaleSegment
from receiver.journal.appender import TAIL_NOT_DROPPED, Appender
from receiver.journal.epoch_directory import note_of
from receiver.journal.names import Kind, file_name, start_name
from receiver.model import SegmentId
from receiver.settings import MIB
from tests.support.clock import Clock
from tests.support.journal import ROOT, append, appender, files_of, limits, maintain, recovered, store_oldest
from tests.support.memory_disk import MemoryDisk, broken_disk, full_disk
from tests.support.record_layout import record


def test_records_share_a_segment_until_it_is_due_for_sealing(files: MemoryDisk, journal: Appender) -> None:
    seqs = [append(journal, name).seq for name in "abc"]
    maintain(journal)

    assert seqs == [0, 0, 0]
    assert files_of(files, journal) == ["0000000000.open"]


@pytest.mark.parametrize(
    ("setting_key", "maximum"),
    [
        pytest.param("segment_rows_max", 2, id="rows"),
        pytest.param("segment_bytes_max", 2 * len(record("a")), id="bytes"),
    ],
)
def test_next_record_after_the_size_limit_starts_a_new_segment(
    files: MemoryDisk, setting_key: str, maximum: int
) -> None:
    journal = Appender(ROOT, limits(**{setting_key: maximum}), now=Clock(), files=files)

    seqs = [append(journal, name).seq for name in "abc"]
    journal.seal_retired()

    assert seqs == [0, 0, 1]
    assert files_of(files, journal) == ["0000000000.native.lz4", "0000000001.open"]


def test_append_does_not_wait_until_the_previous_segment_is_sealed(files: MemoryDisk) -> None:
    journal = Appender(ROOT, limits(segment_rows_max=1), now=Clock(), files=files)

    for name in "abc":
        append(journal, name)
    unsealed = files_of(files, journal)
    has_retired = journal.has_retired
    after_power_cut = recovered_after_power_cut(files)

    assert unsealed == ["0000000000.open", "0000000001.open", "0000000002.open"]
    assert has_retired
    assert after_power_cut == ["a", "b", "c"]


def test_zstd_segment_has_the_suffix_zst(files: MemoryDisk) -> None:
    journal = appender(files, codec="zstd")
    append(journal, "a")

    journal.seal()

    assert files_of(files, journal) == ["0000000000.native.zst"]


def test_append_to_a_sealed_segment_raises_stale_segment(files: MemoryDisk, journal: Appender) -> None:
    chosen = append(journal, "a")
    journal.seal()

    with pytest.raises(StaleSegment):
        journal.append(chosen, record("b"), 1)

    assert recovered(files) == ["a"]


def test_append_to_a_segment_of_another_epoch_raises_stale_segment(journal: Appender) -> None:
    with pytest.raises(StaleSegment):
        journal.append(SegmentId(journal.epoch ^ 1, 0), record("a"), 1)


def test_close_seals_all_segments_and_refuses_records(files: MemoryDisk, journal: Appender) -> None:
    segment = append(journal, "a")

    journal.close()

    assert recovered(files) == ["a"]
    with pytest.raises((ShuttingDown, StaleSegment)):
        journal.append(segment, record("b"), 1)
    with pytest.raises(ShuttingDown):
        append(journal, "b")


def test_closed_journal_without_records_leaves_no_files(files: MemoryDisk) -> None:
    appender(files).close()

    assert files.names(ROOT) == []


def test_epoch_directory_survives_a_power_cut(files: MemoryDisk, journal: Appender) -> None:
    files.cut_power()

    assert files.names(ROOT) == [start_name(journal.epoch)]
    assert note_of(ROOT / start_name(journal.epoch), files).pid == os.getpid()


@pytest.mark.parametrize("error", [broken_disk, full_disk])
@pytest.mark.parametrize("earlier", [(), ("a",)], ids=["first record", "second record"])
@pytest.mark.parametrize("count", range(1, 9))
def test_failed_append_is_never_recovered_whichever_call_fails(
    count: int, earlier: tuple[str, ...], error: type[OSError]
) -> None:
    files = MemoryDisk()
    journal = appender(files)
    for name in earlier:
        append(journal, name)
    files.fail_nth(count, error)
    try:
        append(journal, "x")
        acknowledged = ["x"]
    except DiskTrouble:
        acknowledged = []
    files.heal()

    append(journal, "later")

    assert recovered_after_power_cut(files) == [*earlier, *acknowledged, "later"]


def test_segment_is_sealed_after_an_error_and_a_group_in_flight_is_stale(
    files: MemoryDisk, journal: Appender
) -> None:
    append(journal, "a")
    in_flight = journal.choose()
    files.fail("sync_data")
    with pytest.raises(DiskTrouble, match="Input/output error"):
        append(journal, "b")

    with pytest.raises(StaleSegment):
        journal.append(in_flight, record("c"), 1)

    assert files_of(files, journal) == ["0000000000.native.lz4"]
    assert append(journal, "c").seq == 1


def test_append_fails_while_a_failed_record_cannot_be_dropped_or_marked(
    files: MemoryDisk, clock: Clock, journal: Appender
) -> None:
    append(journal, "a")
    files.fail_nth(2, broken_disk, is_permanent=True)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    clock.now_s += 60

    with pytest.raises(DiskTrouble, match=TAIL_NOT_DROPPED):
        append(journal, "y")

    assert journal.full_reason() == TAIL_NOT_DROPPED


def test_journal_accepts_records_after_the_failed_record_is_dropped(
    files: MemoryDisk, clock: Clock, journal: Appender
) -> None:
    append(journal, "a")
    files.fail_nth(2, broken_disk, is_permanent=True)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    files.heal()
    clock.now_s += 1

    maintain(journal)

    assert journal.full_reason() is None
    append(journal, "b")
    assert recovered_after_power_cut(files) == ["a", "b"]


def test_next_append_drops_the_failed_record_and_succeeds(
    files: MemoryDisk, clock: Clock, journal: Appender
) -> None:
    files.fail_nth(3, broken_disk, is_permanent=True)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    files.heal()
    clock.now_s += 1

    append(journal, "a")

    assert recovered_after_power_cut(files) == ["a"]


def recovered_after_power_cut(files: MemoryDisk) -> list[str]:
    files.cut_power()
    return recovered(files)


def test_failed_record_behind_a_cut_mark_is_not_recovered(files: MemoryDisk, journal: Appender) -> None:
    append(journal, "a")
    files.fail("sync_data", "truncate", times=2)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    files.fail("truncate", times=9)

    append(journal, "b")
    content = files.read(ROOT / start_name(journal.epoch) / "0000000000.open")
    files.kill()

    assert b"block of x" in content
    assert sorted(recovered(files)) == ["a", "b"]


def test_failed_seal_is_retried_later(files: MemoryDisk, clock: Clock, journal: Appender) -> None:
    append(journal, "a")
    files.fail("rename", code=errno.ENOSPC)
    journal.seal()
    before_retry = files_of(files, journal)
    append(journal, "b")
    clock.now_s += 1

    maintain(journal)

    assert before_retry == ["0000000000.open"]
    assert "0000000000.native.lz4" in files_of(files, journal)
    assert not journal.is_stored(SegmentId(journal.epoch, 0))


def test_full_journal_refuses_a_record_before_writing(files: MemoryDisk) -> None:
    journal = appender(files, bytes_max=MIB)
    append(journal, "a", padding_bytes=MIB // 2)
    content = bytes(MIB)
    files.calls.clear()

    with pytest.raises(JournalFull, match="the ceiling is 1 MiB"):
        journal.append(journal.choose(), content, 1)

    assert files.calls == []


def test_journal_size_includes_other_epochs(files: MemoryDisk, clock: Clock) -> None:
    first = appender(files, clock=clock, bytes_max=1000)
    second = appender(files, clock=clock)
    before = first.full_reason()
    for name in "abcdefghij":
        append(second, name)

    clock.now_s += 1
    maintain(first)

    assert before is None
    assert second.full_reason(1 << 40) is not None
    assert second.full_reason() is None
    assert re.fullmatch(r"journal holds 129\d bytes; the ceiling is 1000 bytes", first.full_reason() or "")


def test_full_journal_accepts_records_after_a_segment_is_deleted(files: MemoryDisk, clock: Clock) -> None:
    journal = appender(files, clock=clock, bytes_max=400)
    append(journal, "a")
    append(journal, "b")
    with pytest.raises(JournalFull):
        append(journal, "c")
    journal.seal()
    store_oldest(files)

    clock.now_s += 1

    assert append(journal, "c").seq == 1


def test_record_below_the_free_disk_minimum_is_refused(files: MemoryDisk, clock: Clock) -> None:
    journal = appender(files, clock=clock, disk_free_min=64 * MIB)
    files.free = 64 * MIB + 200
    clock.now_s += 1
    append(journal, "a")

    with pytest.raises(JournalFull, match="the floor is 64 MiB"):
        append(journal, "b")

    assert journal.full_reason() is None


@pytest.mark.fault("the whole journal is moved away while an intake uses it")
def test_append_to_a_moved_journal_fails(tmp_path: Path) -> None:
    journal = appender(root=tmp_path / "journal")
    append(journal, "a")
    (tmp_path / "journal").rename(tmp_path / "moved")

    with pytest.raises(DiskTrouble):
        append(journal, "b")
    with pytest.raises((DiskTrouble, JournalFull)):
        append(journal, "c")

    journal.close()


def test_journal_root_that_cannot_be_created_is_an_operator_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OperatorError, match="cannot be used: Not a directory"):
        appender(root=tmp_path / "file" / "journal")


def test_file_and_directory_names_are_integers() -> None:
    assert start_name(7) == "0000000000000007"
    assert file_name(12, Kind.OPEN) == "0000000012.open"
