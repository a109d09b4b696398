"""Tests of a segment file: order of disk operations, and the state after each failing call."""

import os
from pathlib import Path

import pytest

from receiver import transcode
from receiver.durable.files import DISK, Files, write_all, write_new
from receiver.journal.names import Kind
from receiver.journal.segment import Place, Segment
from tests.support.memory_disk import MemoryDisk, broken_disk, full_disk
from tests.support.record_layout import record

HERE = Path("/here")
RECORD = record("a")


def disk() -> MemoryDisk:
    """Return a memory disk with a durable directory."""
    memory_disk = MemoryDisk()
    memory_disk.make_directory(HERE)
    memory_disk.sync_directory(HERE.parent)
    memory_disk.calls.clear()
    return memory_disk


def write_segment(files: Files, directory: Path, *names: str) -> Segment:
    segment = Segment(Place(directory, 0, files))
    for name in names:
        segment.append(record(name), 1)
    return segment


def test_sealed_segment_is_a_file_of_records_and_a_footer(tmp_path: Path) -> None:
    segment = write_segment(DISK, tmp_path, "a", "b")

    segment.close()
    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    content = record("a") + record("b")
    assert os.listdir(tmp_path) == ["0000000000.native.lz4"]  # noqa: PTH208 - names are compared
    assert (tmp_path / "0000000000.native.lz4").read_bytes() == content + transcode.footer(content)


def test_segment_without_records_leaves_no_file() -> None:
    files = disk()
    segment = Segment(Place(HERE, 0, files))

    segment.close()
    segment.place.seal(0, b"", Kind.LZ4)

    assert files.names(HERE) == []


def test_first_append_syncs_the_record_and_the_directory() -> None:
    files = disk()

    write_segment(files, HERE, "a")

    assert [call for call, _ in files.calls] == ["create", "write", "sync_data", "sync_directory"]


def test_later_append_takes_a_single_write_and_sync() -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    files.calls.clear()

    segment.append(record("b"), 1)

    assert [call for call, _ in files.calls] == ["write", "sync_data"]


def test_segment_is_renamed_only_after_its_footer_is_synced() -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    files.calls.clear()

    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    assert [call for call, _ in files.calls] == ["truncate", "write", "sync", "rename", "sync_directory"]


def test_short_writes_are_completed() -> None:
    files = disk()
    files.write_bytes_max = 7

    segment = write_segment(files, HERE, "a", "b")

    assert files.read(HERE / "0000000000.open") == record("a") + record("b")
    assert segment.bytes_good == len(record("a") + record("b"))


def test_write_without_progress_is_an_error() -> None:
    files = disk()
    files.write_bytes_max = 0
    fd = files.create(HERE / "x")

    with pytest.raises(OSError, match="expected progress"):
        write_all(files, fd, b"abc", 0)


@pytest.mark.parametrize("error", [broken_disk, full_disk])
@pytest.mark.parametrize("count", range(1, 5))
def test_failed_append_is_not_counted_whichever_call_fails(count: int, error: type[OSError]) -> None:
    files = disk()
    segment = Segment(Place(HERE, 0, files))
    files.fail_nth(count, error)

    with pytest.raises(OSError, match=r"error|space"):
        segment.append(RECORD, 1)

    assert (segment.bytes_good, segment.sums.rows) == (0, 0)


@pytest.mark.parametrize("error", [broken_disk, full_disk])
@pytest.mark.parametrize("count", range(1, 6))
def test_failed_seal_can_be_retried_whichever_call_fails(count: int, error: type[OSError]) -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    files.fail_nth(count, error)

    with pytest.raises(OSError, match=r"error|space"):
        segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)
    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)
    files.cut_power()

    assert files.read(HERE / "0000000000.native.lz4") == RECORD + transcode.footer(RECORD)


def test_truncated_record_is_gone_after_a_power_failure() -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    files.fail("sync_data")
    with pytest.raises(OSError, match="error"):
        segment.append(record("b"), 1)

    segment.place.cut(segment.bytes_good)
    files.cut_power()

    assert files.read(HERE / "0000000000.open") == RECORD
    assert segment.place.bytes_promised() is None


@pytest.mark.parametrize("call", ["truncate", "sync"])
def test_cut_mark_records_the_acknowledged_size_if_truncation_fails(call: str) -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    files.fail(call)

    segment.place.cut(segment.bytes_good)
    files.cut_power()

    assert segment.place.bytes_promised() == len(RECORD)


@pytest.mark.parametrize("torn", [b"", b"1", b"13", b"x\n", b"-5\n"])
def test_torn_cut_mark_is_ignored(torn: bytes, tmp_path: Path) -> None:
    (tmp_path / "0000000000.cut").write_bytes(torn)

    assert Place(tmp_path, 0, DISK).bytes_promised() is None


def test_cut_mark_is_deleted_after_the_rename() -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    files.fail("truncate")
    segment.place.cut(segment.bytes_good)
    files.calls.clear()

    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    assert [call for call, _ in files.calls][-4:] == ["rename", "sync_directory", "unlink", "sync_directory"]
    assert files.names(HERE) == ["0000000000.native.lz4"]


def test_append_to_a_deleted_file_fails(tmp_path: Path) -> None:
    segment = write_segment(DISK, tmp_path, "a")
    (tmp_path / "0000000000.open").unlink()

    with pytest.raises(FileNotFoundError, match="was removed"):
        segment.append(record("b"), 1)

    segment.close()


def test_segment_is_stored_once_all_its_files_are_deleted() -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    answers = [segment.place.is_stored()]

    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.ZSTD)
    answers.append(segment.place.is_stored())
    files.unlink(HERE / "0000000000.native.zst")
    answers.append(segment.place.is_stored())

    assert answers == [False, False, True]


def test_segment_that_is_sealed_during_the_check_is_not_stored() -> None:
    class SealingDisk(MemoryDisk):
        """Disk that renames the open segment right after the first check."""

        def size_bytes(self, path: Path) -> int | None:
            size = super().size_bytes(path)
            if "0000000000.open" in self.names(HERE):
                self.rename(HERE / "0000000000.open", HERE / "0000000000.native.lz4")
            return size

    files = SealingDisk()
    files.make_directory(HERE)
    segment = write_segment(files, HERE, "a")

    assert not segment.place.is_stored()


def test_closed_segment_has_no_open_descriptor() -> None:
    files = disk()
    segment = write_segment(files, HERE, "a")
    open_count = files.descriptor_count

    segment.close()
    segment.place.seal(segment.bytes_good, segment.sums.footer(), Kind.LZ4)

    assert (open_count, files.descriptor_count) == (1, 0)


def test_error_on_close_is_ignored() -> None:
    class FailingClose(MemoryDisk):
        """Disk whose close succeeds but raises."""

        def close(self, fd: int) -> None:
            super().close(fd)
            raise broken_disk()

    files = FailingClose()
    files.make_directory(HERE)
    segment = write_segment(files, HERE, "a")

    segment.close()

    assert (segment.bytes_good, files.descriptor_count) == (len(RECORD), 0)


def test_write_new_replaces_a_leftover_file() -> None:
    files = disk()
    write_new(files, HERE / "draft", b"left behind, and longer")

    write_new(files, HERE / "draft", b"new")

    assert files.read(HERE / "draft") == b"new"


def test_create_refuses_an_existing_file(tmp_path: Path) -> None:
    (tmp_path / "taken").write_bytes(b"existing")
    (tmp_path / "link").symlink_to("target")

    for name in ("taken", "link"):
        with pytest.raises(FileExistsError):
            DISK.create(tmp_path / name)

    assert not (tmp_path / "target").exists()
