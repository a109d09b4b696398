"""Small durable records: a file for each in a directory, named after its key.

Invariant: when `RecordDirectory.write` returns, the record survives a power failure. A crash before that
leaves the old file. Several processes may write the same record at once.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec

from receiver.durable.files import (
    DIRECTORY_MODE,
    Files,
    delete_drafts,
    make_directories,
    reported,
    unlink_if_exists,
    write_new,
)
from receiver.logs import limited

ID_BYTES_MAX = 200
"""Maximum length of an id in a file name, percent-encoded."""
SUFFIX = ".json"


class RecordDirectory:
    """The files of one directory. Methods raise `OSError`, also for a single file."""

    def __init__(self, path: Path, files: Files) -> None:
        self.path = path
        self._files = files

    def path_of(self, key: str) -> Path:
        """Return the path of a record, whether or not it exists."""
        return self.path / f"{key}{SUFFIX}"

    def all_keys(self) -> list[str]:
        """Return the keys of all records, sorted; none if the directory does not exist."""
        if self._files.size_bytes(self.path) is None:
            return []
        names = self._files.names(self.path)
        return [
            name.removesuffix(SUFFIX) for name in names if name.endswith(SUFFIX) and not name.startswith(".")
        ]

    def size_bytes(self, key: str) -> int | None:
        return self._files.size_bytes(self.path_of(key))

    def read(self, key: str) -> bytes:
        return self._files.read(self.path_of(key))

    def make(self) -> None:
        make_directories(self.path, self._files)

    def write(self, key: str, content: bytes) -> None:
        """Write a record atomically and durably."""
        self.make()
        path = self.path_of(key)
        # A unique name: otherwise two processes would rename each other's incomplete drafts.
        draft = path.with_name(f".{path.stem}.{secrets.token_hex(8)}.tmp")
        write_new(self._files, draft, content)
        try:
            self._files.rename(draft, path)
        except OSError:
            with suppress(OSError):
                self._files.unlink(draft)
            raise
        # The name survives a power failure only after this sync.
        self.sync()

    def sync(self) -> None:
        """Make the names of all records durable, also of those that another process wrote."""
        self._files.sync_directory(self.path)

    def delete(self, key: str) -> None:
        """Delete a record, if there is one. A power failure may restore it."""
        unlink_if_exists(self.path_of(key), self._files)

    def prepare(self) -> None:
        """Make an existing directory private, and delete drafts."""
        if self._files.size_bytes(self.path) is not None:
            # The directory may have been created by hand or restored with a wider mode.
            with reported("permissions of a directory cannot be set", self.path):
                self._files.set_mode(self.path, DIRECTORY_MODE)
            self.delete_drafts()

    def delete_drafts(self) -> None:
        """Delete the drafts of killed processes. A process that is writing one now gets an error."""
        delete_drafts(self.path, self._files)


class HasId(Protocol):
    @property
    def id(self) -> str:
        """Return the id."""


Record = TypeVar("Record", bound=HasId)


class RecordFiles(Generic[Record]):
    """Records of one kind by their ids, all of them in memory. Threads may share it.

    Invariant: a change is in memory only after it is durable. A file that cannot be read is reported and
    kept, and its id is still known, so that no other record can replace it.
    """

    def __init__(self, directory: Path, kind: type[Record], files: Files) -> None:
        """Read the records. Those that cannot be read are reported, and read again by `complete`."""
        self._lock = threading.RLock()
        self._directory = RecordDirectory(directory, files)
        self._kind = kind
        self._is_listed = False
        self._records: dict[str, Record] = {}
        self.unreadable: frozenset[str] = frozenset()
        """Ids whose files are damaged, or cannot be read yet."""
        self._unread: dict[str, str] = {}
        """Files that the disk could not read, by id."""
        self._read_again()

    def __contains__(self, record_id: str) -> bool:
        """Return whether there is a record with this id, readable or not. Raises `OSError`."""
        self._list()
        return record_id in self._records or record_id in self.unreadable

    def find(self, record_id: str) -> Record | None:
        """Return a record; `None` if it is not known."""
        return self._records.get(record_id)

    def complete(self) -> None:
        """Read the records that were not read yet. Failures are reported."""
        with self._lock:
            self._read_again()

    def _stored(self, record_id: str) -> Record | None:
        """Return a record; `None` if there is none, or if it is damaged.

        Raises `OSError` if the disk cannot read it: it must not be taken for a missing one.
        """
        self._list()
        if record_id in self._unread:
            self._read_one(record_id)
        return self._records.get(record_id)

    def _list(self) -> None:
        """List the records once. Raises `OSError`: an unlisted record is not a missing one."""
        if self._is_listed:
            return
        self._directory.prepare()
        self._unread = {unquote(key): key for key in self._directory.all_keys()}
        self._is_listed = True

    def _read_again(self) -> None:
        with reported("records cannot be listed", self._directory.path):
            self._list()
        for record_id in list(self._unread):
            with suppress(OSError):
                self._read_one(record_id)

    def _write(self, record: Record) -> None:
        content = msgspec.json.format(msgspec.json.encode(record))
        self._directory.write(file_name(record.id), content)
        self._records[record.id] = record

    def _delete(self, record_id: str) -> None:
        """Delete a record, if there is one. Raises `OSError`. A power failure may restore it."""
        self._directory.delete(file_name(record_id))
        self._records.pop(record_id, None)

    def _read_one(self, record_id: str) -> None:
        key = self._unread[record_id]
        try:
            self._records[record_id] = msgspec.json.decode(self._directory.read(key), type=self._kind)
        except (msgspec.DecodeError, OSError) as error:
            self.unreadable |= {record_id}
            path = self._directory.path_of(key)
            limited.error(
                f"platform: {path.name}",
                "record cannot be read",
                path=str(path),
                action="restore the file from a backup, or delete it",
            )
            if isinstance(error, OSError):
                raise
        else:
            self.unreadable -= {record_id}
        del self._unread[record_id]


def is_id(text: str) -> bool:
    return text.isprintable() and 0 < len(text) <= ID_BYTES_MAX and len(file_name(text)) <= ID_BYTES_MAX


def file_name(record_id: str) -> str:
    """Return the id as a file name, without a separator of directories or a leading dot."""
    name = quote(record_id, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name
