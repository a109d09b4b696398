"""Directory of records: a JSON file for each, named after its id, and all of them in memory.

Invariant: a change is in memory only after it is durable. A file that cannot be read is reported and kept,
and its id is still known, so that no other record can replace it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Generic, Protocol, TypeVar
from urllib.parse import quote, unquote

import msgspec

from receiver.durable.files import DIRECTORY_MODE, Files, drafts_in, make_directories, write_durably
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
        self.records: dict[str, Record] = {}
        self.unreadable: frozenset[str] = frozenset()
        """Ids whose files are damaged."""
        self._read(kind)

    def __contains__(self, record_id: str) -> bool:
        """Return whether there is a record with this id, readable or not."""
        return record_id in self.records or record_id in self.unreadable

    def write(self, record: Record) -> None:
        """Write a record. Raises `OSError`."""
        make_directories(self._directory, self._files)
        content = msgspec.json.format(msgspec.json.encode(record))
        write_durably(self._path_of(record.id), content, files=self._files)
        self.records[record.id] = record

    def _path_of(self, record_id: str) -> Path:
        return self._directory / f"{file_name(record_id)}{SUFFIX}"

    def _read(self, kind: type[Record]) -> None:
        if self._files.size_bytes(self._directory) is None:
            return
        # The directory may have been created by hand or restored with a wider mode.
        self._files.set_mode(self._directory, DIRECTORY_MODE)
        for draft in drafts_in(self._directory, self._files):
            self._files.unlink(draft)
        unreadable = set()
        for name in self._files.names(self._directory):
            if not name.endswith(SUFFIX):
                continue
            record_id = unquote(name.removesuffix(SUFFIX))
            try:
                self.records[record_id] = msgspec.json.decode(
                    self._files.read(self._directory / name), type=kind
                )
            except (msgspec.DecodeError, OSError):
                unreadable.add(record_id)
                path = str(self._directory / name)
                limited.error(
                    f"platform: {name}",
                    "record cannot be read",
                    path=path,
                    action="restore the file from a backup, or delete it",
                )
        self.unreadable = frozenset(unreadable)


def is_id(text: str) -> bool:
    """Return whether an id can name a record."""
    return text.isprintable() and 0 < len(text) <= ID_BYTES_MAX and len(file_name(text)) <= ID_BYTES_MAX


def file_name(record_id: str) -> str:
    """Return the id as a file name, without a separator of directories or a leading dot."""
    name = quote(record_id, safe="")
    return f"%2E{name[1:]}" if name.startswith(".") else name
