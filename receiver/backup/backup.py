"""Backup: copies a snapshot into a directory, which holds one complete backup at any time.

    DIR/manifest   names the files of the backup
    DIR/files      the files: see `pool`
    DIR/lock       held by the command that writes to this directory

    delete what no manifest names ─▶ copy new files ─▶ sync ─▶ replace the manifest ─▶ delete old files

Parts of the engine never change: a part with the same name and the same checksums.txt is the same part.

Invariant: an interrupted backup leaves the manifest before it, and all files that it names.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Final, NamedTuple

from receiver import __version__
from receiver.backup import manifest as manifests
from receiver.backup.manifest import Manifest, StoredFile, read_manifest, write_manifest
from receiver.backup.pool import Pool, sha256_of
from receiver.backup.snapshot import DIRECTORY, Snapshot, frozen_parts, part_count
from receiver.durable.files import DISK, lock_held, make_directories
from receiver.engine.store import TABLE
from receiver.errors import CommandFailed
from receiver.sizes import size_text

CHECKSUMS: Final = "checksums.txt"
"""File of a part with the checksums of its other files."""
SPARE_BYTES: Final = 64 << 20
"""Free space that a backup or restore leaves, for its manifest and for directories."""
Report = Callable[[int, int], None]
"""Takes the number of bytes that are copied, and the number of all bytes to copy."""


class SnapshotFile(NamedTuple):
    path: Path
    name: str
    """Path in the data directory after a restore."""


class Made(NamedTuple):
    """A finished backup, and what had to be copied for it."""

    manifest: Manifest
    files_copied: int
    bytes_copied: int
    days_changed: int


def back_up(data_dir: Path, snapshot: Snapshot, directory: Path, report: Report) -> Made:
    """Copy a snapshot. Raises `CommandFailed`, or `OSError`; then the last backup in `directory` remains."""
    make_directories(directory)
    # Before the lock file is created, because the directory may be of something else.
    _current(directory, snapshot)
    with lock_held(directory / "lock", f"another backup into '{directory}' runs; expected it to end first"):
        current = _current(directory, snapshot)
        make_directories(directory / "files")
        pool = Pool(directory / "files")
        # An interrupted backup may have renamed its manifest without a sync. The files that only the manifest
        # before it names are deleted next, so a power failure must not bring that manifest back.
        DISK.sync_directory(directory)
        # What a killed backup copied is not used, because it may not be durable.
        pool.keep_only(current.files if current else ())
        try:
            made = _copied(data_dir, snapshot, current, pool, report)
            DISK.sync_file_system(directory)
        # Also after Ctrl-C. The manifest is still the one before.
        except BaseException:
            pool.keep_only(current.files if current else ())
            raise
        write_manifest(directory, made.manifest)
        pool.keep_only(made.manifest.files)
    return made


def _current(directory: Path, snapshot: Snapshot) -> Manifest | None:
    """Return the manifest of the last backup, if the directory can take the next one."""
    current = read_manifest(directory)
    if current is None and (other := {*DISK.names(directory)} - {"lock", "files", f".{manifests.NAME}.tmp"}):
        raise CommandFailed(
            f"'{directory}' has other files, such as '{min(other)}'; expected an empty directory or a backup"
        )
    if current is not None and current.store_id != snapshot.store_id:
        raise CommandFailed(
            f"'{directory}' holds a backup of another store; expected a directory for each store"
        )
    return current


def _copied(data_dir: Path, snapshot: Snapshot, current: Manifest | None, pool: Pool, report: Report) -> Made:
    """Copy the files that the last backup lacks. Returns the manifest, which is not written yet."""
    kept: list[StoredFile] = []
    new: list[tuple[SnapshotFile, int]] = []
    earlier = {file.name: file for file in current.files} if current else {}
    for part in _directories(data_dir, snapshot):
        unchanged = {file.name: file for file in _unchanged(part, earlier, pool)}
        kept += unchanged.values()
        new += [(source, source.path.stat().st_size) for source in part if source.name not in unchanged]
    bytes_new = sum(size_bytes for _, size_bytes in new)
    require_space(pool.root, bytes_new)
    copied: list[StoredFile] = []
    bytes_copied = 0
    for source, size_bytes in new:
        copied.append(pool.add(source.path, source.name))
        bytes_copied += size_bytes
        report(bytes_copied, bytes_new)
    # A missing directory would look like a table without parts.
    if part_count(data_dir) != snapshot.part_count:
        raise CommandFailed(
            "the snapshot was deleted while it was copied; expected a backup of all its parts"
        )
    manifest = Manifest(
        format=manifests.FORMAT,
        receiver=__version__,
        taken_at=snapshot.taken_at,
        database=snapshot.database,
        store_id=snapshot.store_id,
        rows=_rows(data_dir, snapshot),
        files=[*kept, *copied],
    )
    spans = f"store/{snapshot.store_id}/"
    days = {_partition(source.path.parent.name) for source, _ in new if source.name.startswith(spans)}
    return Made(manifest, len(new), bytes_new, len(days))


def require_space(directory: Path, bytes_needed: int) -> None:
    """Raise `CommandFailed` if the file system of this directory has too little free space."""
    bytes_free, bytes_needed = DISK.free_bytes(directory), bytes_needed + SPARE_BYTES
    if bytes_free < bytes_needed:
        raise CommandFailed(
            f"'{directory}' has {size_text(bytes_free)} free; expected {size_text(bytes_needed)}"
        )


def _directories(data_dir: Path, snapshot: Snapshot) -> Iterator[list[SnapshotFile]]:
    """Yield the files of a snapshot by directory."""
    tables = ((frozen_parts(data_dir) / path, f"store/{path}") for path in snapshot.tables.values())
    # The engine creates no directory for a table without parts.
    with_parts = [(root, prefix) for root, prefix in tables if DISK.size_bytes(root) is not None]
    for root, prefix in [(data_dir / DIRECTORY, ""), *with_parts]:
        for directory, _, names in os.walk(root, onerror=_fail):
            at = PurePosixPath(prefix) / PurePosixPath(directory).relative_to(root)
            yield [SnapshotFile(Path(directory, name), str(at / name)) for name in sorted(names)]


def _fail(error: OSError) -> None:
    # Without this, a directory that cannot be listed would be left out silently.
    raise error


def _unchanged(sources: list[SnapshotFile], earlier: dict[str, StoredFile], pool: Pool) -> list[StoredFile]:
    """Return the files of a directory that the last backup has already."""
    known = [
        (source, file)
        for source in sources
        if (file := earlier.get(source.name)) is not None
        and source.path.stat().st_size == file.bytes
        and pool.holds(file)
    ]
    sums = [(source, file) for source, file in known if source.path.name == CHECKSUMS]
    if any(sha256_of(source.path) == file.sha256 for source, file in sums):
        return [file for _, file in known]
    return [file for source, file in known if sha256_of(source.path) == file.sha256]


def _rows(data_dir: Path, snapshot: Snapshot) -> dict[str, dict[str, int]]:
    rows: dict[str, dict[str, int]] = {}
    for table, path in snapshot.tables.items():
        by_partition: dict[str, int] = defaultdict(int)
        for count in (frozen_parts(data_dir) / path).glob("*/count.txt"):
            by_partition[_partition(count.parent.name)] += int(DISK.read(count))
        rows[table] = dict(by_partition)
    return rows


def _partition(part: str) -> str:
    return part.partition("_")[0]


def spans_of(manifest: Manifest) -> dict[str, int]:
    """Return the number of spans by day."""
    return manifest.rows.get(TABLE, {})
