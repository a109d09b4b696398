"""Claims about the writer's end: what is listed, what is adopted, and what is left alone."""

import multiprocessing
from contextlib import suppress
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from receiver import transcode
from receiver.durable.files import DISK
from receiver.journal.frame import answers_of
from receiver.journal.names import start_name
from receiver.journal.segments import Journal
from receiver.journal.start import TRIES_MAX, EpochDirectory
from tests.support.journal import ROOT, append, appender, names_in, recovered, try_to_adopt
from tests.support.memory_disk import Killed, MemoryDisk
from tests.support.record_layout import record


def test_sealed_segments_of_live_starts_are_listed_oldest_first_and_open_ones_are_not() -> None:
    files = MemoryDisk()
    first, second = appender(files), appender(files)
    append(second, "b")
    second.seal()
    for name in ("a0", "a1"):
        append(first, name)
        first.seal()
    append(first, "open")

    listed = Journal(ROOT, files).sealed()

    assert [names_in(found) for found in listed] == [["a0"], ["a1"], ["b"]]
    assert [found.id.epoch for found in listed] == [first.epoch, first.epoch, second.epoch]
    assert listed[0].bytes == len(listed[0].read())
    assert listed[0].codec == "lz4"


def test_a_journal_that_does_not_exist_yet_is_empty() -> None:
    journal = Journal(ROOT, MemoryDisk())

    assert (journal.sealed(), journal.bytes_total()) == ([], 0)


def test_what_a_dead_start_left_open_is_cut_sealed_and_listed() -> None:
    files = MemoryDisk()
    dead = appender(files)
    append(dead, "a")
    path = ROOT / start_name(dead.epoch) / "0000000000.open"
    fd = files.open(path)
    torn = record("torn", epoch=dead.epoch)[:-1]
    files.write(fd, memoryview(torn), len(files.read(path)))
    files.kill()

    [found] = Journal(ROOT, files).sealed()

    assert names_in(found) == ["a"]
    assert found.damage(found.scan()) == []
    assert found.scan().sealed


def test_a_dead_start_with_nothing_whole_in_it_goes_away() -> None:
    files = MemoryDisk()
    dead = appender(files)
    append(dead, "a")
    fd = files.open(ROOT / start_name(dead.epoch) / "0000000000.open")
    files.truncate(fd, 50)
    files.kill()

    assert Journal(ROOT, files).sealed() == []
    assert files.names(ROOT) == []


def test_the_directory_of_a_dead_start_goes_with_its_last_segment() -> None:
    files = MemoryDisk()
    append(appender(files), "a")
    files.kill()
    journal = Journal(ROOT, files)

    for found in journal.sealed():
        found.unlink()

    assert journal.sealed() == []
    assert files.names(ROOT) == []


def test_an_unlink_is_on_the_disk_and_may_be_repeated() -> None:
    files = MemoryDisk()
    journal = appender(files)
    append(journal, "a")
    journal.seal()
    [found] = Journal(ROOT, files).sealed()

    found.unlink()
    found.unlink()
    files.cut_power(lambda _count: 0)

    assert recovered(files) == []


def test_new_content_replaces_the_old_in_one_step_whatever_the_power_does() -> None:
    content = record("new") + transcode.footer(record("new"))
    seen = set()
    for count in range(1, 8):
        files = MemoryDisk()
        append(appender(files), "old")
        files.kill()
        [found] = Journal(ROOT, files).sealed()
        files.fail_nth(count, KeyboardInterrupt)
        with suppress(KeyboardInterrupt):
            assert found.replace(content).bytes == len(content)
        files.cut_power(lambda waiting: waiting // 2)
        seen.add(tuple(recovered(files)))
        assert not [name for name in files.names(found.path.parent) if name.endswith("rewrite")]

    assert seen == {("old",), ("new",)}


def test_adoption_is_tried_again_when_the_disk_refused_and_does_not_hold_up_the_rest() -> None:
    files = MemoryDisk()
    append(appender(files), "a")
    append(appender(files), "b")
    files.kill()
    journal = Journal(ROOT, files)
    files.fail("rename")

    with capture_logs() as logs:
        first = [name for found in journal.sealed() for name in names_in(found)]
    second = [name for found in journal.sealed() for name in names_in(found)]

    assert (len(first), second) == (1, ["a", "b"])
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "segment cannot be adopted yet"
    ]


