"""Quarantine: bodies that crashed the decoder, stored by an intake and inspected by operators.

    DATA/aside/<digest>.<kind>[.<encoding>…].body     the body as received
    DATA/aside/<digest>.<kind>[.<encoding>…].json     drain, time of receipt, number of crashes

Invariant: the note is written before the body. The first crash stores the body. From the third crash of the
same body, in any process, it is refused with 400, so that the sender does not retry it forever.
Never: readable by other users; more files or bytes than the limits. Above them, a crash is only counted.
"""

from __future__ import annotations

import hashlib
import re
from collections import OrderedDict
from pathlib import Path
from typing import NamedTuple

import msgspec

from receiver.durable.files import DISK, make_directories, unlink_if_exists, write_unsynced
from receiver.errors import CoreCrashed, MalformedBody, ReceiverError
from receiver.logs import limited
from receiver.model import ContentKind, Delivery
from receiver.settings import MIB

SUFFIX = ".body"
CRASHES_MAX = 3
"""Number of crashes from which on a body is refused."""
FILES_MAX = 64
BYTES_MAX = 256 * MIB
"""Limits on the quarantined bodies together, so that a hostile sender cannot fill the disk."""
DIGESTS_MAX = 4_096
"""Bodies whose crash count is kept in memory; the oldest are dropped."""

_NAME = re.compile(rf"[^.]+\.({'|'.join(ContentKind)})(\.[^.]+)*{re.escape(SUFFIX)}")


class QuarantineNote(msgspec.Struct, frozen=True):
    drain: str = ""
    received_at_ns: int = 0
    crashes: int = 1
    """Number of times that the body has crashed the decoder, in all processes."""


class Body(NamedTuple):
    id: str
    """Digest of the body."""
    path: Path
    bytes: int
    note: QuarantineNote

    def delivery(self, *, body_bytes_max: int) -> Delivery:
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


class Quarantine:
    """Bodies that crashed the decoder, within limits. Blocking: the intake calls it on its disk thread."""

    def __init__(self, root: Path, *, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._root = root
        self._files = QuarantineFiles(root)
        self._files_max = files_max
        self._bytes_max = bytes_max
        self._crashes: OrderedDict[bytes, int] = OrderedDict()

    def keep(self, delivery: Delivery) -> ReceiverError:
        """Store a body and return the error that answers its delivery."""
        digest = _digest(delivery)
        path = self._files.path_of(digest.hex(), delivery)
        # Memory knows bodies that were not stored; the disk knows crashes of other processes. `pop` moves the
        # entry to the end, so that the body that crashed longest ago is dropped first.
        crashes = max(self._crashes.pop(digest, 0), self._recorded_crashes(path)) + 1
        self._crashes[digest] = crashes
        if len(self._crashes) > DIGESTS_MAX:
            self._crashes.popitem(last=False)
        self._write(path, delivery, crashes)
        limited.error("core_crashed", "body crashed the decoder", drain=delivery.drain, digest=digest.hex())
        if crashes >= CRASHES_MAX:
            return MalformedBody(f"this body has crashed the decoder {crashes} times; do not send it again")
        return CoreCrashed("the decoder crashed on this body; the body is kept for inspection")

    def _recorded_crashes(self, path: Path) -> int:
        """Return the number of crashes recorded on disk; 0 if unreadable, which only allows more retries."""
        try:
            return self._files.note_of(path).crashes if path.exists() else 0
        except OSError as error:
            limited.error("quarantine", "quarantined body cannot be read", error=str(error.strerror))
            return 0

    def _write(self, path: Path, delivery: Delivery, crashes: int) -> None:
        try:
            if path.exists() or self._has_room(len(delivery.body)):
                note = QuarantineNote(delivery.drain, delivery.received_at_ns, crashes)
                self._files.write(path, delivery.body, note)
        except OSError as error:
            limited.error(
                "quarantine", "body that crashed the decoder cannot be stored", error=str(error.strerror)
            )

    def _has_room(self, more_bytes: int) -> bool:
        sizes = [file.stat().st_size for file in self._root.glob(f"*{SUFFIX}")]
        return len(sizes) < self._files_max and sum(sizes) + more_bytes <= self._bytes_max


def _digest(delivery: Delivery) -> bytes:
    # The same bytes may crash one decoder and not the other, so kind and encodings are part of the identity.
    head = "\0".join((delivery.content_kind, *delivery.encodings)).encode()
    return hashlib.sha256(head + b"\0" + delivery.body).digest()[:16]
