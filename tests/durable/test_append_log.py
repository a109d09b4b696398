"""Append-only log on a failing disk: entries that were not synced are removed before the next append."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.durable.append_log import AppendLog
from tests.support.memory_disk import MemoryDisk

PATH = Path("/data/log")


class SyncRecorder(MemoryDisk):
    """Memory disk that records which descriptors were synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced: list[int] = []
        self.make_directory(PATH.parent)
        self.sync_directory(Path("/"))
        self.close(self.create(PATH))

    def sync_data(self, fd: int) -> None:
        self.synced.append(fd)
        super().sync_data(fd)


def test_failed_append_is_removed_before_the_next_entry() -> None:
    disk = SyncRecorder()
    log = AppendLog(PATH, 0, disk)
    disk.fail("sync_data", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        log.append(b"much longer than what follows")

    log.append(b"short")

    assert disk.read(PATH) == b"short"
    assert log.bytes_good == 5


def test_descriptor_is_not_used_again_after_a_failed_sync() -> None:
    disk = SyncRecorder()
    log = AppendLog(PATH, 0, disk)
    disk.fail("sync_data", times=1)
    with pytest.raises(OSError, match="Input/output error"):
        log.append(b"one")

    log.append(b"two")
    log.append(b"three")

    failed, *succeeded = disk.synced
    assert failed not in succeeded
    assert len(set(succeeded)) == 1
