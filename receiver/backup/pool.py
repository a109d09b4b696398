"""Files of a backup, each under the SHA-256 of its content, so that a file that did not change is kept.

    DIR/files/3f/3f79bb7b435b05321651daefd374cdc681dc06faa65e374e38337b88ca046dea

Invariant: a file that the manifest names is never changed, and deleted only after a new manifest does not
name it any more.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final

from receiver.backup.manifest import StoredFile
from receiver.durable.files import DISK, delete_unneeded, open_to_read, opened, write_all
from receiver.errors import CommandFailed

PIECE_BYTES: Final = 1 << 20
DRAFT: Final = "copy.tmp"
_DIRECTORY: Final = re.compile(r"[0-9a-f]{2}")
_FILE: Final = re.compile(r"[0-9a-f]{64}")


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
        # Not replaced: the manifest may name it, and the copy is not durable yet.
        if self.holds(file):
            DISK.unlink(draft)
            return file
        if path.parent.is_symlink():
            raise CommandFailed(f"'{path.parent}' is a link; expected a directory of the backup")
        if DISK.size_bytes(path.parent) is None:
            DISK.make_directory(path.parent)
        DISK.rename(draft, path)
        return file

    def keep_only(self, files: Iterable[StoredFile]) -> None:
        """Delete the other files of the pool, and nothing else. A failure is reported, and the file stays."""
        kept = {self.path_of(file) for file in files}
        for path in self._paths():
            if path not in kept:
                delete_unneeded(path)

    def _paths(self) -> Iterator[Path]:
        for name in DISK.names(self.root):
            path = self.root / name
            if name == DRAFT:
                yield path
            # A link could lead out of the backup.
            elif _DIRECTORY.fullmatch(name) and path.is_dir() and not path.is_symlink():
                yield from (path / each for each in DISK.names(path) if _FILE.fullmatch(each))


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
