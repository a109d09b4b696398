"""Claims about one segment file: what is on the disk when, and what every failing call leaves behind."""

import errno
import os
from pathlib import Path

import pytest

from receiver import transcode
from receiver.durable.files import DISK, Files, write_all, write_new
from receiver.journal.names import Kind
from receiver.journal.segment import Place, Segment
from tests.support.memory_disk import MemoryDisk
from tests.support.record_layout import record

HERE = Path("/here")
RECORD = record("a")


def broken_disk() -> OSError:
    return OSError(errno.EIO, os.strerror(errno.EIO))


def full_disk() -> OSError:
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def disk() -> MemoryDisk:
    """Return one with a durable directory to write in."""
    made = MemoryDisk()
    made.make_directory(HERE)
    made.sync_directory(HERE.parent)
    made.calls.clear()
    return made


def written(files: Files, directory: Path, *names: str) -> Segment:
    segment = Segment(Place(directory, 0, files))
    for name in names:
        segment.append(record(name), 1)
    return segment


def nothing_waiting(_count: int) -> int:
    return 0


def test_a_sealed_segment_is_a_file_of_records_and_a_footer(tmp_path: Path) -> None:
    segment = written(DISK, tmp_path, "a", "b")

    segment.close()
    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    content = record("a") + record("b")
    assert os.listdir(tmp_path) == ["0000000000.native.lz4"]  # noqa: PTH208 - names are compared
    assert (tmp_path / "0000000000.native.lz4").read_bytes() == content + transcode.footer(content)


def test_a_segment_without_records_leaves_no_file() -> None:
    files = disk()
    segment = Segment(Place(HERE, 0, files))

    segment.close()
    segment.place.seal(0, b"", Kind.LZ4)

    assert files.names(HERE) == []


def test_the_first_record_is_on_the_disk_with_its_name_before_append_returns() -> None:
    files = disk()

    written(files, HERE, "a")

    assert [call for call, _ in files.calls] == ["create", "write", "sync_data", "sync_directory"]


def test_a_later_record_costs_one_write_and_one_sync() -> None:
    files = disk()
    segment = written(files, HERE, "a")
    files.calls.clear()

    segment.append(record("b"), 1)

    assert [call for call, _ in files.calls] == ["write", "sync_data"]


def test_a_segment_is_named_sealed_only_once_its_footer_is_on_the_disk() -> None:
    files = disk()
    segment = written(files, HERE, "a")
    files.calls.clear()

    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    assert [call for call, _ in files.calls] == ["truncate", "write", "sync", "rename", "sync_directory"]


def test_short_writes_are_finished() -> None:
    files = disk()
    files.write_bytes_max = 7

    segment = written(files, HERE, "a", "b")

    assert files.read(HERE / "0000000000.open") == record("a") + record("b")
    assert segment.bytes_good == len(record("a") + record("b"))


def test_a_disk_that_takes_nothing_is_an_error_and_no_endless_loop() -> None:
    files = disk()
    files.write_bytes_max = 0
    fd = files.create(HERE / "x")

    with pytest.raises(OSError, match="expected progress"):
        write_all(files, fd, b"abc", 0)


@pytest.mark.parametrize("how", [broken_disk, full_disk])
@pytest.mark.parametrize("count", range(1, 5))
def test_whichever_call_of_an_append_fails_nothing_is_counted(count: int, how: type[OSError]) -> None:
    files = disk()
    segment = Segment(Place(HERE, 0, files))
    files.fail_nth(count, how)

    with pytest.raises(OSError, match=r"error|space"):
        segment.append(RECORD, 1)

    assert (segment.bytes_good, segment.sums.rows) == (0, 0)


@pytest.mark.parametrize("how", [broken_disk, full_disk])
@pytest.mark.parametrize("count", range(1, 6))
def test_whichever_call_of_a_seal_fails_a_second_try_succeeds(count: int, how: type[OSError]) -> None:
    files = disk()
    segment = written(files, HERE, "a")
    files.fail_nth(count, how)

    with pytest.raises(OSError, match=r"error|space"):
        segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)
    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)
    files.cut_power(nothing_waiting)

    assert files.read(HERE / "0000000000.native.lz4") == RECORD + transcode.footer(RECORD)


