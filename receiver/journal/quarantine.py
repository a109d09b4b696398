"""Bodies that crashed the core, on the disk: written by an intake, read by whoever looks after them.

    DATA/aside/<digest>.<kind>[.<encoding>…].body     the body as it came off the wire
    DATA/aside/<digest>.<kind>[.<encoding>…].json     whose, when, and how often it crashed

Keeps: the note is there before the body. Never: readable by others.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

import msgspec

from receiver.model import ContentKind, Delivery

SUFFIX = ".body"

_NAME = re.compile(rf"[^.]+\.({'|'.join(ContentKind)})(\.[^.]+)*{re.escape(SUFFIX)}")


class Note(msgspec.Struct, frozen=True):
    """What is known of a body."""

    drain: str = ""
    received_at_ns: int = 0
    crashes: int = 1
    """Times it crashed the core, in every process so far."""


class Body(NamedTuple):
    """A body, as it lies there."""

    id: str
    """Its digest."""
    path: Path
    bytes: int
    note: Note

    def delivery(self, *, body_bytes_max: int) -> Delivery:
        """The delivery as it came."""
        _, kind, *encodings = self.path.name.removesuffix(SUFFIX).split(".")
        return Delivery(
            self.note.drain,
            self.path.read_bytes(),
            ContentKind(kind),
            tuple(encodings),
            self.note.received_at_ns,
            strict=False,
            body_bytes_max=body_bytes_max,
        )


class QuarantineFiles:
    """The directory."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def listed(self) -> list[Body]:
        """Every body, by name. What has another name than ours is none."""
        return [
            Body(path.name.partition(".")[0], path, path.stat().st_size, self.note_of(path))
            for path in sorted(self._root.glob(f"*{SUFFIX}"))
            if _NAME.fullmatch(path.name)
        ]

    def path_of(self, digest: str, delivery: Delivery) -> Path:
        """Where a body lies, or would."""
        return self._root / (".".join((digest, delivery.content_kind, *delivery.encodings)) + SUFFIX)

    def write(self, path: Path, body: bytes, note: Note) -> None:
        """Keep a body with its note; one that is there stays, only its note is new."""
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write(path.with_suffix(".json"), msgspec.json.encode(note))
        if not path.exists():
            _write(path, body)

    def note_of(self, path: Path) -> Note:
        """What is known of a body; of one without a note, nothing."""
        try:
            return msgspec.json.decode(path.with_suffix(".json").read_bytes(), type=Note)
        except (FileNotFoundError, msgspec.DecodeError):
            return Note()

    def drop(self, body: Body) -> None:
        """Let go of it for good."""
        body.path.unlink(missing_ok=True)
        body.path.with_suffix(".json").unlink(missing_ok=True)
        fd = os.open(self._root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _write(path: Path, content: bytes) -> None:
    """Not synced: a crash costs what the sender still has, for it was never answered with 200."""
    draft = path.with_name(f".{path.name}.tmp")
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as file:
        file.write(content)
    draft.replace(path)
