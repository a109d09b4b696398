"""Read-only listing of a journal: takes no locks and writes nothing; files may be deleted meanwhile."""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from receiver import transcode
from receiver.durable.files import DISK, Files, open_to_read
from receiver.errors import CommandFailed
from receiver.journal.epoch_directory import note_of
from receiver.journal.frame import Damage, FooterCounts, damage_in, footer_counts_of
from receiver.journal.names import SEALED, START_NOTE, Kind, epoch_of, parse_file_name
from receiver.model import SegmentId

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from receiver.transcode import Scan


def is_newer(path: Path, files: Files) -> bool:
    """Return whether a segment begins with a record of a newer version. Usually reads only the head.

    After a downgrade the journal may hold records in an unknown format. They look damaged, but they are
    acknowledged, and the newer version can read them. Invariant: such a segment is not truncated, sealed,
    stored, dead-lettered or deleted.
    """
    head = files.read_head(path, transcode.HEAD_BYTES)
    # A damaged version field also looks newer in the head; only the whole file shows the difference.
    return transcode.is_newer(head) and transcode.is_newer(files.read(path))


LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True)
class SegmentInfo:
    id: SegmentId
    path: Path
    is_sealed: bool
    is_epoch_active: bool
    bytes: int
    age_s: float
    """Seconds since the last write."""

    @property
    def state(self) -> str:
        """Return `sealed`, `open` or `left open`: open, but its intake has ended."""
        if self.is_sealed:
            return "sealed"
        return "open" if self.is_epoch_active else "left open"

    def read(self) -> Scan:
        """Read every record. Raises `FileNotFoundError` if the segment was stored and deleted meanwhile."""
        return transcode.scan(DISK.read(self.path))

    def damage(self, scan: Scan) -> list[Damage]:
        """Return the unreadable ranges. A segment of a newer version is reported as a whole."""
        if is_newer(self.path, DISK):
            return [Damage(self.id, 0, self.bytes, "written by a newer version, which can read it")]
        return damage_in(scan, self.id, self.bytes if self.is_sealed else None)

    def footer_counts(self) -> FooterCounts:
        """Return the counts of records and rows from the footer or, without one, by reading the records."""
        counts = self._footer_counts() if self.is_sealed else None
        if counts is not None:
            return counts
        scan = self.read()
        return FooterCounts(len(scan.records), sum(record.rows for record in scan.records), scan.good_bytes)

    def _footer_counts(self) -> FooterCounts | None:
        with open_to_read(self.path) as file:
            file.seek(max(0, self.bytes - transcode.FOOTER_BYTES))
            return footer_counts_of(file.read())


def list_segments(root: Path) -> Iterator[SegmentInfo]:
    """Yield every segment, ordered by epoch and sequence number."""
    paths = root.iterdir() if root.is_dir() else ()
    epochs = [path for path in paths if epoch_of(path.name) is not None and path.is_dir()]
    for directory in sorted(epochs, key=lambda path: (note_of(path, DISK).created_at_ns, path.name)):
        # The writer may delete the segment, and then the directory, during the listing.
        with suppress(FileNotFoundError):
            is_active = is_epoch_active(directory)
            for path in sorted(directory.iterdir()):
                with suppress(FileNotFoundError):
                    yield from _segments_at(path, is_active=is_active)


def _segments_at(path: Path, *, is_active: bool) -> Iterator[SegmentInfo]:
    named = parse_file_name(path.name)
    if named is not None and named.kind in (Kind.OPEN, *SEALED):
        segment = SegmentId(epoch_of(path.parent.name) or 0, named.seq)
        yield _segment_info(segment, path, is_sealed=named.kind in SEALED, is_active=is_active)


def _segment_info(segment: SegmentId, path: Path, *, is_sealed: bool, is_active: bool) -> SegmentInfo:
    status = path.stat()
    return SegmentInfo(
        segment, path, is_sealed, is_active, status.st_size, max(0.0, time.time() - status.st_mtime)
    )


def is_epoch_active(directory: Path) -> bool:
    """Return whether a process holds the lock of this epoch, according to `/proc/locks`."""
    inode = (directory / START_NOTE).stat().st_ino
    # Taking the lock to test it could make an intake or the writer believe that the epoch is in use.
    locks = [line.split() for line in LOCKS.read_text().splitlines()]
    return any("FLOCK" in fields and fields[5].endswith(f":{inode}") for fields in locks)


def find_segment(name: str, root: Callable[[], Path]) -> SegmentInfo:
    """Return a segment by its path or by its name as `journal ls` prints it.

    If no file has this path, the name is searched under `root`.
    """
    path = Path(name)
    if path.is_file():
        return _segment_at(path)
    for segment in () if "/" in name else list_segments(root()):
        if str(segment.id) == name:
            return segment
    raise CommandFailed(
        f"segment '{name}' does not exist; expected a path or a name that `journal ls` prints"
    )


def _segment_at(path: Path) -> SegmentInfo:
    """Return a segment at any path. Its id comes from its records or, without records, from its name."""
    scan = transcode.scan(path.read_bytes())
    # An operator may name any file, so something must show that it is a segment.
    if not (scan.records or scan.sealed or parse_file_name(path.name)):
        raise CommandFailed(f"'{path}' holds no record of a journal; expected a segment")
    is_sealed = path.name.endswith(SEALED)
    return _segment_info(SegmentId(scan.epoch, scan.seq), path, is_sealed=is_sealed, is_active=True)
