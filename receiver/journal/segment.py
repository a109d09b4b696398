"""Segment file: records are appended, then the file is truncated, sealed with a footer and renamed.

Invariant: `bytes_good`, the end of valid data, advances only after the record and the file name are synced.
Never: retries on a descriptor that failed. After a failed sync the kernel may mark lost pages as clean, so
the file is truncated to `bytes_good` through a new descriptor, and later data is written to another segment.
"""

from __future__ import annotations

import errno
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from receiver.durable.files import opened, write_all, write_new
from receiver.journal.frame import Sums
from receiver.journal.names import SEALED, Kind, file_name

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from receiver.durable.files import Files


class Segment:
    """An open segment. The file is created with the first record, so an empty segment leaves no file."""

    def __init__(self, place: Place, is_abandoned: Callable[[], bool] = lambda: False) -> None:
        """`is_abandoned`: returns whether the directory was removed, and with it the lock on its files."""
        self.place = place
        self._is_abandoned = is_abandoned
        self.sums = Sums()
        self._fd: int | None = None

    @property
    def bytes_good(self) -> int:
        """Return the end of valid data: the number of synced bytes."""
        return self.sums.bytes

    def append(self, record: bytes, rows: int) -> None:
        """Write and sync one record. After an error only `close` may be called."""
        files, path = self.place.files, self.place.path(Kind.OPEN)
        if self._fd is None:
            self._fd = files.create(path)
        write_all(files, self._fd, record, self.bytes_good)
        # fdatasync suffices: it includes the file size, the only metadata needed to read the record.
        files.sync_data(self._fd)
        # The first record also needs its file name on disk, or a power failure could lose the whole file.
        if self.bytes_good == 0:
            files.sync_directory(self.place.directory)
        # Checked after the sync: only then is it certain that the record is in a file that the writer will
        # find.
        if self._is_abandoned() or not files.is_at(self._fd, path):
            raise FileNotFoundError(errno.ENOENT, "segment file was removed while in use")
        self.sums.add(record, rows)

    def close(self) -> None:
        """Close the descriptor. Errors are ignored: every acknowledged record is synced already."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                self.place.files.close(fd)


@dataclass(frozen=True, slots=True)
class Place:
    """Location of a segment, with the operations on a segment that accepts no more records."""

    directory: Path
    seq: int
    files: Files

    def path(self, kind: Kind) -> Path:
        return self.directory / file_name(self.seq, kind)

    def has(self, kind: Kind) -> bool:
        return self.files.size_bytes(self.path(kind)) is not None

    def is_stored(self) -> bool:
        """Return whether the segment was deleted."""
        # The open name is checked first, so that a concurrent rename to a sealed name is not missed.
        return not any(self.has(kind) for kind in (Kind.OPEN, *SEALED))

    def seal(self, bytes_good: int, footer: bytes, kind: Kind) -> None:
        """Truncate the file, add a footer and rename it to sealed; delete it if it has no valid data.

        Used for full segments, segments with a disk error and orphaned segments. Damaged records are kept:
        the writer reports them, and the footer shows how much is lost. After an error or a crash the call
        can be repeated.
        """
        path = self.path(Kind.OPEN)
        if self.has(Kind.OPEN):
            if bytes_good:
                self._write_footer(bytes_good, footer)
                # Renamed only after the footer is synced, so that a sealed name always means a complete file.
                self.files.rename(path, self.path(kind))
            else:
                # Without valid data nothing in the file was acknowledged.
                self.files.unlink(path)
        self.files.sync_directory(self.directory)
        self.unmark()

    def _write_footer(self, bytes_good: int, footer: bytes) -> None:
        with opened(self.files, self.path(Kind.OPEN)) as fd:
            self.files.truncate(fd, bytes_good)
            write_all(self.files, fd, footer, bytes_good)
            self.files.sync(fd)

    def cut(self, bytes_good: int) -> None:
        """Truncate the file to `bytes_good` or, if that fails, record the size in a marker file.

        A record that was written but not acknowledged will be resent, so it must not survive.
        """
        try:
            if self.has(Kind.OPEN):
                with opened(self.files, self.path(Kind.OPEN)) as fd:
                    self.files.truncate(fd, bytes_good)
                    self.files.sync(fd)
        except OSError:
            # A disk that cannot change this file may still accept a new one; adoption obeys the marker.
            write_new(self.files, self.path(Kind.MARK), b"%d\n" % bytes_good)
            self.files.sync_directory(self.directory)

    def bytes_promised(self) -> int | None:
        """Return the valid size from the marker file. `None`: no marker, and every complete record is valid.

        An incomplete marker counts as missing, because no record was acknowledged after it was begun.
        """
        if not self.has(Kind.MARK):
            return None
        text = self.files.read(self.path(Kind.MARK))
        digits = text.removesuffix(b"\n")
        # Without the final newline the digits may be only the beginning of the number.
        return int(digits) if text != digits and digits.isdigit() else None

    def unmark(self) -> None:
        """Delete the marker file. Call it only after the removal of the open name is synced."""
        if self.has(Kind.MARK):
            self.files.unlink(self.path(Kind.MARK))
            self.files.sync_directory(self.directory)
