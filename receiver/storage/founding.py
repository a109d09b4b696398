"""The first creation of the embedded store: whole, or begun anew.

DATA/store.creating   lies there from before the store's first file until a first row is about to come, and
                      the tables were seen to be on the disk; a start that finds it makes the store anew

The engine takes refused writes for done (T2). On a full disk that leaves a store whose tables it cannot open
again, and which never held a row of ours.

Keeps: a store without that note, or with a part of a day in it, is never removed, whatever is wrong with it.
No row is inserted beside the note.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from receiver.errors import OperatorError
from receiver.journal.files import DIRECTORY_MODE, DISK, write_durably
from receiver.sizes import size_text

_PART_OF_A_DAY = re.compile(r"\d{8}_\d+_\d+_\d+")


class Founding:
    """The creation of the store at this path."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._note = path.with_name(f"{path.name}.creating")

    @property
    def is_under_way(self) -> bool:
        """Whether the store is not known to be whole yet."""
        return self._note.exists()

    def begin(self, *, disk_free_min: int) -> None:
        """Make room for a store, unless there is one. Raises `OperatorError` below the floor."""
        if self._path.exists():
            self._path.chmod(DIRECTORY_MODE)  # made readable for others by an earlier version
            if not self.is_under_way:
                return
        self._path.parent.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        free_bytes = shutil.disk_usage(self._path.parent).free
        if free_bytes < disk_free_min:
            raise OperatorError(
                f"embedded store is not created: '{self._path.parent}' has {size_text(free_bytes)} free; "
                f"expected {size_text(disk_free_min)} (journal.disk_free_min)"
            )
        write_durably(self._note, b"")
        if not self._is_open_elsewhere() and not self._holds_rows():
            shutil.rmtree(self._path, ignore_errors=True)
        self._path.mkdir(mode=DIRECTORY_MODE, exist_ok=True)

    def end(self) -> bool:
        """Let rows come. False: a table's description did not reach the disk, and all must begin anew."""
        if any(not path.stat().st_size for path in self._files() if path.suffix == ".sql"):
            return False
        self._note.unlink(missing_ok=True)
        DISK.sync_directory(self._note.parent)
        return True

    def _holds_rows(self) -> bool:
        """Whether there is a part of a day: an older version, which knows no note, may have gone on."""
        return any(_PART_OF_A_DAY.fullmatch(Path(root).name) for root, _, _ in os.walk(self._path))

    def _files(self) -> Iterator[Path]:
        """List every file of the store. Directories may go meanwhile: the engine merges its own tables."""
        for root, _, names in os.walk(self._path):
            yield from (Path(root, name) for name in names)

    def _is_open_elsewhere(self) -> bool:
        """An engine locks the directory it works in."""
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
