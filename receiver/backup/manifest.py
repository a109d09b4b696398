"""Manifest of a backup: its files with sizes and checksums, and the rows of its tables by day.

    DIR/manifest     one JSON document, framed with its length and checksum as described in
                     `receiver/durable/append_log.py`; written last, by a rename

Invariant: a manifest exists only while every file that it names is complete and durable.
"""

from __future__ import annotations

import re
from pathlib import Path, PurePosixPath
from typing import Any, Final

import msgspec

from receiver.durable.append_log import framed, unframed
from receiver.durable.files import DISK, write_durably
from receiver.errors import CommandFailed

NAME: Final = "manifest"
FORMAT: Final = 1
"""Version of the form of a backup. A version of the receiver restores this form and older ones."""
_MAGIC: Final = b"TDBM"
_SHA256: Final = re.compile(r"[0-9a-f]{64}")


class StoredFile(msgspec.Struct, frozen=True, array_like=True):
    name: str
    """Path in the data directory."""
    bytes: int
    sha256: str


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    format: int
    receiver: str
    """Version of the receiver that made the backup."""
    taken_at: str
    database: str
    store_id: str
    rows: dict[str, dict[str, int]]
    """Table → partition, such as `20260131` → rows."""
    files: list[StoredFile]

    @property
    def bytes_total(self) -> int:
        return sum(file.bytes for file in self.files)


def write_manifest(directory: Path, manifest: Manifest) -> None:
    write_durably(directory / NAME, framed(_MAGIC, [msgspec.json.encode(manifest)]))


def read_manifest(directory: Path) -> Manifest | None:
    """Return the manifest; `None` if there is none. Raises `CommandFailed` if it cannot be used."""
    path = directory / NAME
    if DISK.size_bytes(path) is None:
        return None
    documents = unframed(_MAGIC, DISK.read(path), msgspec.json.Decoder(dict[str, Any]).decode).entries
    if len(documents) != 1:
        raise CommandFailed(f"'{path}' is damaged or incomplete; expected the manifest of a backup")
    found = documents[0].get("format")
    if not isinstance(found, int) or found > FORMAT:
        raise CommandFailed(
            f"the backup in '{directory}' has the form {found}; this version reads forms up to {FORMAT}: "
            "use the version that made it, or a newer one"
        )
    try:
        manifest = msgspec.convert(documents[0], Manifest)
    except msgspec.ValidationError as error:
        raise CommandFailed(f"'{path}' is not a manifest of a backup: {error}") from error
    if not all(map(_is_valid, manifest.files)):
        raise CommandFailed(f"'{path}' names files outside of the data directory; expected paths in it")
    return manifest


def _is_valid(file: StoredFile) -> bool:
    path = PurePosixPath(file.name)
    return not path.is_absolute() and ".." not in path.parts and bool(_SHA256.fullmatch(file.sha256))
