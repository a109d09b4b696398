"""Files of a backup, each under the SHA-256 of its content, so that a file that did not change is kept.

    DIR/files/3f/3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea

Invariant: a file that the manifest names is never changed, and deleted only after a new manifest does not
name it any more.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from receiver.backup.manifest import StoredFile
from receiver.durable.files import DISK, delete_unneeded, open_to_read, opened, write_all

PIECE_BYTES: Final = 1 << 20
DRAFT: Final = "copy.tmp"


class Pool:
    def __init__(self, root: Path) -> None:
        self.root = root

    def path_of(self, file: StoredFile) -> Path:
        return self.root / file.sha256[:2] / file.sha256

    def holds(self, file: StoredFile) -> bool:
        """Return whether there is a file of this name and size. Its content is checked by a restore."""
        return DISK.size_bytes(self.path_of(file)) == file.bytes

    def add(self, source: Path, name: str) -> StoredFile:
        """Copy a file. It is durable only after a sync of the file system."""
        draft = self.root / DRAFT
        if DISK.size_bytes(draft) is not None:
            DISK.unlink(draft)
        file = StoredFile(name, *copy_file(source, draft))
        path = self.path_of(file)
        if DISK.size_bytes(path.parent) is None:
            DISK.make_directory(path.parent)
        DISK.rename(draft, path)
        return file

    def keep_only(self, files: Iterable[StoredFile]) -> None:
        """Delete all other files. A failure is reported, and the file stays."""
        kept = {self.path_of(file) for file in files}
        for path in self._paths():
            if path not in kept:
                delete_unneeded(path)

    def _paths(self) -> Iterator[Path]:
        for name in DISK.names(self.root):
            path = self.root / name
            if path.is_dir():
                yield from (path / each for each in DISK.names(path))
            else:
                yield path


def copy_file(source: Path, target: Path) -> tuple[int, str]:
    """Copy a file without a sync. Returns the size and the SHA-256 of what was copied."""
    digest, size_bytes = hashlib.sha256(), 0
    with open_to_read(source) as file, opened(DISK, target, new=True) as fd:
        while piece := file.read(PIECE_BYTES):
            write_all(DISK, fd, piece, size_bytes)
            digest.update(piece)
            size_bytes += len(piece)
    return size_bytes, digest.hexdigest()


def sha256_of(path: Path) -> str:
    digest = hashlib.sha256()
    with open_to_read(path) as file:
        while piece := file.read(PIECE_BYTES):
            digest.update(piece)
    return digest.hexdigest()