def test_a_failed_record_is_gone_after_a_cut_whatever_the_power_does() -> None:
    files = disk()
    segment = written(files, HERE, "a")
    files.fail("sync_data")
    with pytest.raises(OSError, match="error"):
        segment.append(record("b"), 1)

    segment.place.cut(segment.bytes_good)
    files.cut_power(nothing_waiting)

    assert files.read(HERE / "0000000000.open") == RECORD
    assert segment.place.bytes_promised() is None


@pytest.mark.parametrize("call", ["truncate", "sync"])
def test_where_a_file_cannot_be_cut_a_mark_says_how_much_was_promised(call: str) -> None:
    files = disk()
    segment = written(files, HERE, "a")
    files.fail(call)

    segment.place.cut(segment.bytes_good)
    files.cut_power(nothing_waiting)

    assert segment.place.bytes_promised() == len(RECORD)


@pytest.mark.parametrize("torn", [b"", b"1", b"13", b"x\n", b"-5\n"])
def test_a_torn_mark_says_nothing(torn: bytes, tmp_path: Path) -> None:
    (tmp_path / "0000000000.cut").write_bytes(torn)

    assert Place(tmp_path, 0, DISK).bytes_promised() is None


def test_the_mark_outlives_the_open_name() -> None:
    files = disk()
    segment = written(files, HERE, "a")
    files.fail("truncate")
    segment.place.cut(segment.bytes_good)
    files.calls.clear()

    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    assert [call for call, _ in files.calls][-4:] == ["rename", "sync_directory", "unlink", "sync_directory"]
    assert files.names(HERE) == ["0000000000.native.lz4"]


def test_a_file_that_was_taken_away_takes_no_record(tmp_path: Path) -> None:
    segment = written(DISK, tmp_path, "a")
    (tmp_path / "0000000000.open").unlink()

    with pytest.raises(FileNotFoundError, match="was removed"):
        segment.append(record("b"), 1)

    segment.close()


def test_a_segment_is_stored_once_no_name_of_it_is_left() -> None:
    files = disk()
    segment = written(files, HERE, "a")
    seen = [segment.place.is_stored()]

    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.ZSTD)
    seen.append(segment.place.is_stored())
    files.unlink(HERE / "0000000000.native.zst")
    seen.append(segment.place.is_stored())

    assert seen == [False, False, True]


def test_a_segment_that_is_sealed_between_two_looks_is_not_stored() -> None:
    class SealedMeanwhile(MemoryDisk):
        """A moment after the first look the open segment has its sealed name."""

        def size_bytes(self, path: Path) -> int | None:
            found = super().size_bytes(path)
            if "0000000000.open" in self.names(HERE):
                self.rename(HERE / "0000000000.open", HERE / "0000000000.native.lz4")
            return found

    files = SealedMeanwhile()
    files.make_directory(HERE)
    segment = written(files, HERE, "a")

    assert not segment.place.is_stored()


def test_a_segment_that_was_left_holds_no_descriptor() -> None:
    files = disk()
    segment = written(files, HERE, "a")
    held = files.descriptor_count

    segment.close()
    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    assert (held, files.descriptor_count) == (1, 0)


def test_a_descriptor_that_does_not_close_in_order_harms_nothing() -> None:
    class Grudging(MemoryDisk):
        """Closes, and says that something was wrong with it."""

        def close(self, fd: int) -> None:
            super().close(fd)
            raise broken_disk()

    files = Grudging()
    files.make_directory(HERE)
    segment = written(files, HERE, "a")

    segment.close()

    assert (segment.bytes_good, files.descriptor_count) == (len(RECORD), 0)


def test_what_a_killed_process_left_under_a_name_is_written_anew() -> None:
    files = disk()
    write_new(files, HERE / "draft", b"left behind, and longer")

    write_new(files, HERE / "draft", b"new")

    assert files.read(HERE / "draft") == b"new"


def test_a_file_that_is_there_is_never_taken_for_a_new_one(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"promised")
    (tmp_path / "link").symlink_to("elsewhere")

    for name in ("taken", "link"):
        with pytest.raises(FileExistsError):
            DISK.create(tmp_path / name)

    assert not (tmp_path / "elsewhere").exists()
