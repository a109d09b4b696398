"""One segment file: written record by record, then cut, closed with a footer and named sealed.

Keeps: `bytes_good` moves only past records that are on the disk under a name that is on the disk too.
Never: a second try on a descriptor that failed. After a failed sync the kernel may call lost pages clean,
so whatever comes next cuts the file to `bytes_good` through a fresh descriptor and writes what follows anew.
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
    """A file being written. It comes into being with its first record: an empty one leaves no trace."""

    def __init__(self, place: Place, is_abandoned: Callable[[], bool] = lambda: False) -> None:
        """`is_abandoned`: whether the directory is not ours any more: others may adopt what is in it."""
        self.place = place
        self._is_abandoned = is_abandoned
        self.sums = Sums()
        self._fd: int | None = None

    @property
    def bytes_good(self) -> int:
        """How far it is promised."""
        return self.sums.bytes

    def append(self, record: bytes, rows: int) -> None:
        """Put one record on the disk: one write, one sync. After an error only `close` may follow."""
        files, path = self.place.files, self.place.path(Kind.OPEN)
        if self._fd is None:
            self._fd = files.create(path)
        write_all(files, self._fd, record, self.bytes_good)
        files.sync_data(self._fd)
        if self.bytes_good == 0:
            files.sync_directory(self.place.directory)
        if self._is_abandoned() or not files.is_at(self._fd, path):
            raise FileNotFoundError(errno.ENOENT, "segment file was taken away while in use")
        self.sums.add(record, rows)

    def close(self) -> None:
        """Give the descriptor back. Whether the content is safe was settled by the syncs before."""
        if self._fd is not None:
            fd, self._fd = self._fd, None
            with suppress(OSError):
                self.place.files.close(fd)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a segment lies, and what can be done to it there once nobody appends any more."""

    directory: Path
    seq: int
    files: Files

    def path(self, kind: Kind) -> Path:
        """Path of the segment, or of what belongs to it."""
        return self.directory / file_name(self.seq, kind)

    def has(self, kind: Kind) -> bool:
        """Whether it lies there under this name."""
        return self.files.size_bytes(self.path(kind)) is not None

    def is_stored(self) -> bool:
        """Whether nothing of it is left. The open name first: a rename in between is then seen."""
        return not any(self.has(kind) for kind in (Kind.OPEN, *SEALED))

    def seal(self, bytes_good: int, footer: bytes, kind: Kind) -> None:
        """Cut it, close it with a footer, name it sealed; remove it when nothing in it was ever promised.

        The same act for a segment that is full, one that met a disk error and one that a dead start left.
        Promised bytes that rotted stay as they are: the writer finds them, and the footer says what is lost.
        Stopped anywhere, by an error or a crash, it can be done again from the beginning.
        """
        path = self.path(Kind.OPEN)
        if self.has(Kind.OPEN):
            if bytes_good:
                self._close(bytes_good, footer)
                self.files.rename(path, self.path(kind))
            else:
                self.files.unlink(path)
        self.files.sync_directory(self.directory)
        self.unmark()

    def _close(self, bytes_good: int, footer: bytes) -> None:
        with opened(self.files, self.path(Kind.OPEN)) as fd:
            self.files.truncate(fd, bytes_good)
            write_all(self.files, fd, footer, bytes_good)
            self.files.sync(fd)

    def cut(self, bytes_good: int) -> None:
        """See to it that nothing after `bytes_good` comes back: cut it off or, failing that, mark the place.

        A record that was written but never acknowledged will be sent again, so it must not survive.
        """
        try:
            if self.has(Kind.OPEN):
                with opened(self.files, self.path(Kind.OPEN)) as fd:
                    self.files.truncate(fd, bytes_good)
                    self.files.sync(fd)
        except OSError:
            write_new(self.files, self.path(Kind.MARK), b"%d\n" % bytes_good)
            self.files.sync_directory(self.directory)

    def bytes_promised(self) -> int | None:
        """Read the mark; none: every whole record counts. After a torn one nothing was acknowledged."""
        if not self.has(Kind.MARK):
            return None
        text = self.files.read(self.path(Kind.MARK))
        digits = text.removesuffix(b"\n")
        return int(digits) if text != digits and digits.isdigit() else None

    def unmark(self) -> None:
        """Remove the mark, which must not happen before the open name is durably gone."""
        if self.has(Kind.MARK):
            self.files.unlink(self.path(Kind.MARK))
            self.files.sync_directory(self.directory)
