"""Creation of the embedded store: it is completed, or repeated from the beginning.

DATA/store.creating   marker file: exists from before the store's first file is written until the tables are
                      known to be on the disk, just before the first INSERT. A start that finds it
                      recreates the store.

The engine ignores failed writes. On a full disk it therefore creates a store whose tables it cannot open
again. Such a store never held a row.

Invariant: a store without the marker, or with a part of a day in it, is never removed, whatever is wrong with
it. No row is inserted while the marker exists.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from receiver.durable.files import (
    DISK,
    make_directories,
    opened,
    remove_tree,
    unlink_if_exists,
    write_durably,
)
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
        """Whether the creation has not finished: the tables may not be on disk yet."""
        return self._marker.exists()

    def begin(self, *, disk_free_min: int) -> None:
        """Create an empty directory and the marker, unless a complete store exists.

        Raises `OperatorError` if less than `disk_free_min` bytes are free.
        """
        if self._path.exists() and not self.is_under_way:
            return
        make_directories(self._path.parent)
        free_bytes = DISK.free_bytes(self._path.parent)
        # Before the marker, so that a start on a full disk leaves nothing behind.
        if free_bytes < disk_free_min:
            raise OperatorError(
                f"embedded store is not created: '{self._path.parent}' has {size_text(free_bytes)} free; "
                f"expected {size_text(disk_free_min)} (journal.disk_free_min)"
            )
        # Durable before the first file of the store, or a crash could leave half a store without a marker.
        write_durably(self._marker, b"")
        # A marker alone is not trusted: it may be left over, or belong to a process that is creating the
        # store.
        if not self._is_open_elsewhere() and not self._holds_rows():
            with suppress(OSError):
                remove_tree(self._path)
        make_directories(self._path)

    def end(self) -> bool:
        """Remove the marker, so that rows may be inserted.

        Returns False if a table definition did not reach the disk: the store must be recreated.
        """
        # A failed write leaves an empty definition, and the engine reports success.
        if any(not path.stat().st_size for path in self._files() if path.suffix == ".sql"):
            return False
        unlink_if_exists(self._marker)
        # Durable before the first row: after a power failure, no marker may exist beside rows.
        DISK.sync_directory(self._marker.parent)
        return True

    def _holds_rows(self) -> bool:
        """Return whether the store holds rows: then it is never removed, even if the marker exists."""
        return any(_PART_NAME.fullmatch(Path(root).name) for root, _, _ in os.walk(self._path))

    def _files(self) -> Iterator[Path]:
        """List every file of the store. Directories may disappear while the engine merges."""
        for root, _, names in os.walk(self._path):
            yield from (Path(root, name) for name in names)

    def _is_open_elsewhere(self) -> bool:
        """Return whether another process has the store open: the engine holds a lock on its `status` file."""
        try:
            with opened(DISK, self._path / "status") as fd:
                return not DISK.lock(fd)
        except FileNotFoundError:
            return False
