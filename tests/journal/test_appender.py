"""Claims about the intake's end: when a segment is left, what an error costs, when senders must wait."""

import errno
import os
import re
from pathlib import Path

import pytest

from receiver.errors import DiskTrouble, JournalFull, OperatorError, ShuttingDown
from receiver.journal.appender import TAIL_NOT_DROPPED, Appender, StaleSegment
from receiver.journal.names import Kind, file_name, start_name
from receiver.journal.segments import Journal
from receiver.journal.start import note_of
from receiver.model import SegmentId
from receiver.settings import MIB
from tests.support.journal import ROOT, Clock, append, appender, limits, look_after, recovered
from tests.support.memory_disk import MemoryDisk
from tests.support.record_layout import record


def broken_disk() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def files_of(files: MemoryDisk, journal: Appender) -> list[str]:
    """Names in the start directory, without the note."""
    return [name for name in files.names(ROOT / start_name(journal.epoch)) if name != "start"]


def store_oldest(files: MemoryDisk) -> None:
    Journal(ROOT, files).sealed()[0].unlink()


def test_records_share_a_segment_until_it_is_due() -> None:
    files = MemoryDisk()
    journal = appender(files)

    seqs = [append(journal, name).seq for name in "abc"]
    look_after(journal)

    assert seqs == [0, 0, 0]
    assert files_of(files, journal) == ["0000000000.open"]


@pytest.mark.parametrize(
    ("setting_key", "most"),
    [
        pytest.param("segment_rows_max", 2, id="rows"),
        pytest.param("segment_bytes_max", 2 * len(record("a")), id="bytes"),
    ],
)
def test_a_segment_that_is_large_enough_is_left_by_the_next_record(setting_key: str, most: int) -> None:
    files = MemoryDisk()
    journal = Appender(ROOT, limits(**{setting_key: most}), now=Clock(), files=files)

    seqs = [append(journal, name).seq for name in "abc"]
    journal.seal_retired()

    assert seqs == [0, 0, 1]
    assert files_of(files, journal) == ["0000000000.native.lz4", "0000000001.open"]


def test_no_record_waits_for_the_segment_before_it_to_be_sealed() -> None:
    files = MemoryDisk()
    journal = Appender(ROOT, limits(segment_rows_max=1), now=Clock(), files=files)

    for name in "abc":
        append(journal, name)
    unsealed = files_of(files, journal)
    has_retired = journal.has_retired
    in_a_power_cut = recovered_after_power_cut(files)

    assert unsealed == ["0000000000.open", "0000000001.open", "0000000002.open"]
    assert has_retired
    assert in_a_power_cut == ["a", "b", "c"]


def test_an_idle_segment_is_sealed_by_age() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    clock.now_s += 0.999
    look_after(journal)
    young = files_of(files, journal)

    clock.now_s += 0.001
    look_after(journal)

    assert (young, files_of(files, journal)) == (["0000000000.open"], ["0000000000.native.lz4"])


def test_age_waits_for_the_predecessor_to_be_stored_so_that_a_backlog_becomes_few_inserts() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    journal.seal()
    append(journal, "b")
    clock.now_s += 60
    look_after(journal)
    waiting = files_of(files, journal)

    store_oldest(files)
    clock.now_s += 0.1
    look_after(journal)

    assert waiting == ["0000000000.native.lz4", "0000000001.open"]
    assert files_of(files, journal) == ["0000000001.native.lz4"]


def test_zstd_segments_are_named_so() -> None:
    files = MemoryDisk()
    journal = appender(files, codec="zstd")
    append(journal, "a")

    journal.seal()

    assert files_of(files, journal) == ["0000000000.native.zst"]


def test_a_segment_chosen_before_it_was_left_is_stale_and_nothing_is_written() -> None:
    files = MemoryDisk()
    journal = appender(files)
    chosen = append(journal, "a")
    journal.seal()

    with pytest.raises(StaleSegment):
        journal.append(chosen, record("b"), 1)

    assert recovered(files) == ["a"]


def test_a_segment_of_another_start_is_stale() -> None:
    journal = appender(MemoryDisk())

    with pytest.raises(StaleSegment):
        journal.append(SegmentId(journal.epoch ^ 1, 0), record("a"), 1)


def test_is_stored_turns_true_when_the_writer_lets_go() -> None:
    files = MemoryDisk()
    journal = appender(files)
    segment = append(journal, "a")
    seen = [journal.is_stored(segment)]
    journal.seal()
    seen.append(journal.is_stored(segment))

    store_oldest(files)
    seen.append(journal.is_stored(segment))

    assert seen == [False, False, True]


def test_close_hands_everything_over_and_takes_no_more() -> None:
    files = MemoryDisk()
    journal = appender(files)
    segment = append(journal, "a")

    journal.close()

    assert recovered(files) == ["a"]
    with pytest.raises((ShuttingDown, StaleSegment)):
        journal.append(segment, record("b"), 1)
    with pytest.raises(ShuttingDown):
        append(journal, "b")


def test_a_start_that_journaled_nothing_leaves_nothing() -> None:
    files = MemoryDisk()

    appender(files).close()

    assert files.names(ROOT) == []


def test_the_start_directory_is_on_the_disk_before_it_is_used() -> None:
    files = MemoryDisk()
    journal = appender(files)

    files.cut_power(lambda _count: 0)

    assert files.names(ROOT) == [start_name(journal.epoch)]
    assert note_of(ROOT / start_name(journal.epoch), files).pid == os.getpid()