@pytest.mark.parametrize("count", range(1, 8))
def test_an_adopter_that_dies_anywhere_is_followed_by_one_that_finishes(count: int) -> None:
    files = MemoryDisk()
    dead = appender(files)
    append(dead, "a")
    append(dead, "b")
    files.kill()
    files.fail_nth(count, KeyboardInterrupt)
    try:
        Journal(ROOT, files).sealed()
    except KeyboardInterrupt:
        files.cut_power(lambda waiting: waiting // 2)

    files.heal()

    assert recovered(files) == ["a", "b"]


def test_strange_names_are_told_once_and_left_alone() -> None:
    files = MemoryDisk()
    live = appender(files)
    strange = [ROOT / "lost+found", ROOT / start_name(live.epoch) / "1.open"]
    for path in strange:
        files.close(files.create(path))

    with capture_logs() as logs:
        journal = Journal(ROOT, files)
        journal.sealed()
        journal.sealed()

    assert sorted(line["path"] for line in logs) == sorted(map(str, strange))
    assert not any("reason" in line for line in logs)
    assert all(files.size_bytes(path) == 0 for path in strange)


def test_rot_in_a_record_that_was_promised_names_the_loss_and_spares_the_rest() -> None:
    files = MemoryDisk()
    dead = appender(files)
    for name in "abc":
        append(dead, name)
    path = ROOT / start_name(dead.epoch) / "0000000000.open"
    offset = len(record("a"))
    files.write(files.open(path), memoryview(b"\xff"), offset + 100)
    files.kill()

    [found] = Journal(ROOT, files).sealed()
    damage, no_footer = found.damage(found.scan())

    assert names_in(found) == ["a", "c"]
    assert no_footer.reason.startswith("footer is missing")
    assert (damage.segment, damage.offset, damage.length_bytes) == (found.id, offset, len(record("b")))


def test_a_start_that_died_between_the_footer_and_the_new_name_is_sealed_once() -> None:
    files = MemoryDisk()
    dead = appender(files)
    append(dead, "a")
    files.fail("rename")
    dead.seal()
    files.kill()

    with capture_logs() as logs:
        [found] = Journal(ROOT, files).sealed()

    assert found.read() == sealed("a", dead.epoch)
    assert [line["event"] for line in logs] == ["segment adopted"]


def test_an_open_segment_of_which_only_the_footer_is_whole_is_kept_as_damage() -> None:
    files = MemoryDisk()
    dead = appender(files)
    append(dead, "a")
    files.fail("rename")
    dead.seal()
    path = ROOT / start_name(dead.epoch) / "0000000000.open"
    files.write(files.open(path), memoryview(b"\xff"), 100)
    files.kill()

    [found] = Journal(ROOT, files).sealed()

    assert names_in(found) == []
    assert [damage.length_bytes for damage in found.damage(found.scan())] == [len(record("a"))]


def test_rot_that_the_intake_itself_meets_does_not_stop_it() -> None:
    files = MemoryDisk()
    live = appender(files)
    append(live, "a")
    append(live, "b")
    path = ROOT / start_name(live.epoch) / "0000000000.open"
    files.write(files.open(path), memoryview(b"\xff"), 100)

    live.seal()

    [found] = Journal(ROOT, files).sealed()
    assert names_in(found) == ["b"]
    assert found.damage(found.scan())
    assert append(live, "c").seq == 1


def sealed(name: str, epoch: int) -> bytes:
    content = record(name, epoch=epoch)
    return content + transcode.footer(content)


def test_a_mark_that_outlived_its_segment_is_removed() -> None:
    files = MemoryDisk()
    dead = appender(files)
    append(dead, "a")
    dead.seal()
    files.close(files.create(ROOT / start_name(dead.epoch) / "0000000000.cut"))
    files.kill()

    assert recovered(files) == ["a"]
    assert "0000000000.cut" not in files.names(ROOT / start_name(dead.epoch))


def test_bytes_total_counts_open_and_sealed() -> None:
    files = MemoryDisk()
    live = appender(files)
    append(live, "a")
    before = Journal(ROOT, files).bytes_total()

    append(live, "b")

    assert Journal(ROOT, files).bytes_total() == before + len(record("b"))


def test_two_starts_never_share_a_directory_even_when_the_draw_is_the_same() -> None:
    files = MemoryDisk()
    draws = iter([1, 1, 1, 2])

    starts = [EpochDirectory.create(ROOT, files, lambda: next(draws)) for _ in range(2)]

    assert [start.epoch for start in starts] == [1, 2]


@pytest.mark.parametrize("removes_directory", [True, False], ids=["both removed", "only the note removed"])
def test_a_start_that_meets_its_adopter_before_it_holds_the_lock_draws_again(
    *, removes_directory: bool
) -> None:
    files = MeddledDisk()
    if not removes_directory:
        files.fail("remove_directory")

    start = EpochDirectory.create(ROOT, files, iter([1, 2]).__next__)

    assert start.epoch == 2
    assert start_name(2) in files.names(ROOT)


class MeddledDisk(MemoryDisk):
    """Somebody adopts the first directory, and removes what he can, in the moment before it is locked."""

    met = False

    def lock(self, fd: int) -> bool:
        if not self.met:
            self.met = True
            adopter = EpochDirectory.adopt(ROOT / start_name(1), self)
            assert adopter is not None
            adopter.leave()
        return super().lock(fd)


def test_a_root_whose_maker_died_before_its_name_was_on_the_disk_is_made_durable_by_the_next() -> None:
    files = MemoryDisk()
    files.fail_nth(2, Killed)
    with pytest.raises(Killed):
        appender(files)
    files.kill()

    append(appender(files), "a")
    files.cut_power(lambda _count: 0)

    assert recovered(files) == ["a"]


def test_a_draw_that_always_meets_others_gives_up() -> None:
    files = MemoryDisk()
    EpochDirectory.create(ROOT, files, lambda: 1)

    with pytest.raises(OSError, match=f"in {TRIES_MAX} tries"):
        EpochDirectory.create(ROOT, files, lambda: 1)


def test_a_live_start_cannot_be_adopted() -> None:
    files = MemoryDisk()
    live = EpochDirectory.create(ROOT, files)

    assert EpochDirectory.adopt(live.directory, files) is None
    assert files.names(live.directory) == ["start"]


def test_a_directory_that_was_never_locked_is_adopted_and_removed() -> None:
    files = MemoryDisk()
    appender(files).close()
    files.make_directory(ROOT / start_name(9))

    Journal(ROOT, files).sealed()

    assert files.names(ROOT) == []


def test_the_lock_holds_between_processes_and_is_not_inherited(tmp_path: Path) -> None:
    start = EpochDirectory.create(tmp_path, DISK)
    with multiprocessing.get_context("spawn").Pool(1) as other:
        while_held = other.apply(try_to_adopt, [start.directory])
        DISK.close(start.lock_fd)
        after = other.apply(try_to_adopt, [start.directory])

    assert (while_held, after) == (False, True)


def test_the_answers_survive_a_real_file_system(tmp_path: Path) -> None:
    live = appender(root=tmp_path)
    append(live, "a", rows=3)
    live.close()

    [found] = Journal(tmp_path).sealed()

    assert [(one.rows, answers_of(one)[0].drain) for one in found.scan().records] == [(3, "a")]
