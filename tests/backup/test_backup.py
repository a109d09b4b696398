"""Backups: complete, incremental, and never replaced by an incomplete one."""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
from pathlib import Path

import pytest

from receiver.backup.backup import SPARE_BYTES, back_up
from receiver.backup.snapshot import DIRECTORY, frozen_parts
from receiver.durable.files import Disk
from receiver.errors import CommandFailed
from tests.backup.snapshots import DataDirectory, content_of, ignore, restored
from tests.support.cases import each_case
from tests.support.faulty_disk import WRITE_CALLS, faults_at_each_call, process_with
from tests.support.memory_disk import Killed, full_disk


def test_restored_files_have_the_content_of_the_snapshot(data: DataDirectory, tmp_path: Path) -> None:
    made = data.back_up(tmp_path / "backup")
    manifest = restored(tmp_path / "backup", tmp_path / "restored")

    assert content_of(tmp_path / "restored") == data.content
    assert manifest == made.manifest
    assert manifest.rows == {"otel_traces": {"20261127": 2, "20261128": 3}}
    assert made.files_copied == len(data.content)
    assert made.days_changed == 2


def test_backup_deletes_no_file_of_others(data: DataDirectory, tmp_path: Path) -> None:
    others = tmp_path / "others"
    others.mkdir()
    (others / ("a" * 64)).write_bytes(b"of others")
    files = tmp_path / "backup/files"
    (files / "photos").mkdir(parents=True)
    (files / "photos/a.jpg").write_bytes(b"of others")
    (files / "thesis.txt").write_bytes(b"of others")
    (files / "zz").symlink_to(others)

    data.back_up(tmp_path / "backup")

    for kept in (files / "photos/a.jpg", files / "thesis.txt", others / ("a" * 64)):
        assert kept.read_bytes() == b"of others"


def test_backup_writes_through_no_link(data: DataDirectory, tmp_path: Path) -> None:
    (tmp_path / "others").mkdir()
    files = tmp_path / "backup/files"
    files.mkdir(parents=True)
    for number in range(256):
        (files / f"{number:02x}").symlink_to(tmp_path / "others")

    with pytest.raises(CommandFailed, match="is a link; expected a directory of the backup"):
        data.back_up(tmp_path / "backup")

    assert list((tmp_path / "others").iterdir()) == []


def test_file_of_the_last_backup_is_not_replaced_by_a_copy_of_it(data: DataDirectory, tmp_path: Path) -> None:
    data.back_up(tmp_path / "backup")
    inodes = {path.stat().st_ino for path in (tmp_path / "backup/files").rglob("*") if path.is_file()}
    data.write("views.json", b"spans")

    data.back_up(tmp_path / "backup")

    assert {path.stat().st_ino for path in (tmp_path / "backup/files").rglob("*") if path.is_file()} == inodes


def test_next_backup_copies_only_what_changed_and_deletes_what_is_gone(
    data: DataDirectory, tmp_path: Path
) -> None:
    directory = tmp_path / "backup"
    data.back_up(directory)
    before = {path: path.stat().st_ino for path in directory.rglob("*") if path.is_file()}
    data.remove_part("20261128_2_2_0")
    data.add_part("20261128_2_3_1", rows=7)
    data.write("ledger/0000000001.log", b"entries, and one more")

    made = data.back_up(directory)

    # Three files of the part, and the log of the ledger.
    assert made.files_copied == 4
    assert made.bytes_copied == sum(
        len(content)
        for name, content in data.content.items()
        if "20261128_2_3_1" in name or name.startswith("ledger")
    )
    assert made.days_changed == 1
    kept = {path for path, inode in before.items() if path.exists() and path.stat().st_ino == inode}
    assert len([path for path in kept if path.parent.parent.name == "files"]) == len(data.content) - 4
    assert len(list(directory.glob("files/*/*"))) == len({*data.content.values()})
    restored(directory, tmp_path / "restored")
    assert content_of(tmp_path / "restored") == data.content


def test_backup_without_changes_copies_nothing(data: DataDirectory, tmp_path: Path) -> None:
    data.back_up(tmp_path / "backup")

    made = data.back_up(tmp_path / "backup")

    assert (made.files_copied, made.bytes_copied, made.days_changed) == (0, 0, 0)


def test_part_with_a_known_name_and_other_content_is_copied(data: DataDirectory, tmp_path: Path) -> None:
    data.back_up(tmp_path / "backup")
    data.remove_part("20261128_2_2_0")
    # Of the same size, as a table that was created again may write it.
    data.add_part("20261128_2_2_0", rows=3, content=b"COLUMNS")

    data.back_up(tmp_path / "backup")

    restored(tmp_path / "backup", tmp_path / "restored")
    assert content_of(tmp_path / "restored") == data.content