@pytest.mark.parametrize("how", [broken_disk, full_disk])
@pytest.mark.parametrize("earlier", [(), ("a",)], ids=["first record", "second record"])
@pytest.mark.parametrize("count", range(1, 9))
def test_whichever_call_of_an_append_fails_the_record_never_comes_back(
    count: int, earlier: tuple[str, ...], how: type[OSError]
) -> None:
    files = MemoryDisk()
    journal = appender(files)
    for name in earlier:
        append(journal, name)
    files.fail_nth(count, how)
    try:
        append(journal, "x")
        kept = ["x"]
    except DiskTrouble:
        kept = []
    files.heal()

    append(journal, "later")

    assert recovered_after_power_cut(files) == [*earlier, *kept, "later"]


def test_after_an_error_the_segment_is_sealed_at_once_and_a_group_in_flight_commits_anew() -> None:
    files = MemoryDisk()
    journal = appender(files)
    append(journal, "a")
    in_flight = journal.choose()
    files.fail("sync_data")
    with pytest.raises(DiskTrouble, match="Input/output error"):
        append(journal, "b")

    with pytest.raises(StaleSegment):
        journal.append(in_flight, record("c"), 1)

    assert files_of(files, journal) == ["0000000000.native.lz4"]
    assert append(journal, "c").seq == 1


def test_while_neither_cut_nor_mark_is_possible_nothing_is_acknowledged() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    files.fail_nth(2, broken_disk, for_ever=True)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    clock.now_s += 60

    with pytest.raises(DiskTrouble, match=TAIL_NOT_DROPPED):
        append(journal, "y")

    assert journal.full_reason() == TAIL_NOT_DROPPED


def test_once_the_disk_drops_the_tail_the_journal_goes_on() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    files.fail_nth(2, broken_disk, for_ever=True)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    files.heal()
    clock.now_s += 1

    look_after(journal)

    assert journal.full_reason() is None
    append(journal, "b")
    assert recovered_after_power_cut(files) == ["a", "b"]


def test_under_load_the_next_record_drops_the_tail_and_is_taken() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    files.fail_nth(3, broken_disk, for_ever=True)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    files.heal()
    clock.now_s += 1

    append(journal, "a")

    assert recovered_after_power_cut(files) == ["a"]


def recovered_after_power_cut(files: MemoryDisk) -> list[str]:
    files.cut_power(lambda _count: 0)
    return recovered(files)


def test_a_mark_is_enough_to_go_on_and_the_adopter_respects_it() -> None:
    files = MemoryDisk()
    journal = appender(files)
    append(journal, "a")
    files.fail("sync_data", "truncate", times=2)
    with pytest.raises(DiskTrouble):
        append(journal, "x")
    files.fail("truncate", times=9)

    append(journal, "b")
    in_file = files.read(ROOT / start_name(journal.epoch) / "0000000000.open")
    files.kill()

    assert b"block of x" in in_file
    assert sorted(recovered(files)) == ["a", "b"]


def test_a_segment_that_cannot_be_sealed_yet_is_sealed_later() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock)
    append(journal, "a")
    files.fail("rename", code=errno.ENOSPC)
    journal.seal()
    waiting = files_of(files, journal)
    append(journal, "b")
    clock.now_s += 1

    look_after(journal)

    assert waiting == ["0000000000.open"]
    assert "0000000000.native.lz4" in files_of(files, journal)
    assert not journal.is_stored(SegmentId(journal.epoch, 0))


def test_a_journal_at_its_ceiling_says_so_before_it_writes() -> None:
    files = MemoryDisk()
    journal = appender(files, bytes_max=MIB)
    append(journal, "a", padding_bytes=MIB // 2)
    content = bytes(MIB)
    files.calls.clear()

    with pytest.raises(JournalFull, match="the ceiling is 1 MiB"):
        journal.append(journal.choose(), content, 1)

    assert files.calls == []


def test_the_ceiling_counts_what_other_starts_hold() -> None:
    files, clock = MemoryDisk(), Clock()
    ours = appender(files, clock=clock, bytes_max=1000)
    theirs = appender(files, clock=clock)
    before = ours.full_reason()
    for name in "abcdefghij":
        append(theirs, name)

    clock.now_s += 1
    look_after(ours)

    assert before is None
    assert theirs.full_reason(1 << 40) is not None
    assert theirs.full_reason() is None
    assert re.fullmatch(r"journal holds 129\d bytes; the ceiling is 1000 bytes", ours.full_reason() or "")


def test_a_journal_takes_records_again_once_the_writer_has_made_room() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock, bytes_max=400)
    append(journal, "a")
    append(journal, "b")
    with pytest.raises(JournalFull):
        append(journal, "c")
    journal.seal()
    store_oldest(files)

    clock.now_s += 1

    assert append(journal, "c").seq == 1


def test_the_disk_s_floor_is_kept() -> None:
    files, clock = MemoryDisk(), Clock()
    journal = appender(files, clock=clock, disk_free_min=64 * MIB)
    files.free = 64 * MIB + 200
    clock.now_s += 1
    append(journal, "a")

    with pytest.raises(JournalFull, match="the floor is 64 MiB"):
        append(journal, "b")

    assert journal.full_reason() is None


@pytest.mark.fault("the whole journal is moved away under an intake")
def test_a_journal_whose_directory_was_removed_fails_closed(tmp_path: Path) -> None:
    journal = appender(root=tmp_path / "journal")
    append(journal, "a")
    (tmp_path / "journal").rename(tmp_path / "elsewhere")

    with pytest.raises(DiskTrouble):
        append(journal, "b")
    with pytest.raises((DiskTrouble, JournalFull)):
        append(journal, "c")

    journal.close()


def test_a_root_that_cannot_be_written_is_the_operator_s_to_mend(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(OperatorError, match="cannot be used: Not a directory"):
        appender(root=tmp_path / "file" / "journal")


def test_names_are_made_of_integers_only() -> None:
    assert start_name(7) == "0000000000000007"
    assert file_name(12, Kind.OPEN) == "0000000012.open"
