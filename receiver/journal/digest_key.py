"""Digest key: random secret of a data directory for the digests that identify duplicate deliveries.

    DATA/digest.key    key 32 bytes │ its id, the first 16 bytes of the key's SHA-256

The first process that needs the key creates it. Intakes and the store process may try to do so at the same
time. Each locks the file before it reads the file, so all of them get the same key.

Invariant: a key that was returned is on disk. Never: logs the key or puts it into a response.
"""

from __future__ import annotations

import errno
import hashlib
import secrets
import time
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, NamedTuple

from receiver.durable.files import DISK, Files, write_all, write_durably
from receiver.logs import limited

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

KEY_BYTES = 32
ID_BYTES = 16
NAME = "digest.key"
LOCK_TRIES_MAX = 500
LOCK_DELAY_S = 0.01
"""Delay between attempts to get the lock, which another process holds for at most two syncs."""


class Key(NamedTuple):
    secret: bytes
    id: bytes

    @property
    def is_whole(self) -> bool:
        """Return whether the id belongs to the secret."""
        return len(self.secret) == KEY_BYTES and self.id == _id_of(self.secret)

    def __repr__(self) -> str:
        """Show only the id."""
        return f"Key(id={self.id.hex()})"


class DigestKey:
    """Digest key of a data directory: read or created on first use, then kept in memory."""

    def __init__(self, data_dir: Path, files: Files = DISK) -> None:
        self.path = data_dir / NAME
        self._files = files
        self._key: Key | None = None

    def load(self) -> Key:
        """Return the key; create it if there is none. The directory must exist. Raises `OSError`."""
        if self._key is None:
            with self._locked() as fd:
                key = self.read() or self._create(fd)
                # Synced by every reader, because the creating process may have died before its sync.
                self._files.sync_directory(self.path.parent)
            self._key = key
        return self._key

    def read(self) -> Key | None:
        """Return the key in the file, or `None` if the file is missing or incomplete."""
        try:
            content = self._files.read(self.path)
        except FileNotFoundError:
            return None
        key = Key(content[:KEY_BYTES], content[KEY_BYTES:])
        # A creation that a crash interrupted leaves a key that does not match its id.
        return key if key.is_whole else None

    def restore(self) -> None:
        """Write the key from memory to the file."""
        key = self.load()
        write_durably(self.path, key.secret, key.id, files=self._files)

    def _create(self, fd: int) -> Key:
        # An empty file is normal here: `_locked` creates it.
        if self._files.size_bytes(self.path):
            limited.error(
                "digest key",
                "digest key is damaged or incomplete",
                path=str(self.path),
                action="a new key is created",
            )
        secret = secrets.token_bytes(KEY_BYTES)
        key = Key(secret, _id_of(secret))
        try:
            # Written in place: the lock belongs to this file, and a rename would replace the file.
            self._files.truncate(fd, 0)
            write_all(self._files, fd, key.secret + key.id, 0)
            self._files.sync(fd)
        except OSError:
            # Without a successful sync a power failure could still change the key, so no process may read it.
            with suppress(OSError):
                self._files.unlink(self.path)
            raise
        return key

    @contextmanager
    def _locked(self) -> Iterator[int]:
        """Open the file, creating it if needed, and hold its lock."""
        for _ in range(LOCK_TRIES_MAX):
            with ExitStack() as resources:
                fd = self._open_file()
                resources.callback(self._files.close, fd)
                # The file may have been replaced meanwhile; a lock on the old one protects nothing.
                if self._files.lock(fd) and self._files.is_at(fd, self.path):
                    yield fd
                    return
            # Polled, because a blocking flock has no time limit.
            time.sleep(LOCK_DELAY_S)
        raise OSError(errno.EAGAIN, "another process holds the lock of the digest key")

    def _open_file(self) -> int:
        with suppress(FileExistsError):
            return self._files.create(self.path)
        return self._files.open(self.path)


def _id_of(secret: bytes) -> bytes:
    return hashlib.sha256(secret).digest()[:ID_BYTES]