def test_file_that_is_missing_or_truncated_in_the_backup_is_copied_again(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.back_up(tmp_path / "backup")
    missing, truncated, *_ = sorted((tmp_path / "backup").glob("files/*/*"))
    missing.unlink()
    truncated.write_bytes(truncated.read_bytes()[:-1])

    made = data.back_up(tmp_path / "backup")

    assert made.files_copied >= 2
    restored(tmp_path / "backup", tmp_path / "restored")
    assert content_of(tmp_path / "restored") == data.content


@pytest.mark.fault("a backup is killed, or its disk fails, at any call")
@pytest.mark.parametrize("error", [Killed, full_disk], ids=["killed", "full disk"])
@pytest.mark.parametrize("is_first", [True, False], ids=["first", "next"])
def test_backup_interrupted_at_any_call_leaves_the_last_one_complete(
    data: DataDirectory, tmp_path: Path, error: type[BaseException], *, is_first: bool
) -> None:
    before = tmp_path / "before"
    if not is_first:
        data.back_up(before)
    allowed = [] if is_first else [data.content]
    data.remove_part("20261128_2_2_0")
    data.add_part("20261128_2_3_1", rows=7)
    allowed.append(data.content)
    fault_count = 0
    for fault in faults_at_each_call(WRITE_CALLS, error, is_permanent=error is Killed):
        directory = tmp_path / f"backup{fault.at}"
        if not is_first:
            shutil.copytree(before, directory)
        try:
            with process_with(fault):
                data.back_up(directory)
        except (Killed, OSError):
            fault_count += 1
        if (directory / "manifest").exists() or not is_first:
            restored(directory, tmp_path / f"restored{fault.at}")
            assert content_of(tmp_path / f"restored{fault.at}") in allowed

        data.back_up(directory)

        restored(directory, tmp_path / f"again{fault.at}")
        assert content_of(tmp_path / f"again{fault.at}") == data.content
        assert len(list(directory.glob("files/*/*"))) == len({*data.content.values()})
    assert fault_count > 10


def test_backup_that_fails_deletes_what_it_copied(data: DataDirectory, tmp_path: Path) -> None:
    data.back_up(tmp_path / "backup")
    before = content_of(tmp_path / "backup")
    data.add_part("20261129_9_9_0", rows=1)

    def failing(_self: Disk, _path: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Disk, "sync_file_system", failing)
        with pytest.raises(OSError, match="Input/output error"):
            data.back_up(tmp_path / "backup")

    assert content_of(tmp_path / "backup") == before


@each_case("gone", ["part", "parts", "snapshot"])
def test_snapshot_that_is_deleted_before_it_is_copied_makes_no_backup(
    tmp_path_factory: pytest.TempPathFactory, gone: str
) -> None:
    tmp_path = tmp_path_factory.mktemp("case")
    data = DataDirectory(tmp_path / "data")
    data.add_part("20261127_1_1_0", rows=2)
    data.add_part("20261128_2_2_0", rows=3)
    data.write("ledger.head", b"head")
    taken = data.snapshot()
    removed = {
        "part": data.part("20261127_1_1_0"),
        "parts": frozen_parts(data.path),
        "snapshot": data.path / DIRECTORY,
    }
    shutil.rmtree(removed[gone])

    with pytest.raises((CommandFailed, FileNotFoundError), match="snapshot"):
        back_up(data.path, taken, tmp_path / "backup", ignore)

    assert not (tmp_path / "backup/manifest").exists()


def test_directory_that_cannot_be_listed_makes_no_backup(
    data: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scandir = os.scandir

    def failing(path: Path | str) -> object:
        if str(path).endswith("20261127_1_1_0"):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        return scandir(path)

    monkeypatch.setattr(os, "scandir", failing)

    with pytest.raises(OSError, match="Input/output error"):
        data.back_up(tmp_path / "backup")


def test_backup_that_does_not_fit_is_refused_before_a_file_is_copied(
    data: DataDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needed = sum(map(len, data.content.values())) + SPARE_BYTES
    monkeypatch.setattr(Disk, "free_bytes", lambda _self, _path: needed - 1)

    with pytest.raises(CommandFailed, match=r"free; expected 64 MiB"):
        data.back_up(tmp_path / "backup")

    assert list((tmp_path / "backup/files").iterdir()) == []
    monkeypatch.setattr(Disk, "free_bytes", lambda _self, _path: needed)
    assert data.back_up(tmp_path / "backup").files_copied


def test_directory_with_other_files_is_refused_and_unchanged(data: DataDirectory, tmp_path: Path) -> None:
    (tmp_path / "home").mkdir()
    (tmp_path / "home/thesis.txt").write_text("text")

    with pytest.raises(CommandFailed, match=r"has other files, such as 'thesis\.txt'"):
        data.back_up(tmp_path / "home")

    assert content_of(tmp_path / "home") == {"thesis.txt": b"text"}


def test_backup_of_another_store_is_not_replaced(data: DataDirectory, tmp_path: Path) -> None:
    data.back_up(tmp_path / "backup")

    with pytest.raises(CommandFailed, match="holds a backup of another store"):
        back_up(data.path, data.snapshot("store/456/456-of-spans"), tmp_path / "backup", ignore)

    restored(tmp_path / "backup", tmp_path / "restored")
    assert content_of(tmp_path / "restored") == data.content


def test_second_backup_into_the_same_directory_at_the_same_time_is_refused(
    data: DataDirectory, tmp_path: Path
) -> None:
    data.back_up(tmp_path / "backup")
    with (tmp_path / "backup/lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)

        with pytest.raises(CommandFailed, match="another backup into"):
            data.back_up(tmp_path / "backup")


def test_progress_ends_with_the_bytes_that_are_copied(data: DataDirectory, tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []

    back_up(data.path, data.snapshot(), tmp_path / "backup", lambda *report: reports.append(report))

    total = sum(map(len, data.content.values()))
    assert reports == sorted(reports)
    assert reports[-1] == (total, total)
