"""First creation of the embedded store: complete, or repeated from the beginning.

DATA/store.creating   marker file: exists from before the store's first file is written until the tables are
                      known to be on the disk, just before the first INSERT. A start that finds it
                      recreates the store.

The engine ignores failed writes (T2). On a full disk it therefore leaves a store whose tables it cannot open
again, but which never held a row.

Invariant: a store without the marker, or with a part of a day in it, is never removed, whatever is wrong with
it. No row is inserted while the marker exists.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from receiver.durable.files import DIRECTORY_MODE, DISK, write_durably
from receiver.errors import OperatorError
from receiver.sizes import size_text

_PART_NAME = re.compile(r"\d{8}_\d+_\d+_\d+")


class Bootstrap:
    """State of the creation of the store at one path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._marker = path.with_name(f"{path.name}.creating")

    @property
    def is_under_way(self) -> bool:
        """Whether the tables are not yet known to be on the disk."""
        return self._marker.exists()

    def begin(self, *, disk_free_min: int) -> None:
        """Create an empty directory and the marker, unless a complete store exists.

        Raises `OperatorError` if less than `disk_free_min` bytes are free.
        """
        if self._path.exists():
            self._path.chmod(DIRECTORY_MODE)  # an earlier version made it readable for other users
            if not self.is_under_way:
                return
        self._path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(self._path.parent).free
        if free_bytes < disk_free_min:
            raise OperatorError(
                f"embedded store is not created: '{self._path.parent}' has {size_text(free_bytes)} free; "
                f"expected {size_text(disk_free_min)} (journal.disk_free_min)"
            )
        write_durably(self._marker, b"")
        if not self._is_open_elsewhere() and not self._holds_rows():
            shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)

    def end(self) -> bool:
        """Remove the marker, so that rows may be inserted.

        Returns False if a table definition did not reach the disk: the store must be recreated.
        """
        if any(not path.stat().st_size for path in self._files() if path.suffix == ".sql"):
            return False
        self._marker.unlink(missing_ok=True)
        DISK.sync_directory(self._marker.parent)
        return True

    def _holds_rows(self) -> bool:
        """Return whether the store holds rows: an older version inserted them without removing the marker."""
        return any(_PART_NAME.fullmatch(Path(root).name) for root, _, _ in os.walk(self._path))

    def _files(self) -> Iterator[Path]:
        """List every file of the store. Directories may disappear while the engine merges."""
        for root, _, names in os.walk(self._path):
            yield from (Path(root, name) for name in names)

    def _is_open_elsewhere(self) -> bool:
        """Return whether another process has the store open: the engine holds a lock on its `status` file."""
        try:
            fd = os.open(self._path / "status", os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            return False
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        finally:
            os.close(fd)
        return False
