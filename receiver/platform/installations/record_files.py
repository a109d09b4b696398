"""Directory of records: a JSON file for each, named after its id, and all of them in memory.

Invariant: a change is in memory only after it is durable. A file that cannot be read is reported and kept,
and its id is still known, so that no other record can replace it.
"""

from __future__ import annotations

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
    write_durably,
)
from receiver.logs import limited

ID_BYTES_MAX = 200
"""Maximum length of an id in a file name, percent-encoded."""
SUFFIX = ".json"


class HasId(Protocol):
    """What each record has."""

    @property
    def id(self) -> str:
        """Return the id."""


Record = TypeVar("Record", bound=HasId)


class RecordFiles(Generic[Record]):
    """Records of one kind by their ids."""

    def __init__(self, directory: Path, kind: type[Record], files: Files) -> None:
        self._directory = directory
        self._files = files
        self._kind = kind
        self._is_listed = False
        self._unread: dict[str, Path] = {}
        """Files that the disk could not read, by id."""
        self.records: dict[str, Record] = {}
        self.unreadable: frozenset[str] = frozenset()
        """Ids whose files are damaged, or cannot be read yet."""
        self.read_again()

    def __contains__(self, record_id: str) -> bool:
        """Return whether there is a record with this id, readable or not. Raises `OSError`."""
        self._list()
        return record_id in self.records or record_id in self.unreadable

    def find(self, record_id: str) -> Record | None:
        """Return a record; `None` if there is none, or if it is damaged.

        Raises `OSError` if the disk cannot read it: it must not be taken for a missing one.
        """
        self._list()
        if record_id in self._unread:
            self._read_one(record_id)
        return self.records.get(record_id)

    def read_again(self) -> None:
        """Read the records that were not read yet. Failures are reported."""
        with reported("records cannot be listed", self._directory):
            self._list()
        for record_id in list(self._unread):
            with suppress(OSError):
                self._read_one(record_id)

    def write(self, record: Record) -> None:
        """Write a record, after `find` or `in` has listed the directory. Raises `OSError`."""
        make_directories(self._directory, self._files)
        content = msgspec.json.format(msgspec.json.encode(record))
        write_durably(self._path_of(record.id), content, files=self._files)
        self.records[record.id] = record

    def delete(self, record_id: str) -> None:
        """Delete a record, if there is one. Raises `OSError`. A power failure may restore it."""
        unlink_if_exists(self._path_of(record_id), self._files)
        self.records.pop(record_id, None)

    def _path_of(self, record_id: str) -> Path:
        return self._directory / f"{file_name(record_id)}{SUFFIX}"

    def _list(self) -> None:
        """List the records once. Raises `OSError`: an unlisted record is not a missing one."""
        if self._is_listed:
            return
        if self._files.size_bytes(self._directory) is not None:
            # The directory may have been created by hand or restored with a wider mode.
            with reported("permissions of a directory cannot be set", self._directory):
                self._files.set_mode(self._directory, DIRECTORY_MODE)
            delete_drafts(self._directory, self._files)
            for name in self._files.names(self._directory):
                if name.endswith(SUFFIX):
                    self._unread[unquote(name.removesuffix(SUFFIX))] = self._directory / name
        self._is_listed = True

    def _read_one(self, record_id: str) -> None:
        path = self._unread[record_id]
        try:
            self.records[record_id] = msgspec.json.decode(self._files.read(path), type=self._kind)
        except (msgspec.DecodeError, OSError) as error:
            self.unreadable |= {record_id}
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
    """Return whether an id can name a record."""
    return text.isprintable() and 0 < len(text) <= ID_BYTES_MAX and len(file_name(text)) <= ID_BYTES_MAX


def file_name(record_id: str) -> str:
    """Return the id as a file name, without a separator of directories or a leading dot."""
    name = quote(record_id, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name
