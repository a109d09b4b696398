"""Tests of the helpers that create, replace and delete files: durability, permissions, symbolic links."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from receiver.durable.files import (
    DISK,
    make_directories,
    open_or_create,
    remove_tree,
    unlink_if_exists,
    write_durably,
    write_unsynced,
)
from tests.support.memory_disk import MemoryDisk


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    make_directories(Path("/data"), disk)
    return disk


@contextmanager
def umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_created_directories_survive_a_power_cut(disk: MemoryDisk) -> None:
    make_directories(Path("/data/a/b"), disk)

    disk.cut_power()

    assert disk.is_directory(Path("/data/a/b"))


def test_directory_that_another_process_creates_first_is_used() -> None:
    class RacingDisk(MemoryDisk):
        def make_directory(self, path: Path, mode: int = 0) -> None:
            super().make_directory(path, mode)
            super().make_directory(path, mode)

    racing = RacingDisk()

    make_directories(Path("/data"), racing)

    assert racing.is_directory(Path("/data"))


def test_only_the_directory_itself_is_private_not_its_parents(tmp_path: Path) -> None:
    with umask(0o022):
        make_directories(tmp_path / "parent/private")

    modes = [(tmp_path / name).stat().st_mode & 0o777 for name in ("parent", "parent/private")]
    assert modes == [0o755, 0o700]


def test_directory_can_be_closed_to_other_users_later(tmp_path: Path) -> None:
    (tmp_path / "open").mkdir(mode=0o755)

    DISK.set_mode(tmp_path / "open", 0o700)

    assert (tmp_path / "open").stat().st_mode & 0o777 == 0o700


def test_tree_is_removed_with_its_content(disk: MemoryDisk) -> None:
    make_directories(Path("/data/a/b"), disk)
    for path in ("/data/a/1", "/data/a/b/2"):
        write_durably(Path(path), b"content", files=disk)

    remove_tree(Path("/data/a"), disk)

    assert disk.names(Path("/data")) == []


def test_removing_a_tree_deletes_symbolic_links_not_their_targets(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").touch()
    (tmp_path / "tree").mkdir()
    (tmp_path / "tree/link").symlink_to(tmp_path / "elsewhere")

    remove_tree(tmp_path / "tree")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["elsewhere"]
    assert (tmp_path / "elsewhere/kept").exists()


def test_tree_that_is_a_symbolic_link_is_not_removed(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kept").touch()
    (tmp_path / "tree").symlink_to(tmp_path / "elsewhere")

    with pytest.raises(NotADirectoryError):
        remove_tree(tmp_path / "tree")

    assert (tmp_path / "elsewhere/kept").exists()


def test_unlinking_a_missing_file_is_no_error(disk: MemoryDisk) -> None:
    unlink_if_exists(Path("/data/missing"), disk)

    assert ("unlink", "missing") not in disk.calls


def test_file_is_opened_with_its_content_or_created(disk: MemoryDisk) -> None:
    write_durably(Path("/data/lock"), b"12", files=disk)

    for name in ("lock", "new.lock"):
        disk.close(open_or_create(Path("/data", name), disk))

    assert [disk.read(Path("/data", name)) for name in ("lock", "new.lock")] == [b"12", b""]


def test_unsynced_write_replaces_the_file_without_a_sync(disk: MemoryDisk) -> None:
    write_durably(Path("/data/state"), b"old", files=disk)
    disk.calls.clear()

    write_unsynced(Path("/data/state"), b"new", files=disk)

    assert disk.read(Path("/data/state")) == b"new"
    assert {call for call, _ in disk.calls} == {"create", "write", "rename"}


def test_syncing_the_file_system_makes_all_pending_writes_durable(disk: MemoryDisk) -> None:
    make_directories(Path("/data/a"), disk)
    write_unsynced(Path("/data/a/1"), b"content", files=disk)

    disk.sync_file_system(Path("/data"))
    disk.cut_power()

    assert disk.read(Path("/data/a/1")) == b"content"
    DISK.sync_file_system(Path.cwd())
