"""Tests of the journal as the writer reads it: listing, adoption of orphaned epochs, foreign files."""

import errno
import multiprocessing
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver import transcode
from receiver.durable.files import DISK
from receiver.journal.appender import Appender
from receiver.journal.epoch_directory import TRIES_MAX, EpochDirectory
from receiver.journal.names import start_name
from receiver.journal.segments import Journal
from tests.support.journal import ROOT, append, appender, names_in, recovered, try_to_adopt
from tests.support.memory_disk import Killed, MemoryDisk
from tests.support.record_layout import record


def test_sealed_segments_of_live_epochs_are_listed_oldest_first(files: MemoryDisk) -> None:
    first, second = appender(files), appender(files)
    append(second, "b")
    second.seal()
    for name in ("a0", "a1"):
        append(first, name)
        first.seal()
    append(first, "open")

    listed = Journal(ROOT, files).sealed()

    assert [names_in(segment) for segment in listed] == [["a0"], ["a1"], ["b"]]
    assert [segment.id.epoch for segment in listed] == [first.epoch, first.epoch, second.epoch]
    assert listed[0].bytes == len(listed[0].read())
    assert listed[0].codec == "lz4"


def test_missing_journal_is_empty() -> None:
    journal = Journal(ROOT, MemoryDisk())

    assert (journal.sealed(), journal.bytes_total()) == ([], 0)


def test_open_segment_of_an_orphaned_epoch_is_cut_sealed_and_listed(files: MemoryDisk) -> None:
    orphaned = appender(files)
    append(orphaned, "a")
    path = ROOT / start_name(orphaned.epoch) / "0000000000.open"
    fd = files.open(path)
    torn = record("torn", epoch=orphaned.epoch)[:-1]
    files.write(fd, memoryview(torn), len(files.read(path)))
    files.kill()

    [segment] = Journal(ROOT, files).sealed()

    assert names_in(segment) == ["a"]
    assert segment.damage(segment.scan()) == []
    assert segment.scan().sealed


def test_orphaned_epoch_without_complete_records_is_removed(files: MemoryDisk) -> None:
    orphaned = appender(files)
    append(orphaned, "a")
    fd = files.open(ROOT / start_name(orphaned.epoch) / "0000000000.open")
    files.truncate(fd, 50)
    files.kill()

    assert Journal(ROOT, files).sealed() == []
    assert files.names(ROOT) == []


def test_orphaned_epoch_directory_is_removed_after_its_last_segment(files: MemoryDisk) -> None:
    append(appender(files), "a")
    files.kill()
    journal = Journal(ROOT, files)

    for segment in journal.sealed():
        segment.unlink()

    assert journal.sealed() == []
    assert files.names(ROOT) == []


def test_unlink_is_durable_and_idempotent(files: MemoryDisk, journal: Appender) -> None:
    append(journal, "a")
    journal.seal()
    [segment] = Journal(ROOT, files).sealed()

    segment.unlink()
    segment.unlink()
    files.cut_power()

    assert recovered(files) == []


def test_replace_is_atomic_at_any_power_cut() -> None:
    content = record("new") + transcode.footer(record("new"))
    outcomes = set()
    for count in range(1, 8):
        files = MemoryDisk()
        append(appender(files), "old")
        files.kill()
        [segment] = Journal(ROOT, files).sealed()
        files.fail_nth(count, KeyboardInterrupt)
        with suppress(KeyboardInterrupt):
            assert segment.replace(content).bytes == len(content)
        files.cut_power(lambda waiting: waiting // 2)
        outcomes.add(tuple(recovered(files)))
        assert not [name for name in files.names(segment.path.parent) if name.endswith("rewrite")]

    assert outcomes == {("old",), ("new",)}


def test_failed_adoption_is_retried_and_does_not_delay_other_epochs(files: MemoryDisk) -> None:
    append(appender(files), "a")
    append(appender(files), "b")
    files.kill()
    journal = Journal(ROOT, files)
    files.fail("rename")

    with capture_logs() as logs:
        first = [name for segment in journal.sealed() for name in names_in(segment)]
    second = [name for segment in journal.sealed() for name in names_in(segment)]

    assert (len(first), second) == (1, ["a", "b"])
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "segment cannot be adopted yet"
    ]


