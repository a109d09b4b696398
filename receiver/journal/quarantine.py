"""Quarantine: bodies that crashed the decoder, written by an intake and inspected by operators.

    DATA/aside/<digest>.<kind>[.<encoding>…].body     the body as received
    DATA/aside/<digest>.<kind>[.<encoding>…].json     drain, time of receipt, number of crashes

Invariant: the note is written before the body. Never: readable by other users.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from receiver.durable.files import DISK, make_directories, unlink_if_exists, write_unsynced
from receiver.model import ContentKind, Delivery

SUFFIX = ".body"

_NAME = re.compile(rf"[^.]+\.({'|'.join(ContentKind)})(\.[^.]+)*{re.escape(SUFFIX)}")


class QuarantineNote(msgspec.Struct, frozen=True):
    """Metadata of a quarantined body."""

    drain: str = ""
    received_at_ns: int = 0
    crashes: int = 1
    """Number of times that the body has crashed the decoder, in all processes."""


class Body(NamedTuple):
    """A quarantined body."""

    id: str
    """Digest of the body."""
    path: Path
    bytes: int
    note: QuarantineNote

    def delivery(self, *, body_bytes_max: int) -> Delivery:
        """Return the delivery as it was received."""
        _, kind, *encodings = self.path.name.removesuffix(SUFFIX).split(".")
        return Delivery(
            self.note.drain,
            DISK.read(self.path),
            ContentKind(kind),
            tuple(encodings),
            self.note.received_at_ns,
            strict=False,
            body_bytes_max=body_bytes_max,
        )


class QuarantineFiles:
    """The quarantine directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listed(self) -> list[Body]:
        """Return all bodies, by name. Files with other names are ignored."""
        return [
            Body(path.name.partition(".")[0], path, path.stat().st_size, self.note_of(path))
            for path in sorted(self._root.glob(f"*{SUFFIX}"))
            if _NAME.fullmatch(path.name)
        ]

    def path_of(self, digest: str, delivery: Delivery) -> Path:
        """Return the path for a body, whether or not it exists."""
        return self._root / (".".join((digest, delivery.content_kind, *delivery.encodings)) + SUFFIX)

    def write(self, path: Path, body: bytes, note: QuarantineNote) -> None:
        """Write a body and its note. If the body exists, only the note is replaced.

        Neither file is synced: the delivery was not acknowledged, so its sender still has it.
        """
        make_directories(self._root)
        # First, because a body is listed as soon as it exists, and then needs its note.
        write_unsynced(path.with_suffix(".json"), msgspec.json.encode(note))
        if not path.exists():
            write_unsynced(path, body)

    def note_of(self, path: Path) -> QuarantineNote:
        """Read the note of a body; return an empty note if it is missing or cannot be read."""
        try:
            return msgspec.json.decode(DISK.read(path.with_suffix(".json")), type=QuarantineNote)
        except (OSError, msgspec.DecodeError):
            return QuarantineNote()

    def drop(self, body: Body) -> None:
        """Delete a body and its note durably."""
        # The body first: a body without its note would be listed without its drain.
        unlink_if_exists(body.path)
        unlink_if_exists(body.path.with_suffix(".json"))
        DISK.sync_directory(self._root)
