"""Restore: writes a backup into a data directory without a store.

    DATA/restore                     the files of the backup, until all of them are checked
    DATA/replaced-by-restore         files that belonged to the missing store

    copy and check ─▶ open the engine, count the rows ─▶ sync ─▶ rename each file, the store last

Spans in DATA that no table has yet (journal, dead letters) stay, and so do records of the platform and views.
A segment of the backup is left out if DATA has a file of the same segment.

Invariant: DATA changes only after every checksum and row count agrees. The store is renamed last, so an
interrupted restore is repeated, and DATA/restore keeps the receiver from creating an empty store meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from receiver.backup.backup import Report, require_space
from receiver.backup.manifest import NAME, Manifest, StoredFile, read_manifest
from receiver.backup.pool import Pool, copy_file
from receiver.backup.snapshot import OF_STORE, RECORDS, SPANS
from receiver.durable.files import DISK, make_directories, remove_tree, unlink_if_exists
from receiver.engine.sql_text import compose
from receiver.engine.store import RESTORE, Store
from receiver.errors import CommandFailed
from receiver.settings import Settings
from receiver.sizes import counted

REPLACED: Final = "replaced-by-restore"
DRAFTS: Final = (".cut", ".rewrite")
"""Suffixes of files of a segment that do not have its spans."""
_ROWS: Final = compose("""
SELECT table, partition_id, sum(rows) FROM system.parts
WHERE database = currentDatabase() AND active
GROUP BY table, partition_id
""")
OpenStore = Callable[[Path], AbstractContextManager[Store]]
"""Opens the embedded engine in a directory."""


def restore(directory: Path, settings: Settings, open_store: OpenStore, report: Report) -> Manifest:
    """Restore a backup. The caller holds the locks of the data directory.

    Raises `CommandFailed`, or `OSError`; then the store is still missing, and the restore can be repeated.
    """
    data_dir = Path(settings.data_dir)
    manifest = _manifest(directory, data_dir, settings.store.database)
    staged = data_dir / RESTORE
    if DISK.size_bytes(staged) is not None:
        remove_tree(staged)
    require_space(data_dir, manifest.bytes_total)
    make_directories(staged)
    try:
        _copy(Pool(directory / "files"), manifest, staged, report)
        with open_store(staged / "store") as store:
            _require_rows(manifest, store, _expired_until(settings))
        DISK.sync_file_system(data_dir)
    # Also after Ctrl-C. Nothing is in its place yet.
    except BaseException:
        remove_tree(staged)
        raise
    _put_in_place(staged, data_dir)
    return manifest


def _manifest(directory: Path, data_dir: Path, database: str) -> Manifest:
    if not directory.is_dir():
        raise CommandFailed(f"there is no directory '{directory}'; expected one with a backup")
    manifest = read_manifest(directory)
    if manifest is None:
        raise CommandFailed(f"'{directory}' is not a backup: it has no file '{NAME}'")
    if DISK.size_bytes(data_dir / "store") is not None:
        raise CommandFailed(
            f"'{data_dir}' has a store already; expected another data directory, or that you move "
            f"'{data_dir / 'store'}' away"
        )
    if manifest.database != database:
        raise CommandFailed(
            f"the backup is of the database '{manifest.database}'; expected store.database to name it"
        )
    return manifest


def _copy(pool: Pool, manifest: Manifest, staged: Path, report: Report) -> None:
    bytes_copied = 0
    for file in manifest.files:
        target = staged / file.name
        _make_parents(target.parent)
        try:
            found = StoredFile(file.name, *copy_file(pool.path_of(file), target))
        except FileNotFoundError as error:
            raise CommandFailed(f"the backup lacks '{error.filename}' (the file '{file.name}')") from error
        if found != file:
            raise CommandFailed(
                f"'{pool.path_of(file)}' (the file '{file.name}') is damaged: {counted(found.bytes, 'byte')} "
                f"with another checksum; expected {counted(file.bytes, 'byte')}"
            )
        bytes_copied += file.bytes
        report(bytes_copied, manifest.bytes_total)


def _make_parents(path: Path) -> None:
    """Create missing directories, private and without a sync each: the file system is synced at the end."""
    if DISK.size_bytes(path) is None:
        _make_parents(path.parent)
        DISK.make_directory(path)


def _expired_until(settings: Settings) -> str:
    """Return the newest day, such as `20260131`, of which the engine may have deleted rows; empty if none."""
    retentions = (settings.store.retention_days, settings.platform.events.retention_days)
    days = min(filter(None, retentions), default=0)
    return f"{datetime.now(tz=UTC) - timedelta(days=days):%Y%m%d}" if days else ""


def _require_rows(manifest: Manifest, store: Store, expired_until: str) -> None:
    stored = {(table, partition): rows for table, partition, rows in store.rows(_ROWS)}
    for table, by_partition in manifest.rows.items():
        for partition, rows in by_partition.items():
            found = stored.get((table, partition), 0)
            # A month may be the partition; its rows may have expired, too.
            if found != rows and partition > expired_until[: len(partition)]:
                raise CommandFailed(
                    f"'{table}' has {counted(found, 'row')} of {partition} after the restore; expected {rows}"
                )


def _put_in_place(staged: Path, data_dir: Path) -> None:
    for name in OF_STORE:
        if DISK.size_bytes(data_dir / name) is not None:
            _set_aside(data_dir / name)
        if DISK.size_bytes(staged / name) is not None:
            DISK.rename(staged / name, data_dir / name)
    for name in (*SPANS, *RECORDS):
        if DISK.size_bytes(staged / name) is not None:
            _add(staged / name, data_dir / name, is_whole=name in RECORDS)
    # Of a store whose creation was interrupted: with this file, the receiver would create it again.
    unlink_if_exists(data_dir / "store.creating")
    DISK.sync_file_system(data_dir)
    DISK.rename(staged / "store", data_dir / "store")
    DISK.sync_directory(data_dir)
    remove_tree(staged)


def _set_aside(path: Path) -> None:
    """Move a file or directory away, or delete it if an earlier, interrupted restore moved the original."""
    aside = path.parent / REPLACED / path.name
    make_directories(aside.parent)
    if DISK.size_bytes(aside) is None:
        DISK.rename(path, aside)
    elif path.is_dir():
        remove_tree(path)
    else:
        DISK.unlink(path)


def _add(source: Path, target: Path, *, is_whole: bool) -> None:
    """Add a directory or file, without files that `target` has, and without segments whose spans it has."""
    if DISK.size_bytes(target) is None:
        DISK.rename(source, target)
    elif source.is_dir() and not is_whole:
        # A dead letter has its cause in its name. Of a segment, one file has the spans; another is a draft.
        names = {*DISK.names(target)}
        segments = {name.partition(".")[0] for name in names if not name.endswith(DRAFTS)}
        for name in DISK.names(source):
            is_segment = source.parent.name == "journal"
            is_present = name.partition(".")[0] in segments if is_segment else name in names
            if (source / name).is_dir() or not is_present:
                _add(source / name, target / name, is_whole=False)