@pytest.mark.parametrize("count", range(1, 8))
def test_adoption_interrupted_at_any_call_is_completed_later(files: MemoryDisk, count: int) -> None:
    orphaned = appender(files)
    append(orphaned, "a")
    append(orphaned, "b")
    files.kill()
    files.fail_nth(count, KeyboardInterrupt)
    try:
        Journal(ROOT, files).sealed()
    except KeyboardInterrupt:
        files.cut_power(lambda waiting: waiting // 2)

    files.heal()

    assert recovered(files) == ["a", "b"]


def test_unknown_files_are_logged_once_and_kept(files: MemoryDisk) -> None:
    live = appender(files)
    unknown = [ROOT / "lost+found", ROOT / start_name(live.epoch) / "1.open"]
    for path in unknown:
        files.close(files.create(path))

    with capture_logs() as logs:
        journal = Journal(ROOT, files)
        journal.sealed()
        journal.sealed()

    assert sorted(line["path"] for line in logs) == sorted(map(str, unknown))
    assert not any("reason" in line for line in logs)
    assert all(files.size_bytes(path) == 0 for path in unknown)


def test_damaged_record_is_reported_and_other_records_are_kept(files: MemoryDisk) -> None:
    orphaned = appender(files)
    for name in "abc":
        append(orphaned, name)
    path = ROOT / start_name(orphaned.epoch) / "0000000000.open"
    offset = len(record("a"))
    files.write(files.open(path), memoryview(b"\xff"), offset + 100)
    files.kill()

    [segment] = Journal(ROOT, files).sealed()
    damage, no_footer = segment.damage(segment.scan())

    assert names_in(segment) == ["a", "c"]
    assert no_footer.reason.startswith("footer is missing")
    assert (damage.segment, damage.offset, damage.length_bytes) == (segment.id, offset, len(record("b")))


def test_epoch_that_crashed_between_footer_and_rename_gets_a_single_footer(files: MemoryDisk) -> None:
    orphaned = appender(files)
    append(orphaned, "a")
    files.fail("rename")
    orphaned.seal()
    files.kill()

    with capture_logs() as logs:
        [segment] = Journal(ROOT, files).sealed()

    assert segment.read() == sealed_content("a", orphaned.epoch)
    assert [line["event"] for line in logs] == ["segment adopted"]


def test_open_segment_with_only_an_intact_footer_is_listed_as_damaged(files: MemoryDisk) -> None:
    orphaned = appender(files)
    append(orphaned, "a")
    files.fail("rename")
    orphaned.seal()
    path = ROOT / start_name(orphaned.epoch) / "0000000000.open"
    files.write(files.open(path), memoryview(b"\xff"), 100)
    files.kill()

    [segment] = Journal(ROOT, files).sealed()

    assert names_in(segment) == []
    assert [damage.length_bytes for damage in segment.damage(segment.scan())] == [len(record("a"))]


def test_intake_continues_after_sealing_a_damaged_segment(files: MemoryDisk) -> None:
    live = appender(files)
    append(live, "a")
    append(live, "b")
    path = ROOT / start_name(live.epoch) / "0000000000.open"
    files.write(files.open(path), memoryview(b"\xff"), 100)

    live.seal()

    [segment] = Journal(ROOT, files).sealed()
    assert names_in(segment) == ["b"]
    assert segment.damage(segment.scan())
    assert append(live, "c").seq == 1


def sealed_content(name: str, epoch: int) -> bytes:
    content = record(name, epoch=epoch)
    return content + transcode.footer(content)


def test_leftover_cut_mark_is_removed(files: MemoryDisk) -> None:
    orphaned = appender(files)
    append(orphaned, "a")
    orphaned.seal()
    files.close(files.create(ROOT / start_name(orphaned.epoch) / "0000000000.cut"))
    files.kill()

    assert recovered(files) == ["a"]
    assert "0000000000.cut" not in files.names(ROOT / start_name(orphaned.epoch))


def test_bytes_total_includes_open_segments(files: MemoryDisk) -> None:
    live = appender(files)
    append(live, "a")
    before = Journal(ROOT, files).bytes_total()

    append(live, "b")

    assert Journal(ROOT, files).bytes_total() == before + len(record("b"))


def test_epochs_never_share_a_directory_even_with_equal_random_ids(files: MemoryDisk) -> None:
    draws = iter([1, 1, 1, 2])

    epochs = [EpochDirectory.create(ROOT, files, lambda: next(draws)) for _ in range(2)]

    assert [directory.epoch for directory in epochs] == [1, 2]


@pytest.mark.parametrize("removes_directory", [True, False], ids=["both removed", "only the note removed"])
def test_epoch_adopted_before_it_is_locked_draws_a_new_id(*, removes_directory: bool) -> None:
    files = AdoptingDisk()
    if not removes_directory:
        files.fail("remove_directory")

    start = EpochDirectory.create(ROOT, files, iter([1, 2]).__next__)

    assert start.epoch == 2
    assert start_name(2) in files.names(ROOT)


class AdoptingDisk(MemoryDisk):
    """Disk on which another process adopts the first epoch directory just before it is locked."""

    has_adopted = False

    def lock(self, fd: int) -> bool:
        if not self.has_adopted:
            self.has_adopted = True
            adopter = EpochDirectory.adopt(ROOT / start_name(1), self)
            assert adopter is not None
            adopter.leave()
        return super().lock(fd)


def test_root_created_by_a_crashed_process_is_made_durable_by_the_next(files: MemoryDisk) -> None:
    files.fail_nth(2, Killed)
    with pytest.raises(Killed):
        appender(files)
    files.kill()

    append(appender(files), "a")
    files.cut_power()

    assert recovered(files) == ["a"]


def test_creating_an_epoch_fails_after_too_many_collisions(files: MemoryDisk) -> None:
    EpochDirectory.create(ROOT, files, lambda: 1)

    with pytest.raises(OSError, match=f"in {TRIES_MAX} tries"):
        EpochDirectory.create(ROOT, files, lambda: 1)


def test_live_epoch_cannot_be_adopted(files: MemoryDisk) -> None:
    live = EpochDirectory.create(ROOT, files)

    assert EpochDirectory.adopt(live.directory, files) is None
    assert files.names(live.directory) == ["start"]


def test_empty_unlocked_epoch_directory_is_removed(files: MemoryDisk) -> None:
    appender(files).close()
    files.make_directory(ROOT / start_name(9))

    Journal(ROOT, files).sealed()

    assert files.names(ROOT) == []


def test_epoch_lock_works_between_processes_and_is_not_inherited(tmp_path: Path) -> None:
    start = EpochDirectory.create(tmp_path, DISK)
    with multiprocessing.get_context("spawn").Pool(1) as other:
        while_held = other.apply(try_to_adopt, [start.directory])
        DISK.close(start.lock_fd)
        after = other.apply(try_to_adopt, [start.directory])

    assert (while_held, after) == (False, True)


def test_segment_whose_size_cannot_be_read_is_listed(
    files: MemoryDisk, journal: Appender, monkeypatch: pytest.MonkeyPatch
) -> None:
    append(journal, "a")
    journal.seal()

    def refuse(path: Path) -> int | None:
        raise OSError(errno.EIO, "Input/output error", str(path))

    listing, size_bytes = Journal(ROOT, files), files.size_bytes
    monkeypatch.setattr(files, "size_bytes", lambda path: (refuse if path.suffix else size_bytes)(path))

    assert [segment.bytes for segment in listing.sealed()] == [0]
