"""Bodies that crashed the core, kept for a human: how many, how often. The files are the journal's room.

Keeps: the first crash keeps the body, the third one of the same body is the sender's to know (400), so that a
poisonous delivery does not come back for ever, also when another process meets it each time.
Never: more files or bytes than the ceilings; what is over them is counted and not written.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path

from receiver.errors import CoreCrashed, MalformedBody, ReceiverError
from receiver.journal.quarantine import SUFFIX, Note, QuarantineFiles
from receiver.logs import limited
from receiver.model import Delivery
from receiver.settings import MIB

CRASHES_MAX = 3
"""From so many crashes of one body on it is refused."""
FILES_MAX = 64
BYTES_MAX = 256 * MIB
DIGESTS_MAX = 4_096
"""Bodies whose crashes are remembered, the latest ones."""


class Quarantine:
    """The directory of bodies set aside. Blocking: called from the disk's thread."""

    def __init__(self, root: Path, *, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._root = root
        self._bodies = QuarantineFiles(root)
        self._files_max = files_max
        self._bytes_max = bytes_max
        self._crashes: OrderedDict[bytes, int] = OrderedDict()

    def keep(self, delivery: Delivery) -> ReceiverError:
        """Set a body aside and give the verdict on its delivery."""
        digest = _digest(delivery)
        path = self._bodies.path_of(digest.hex(), delivery)
        crashes = max(self._crashes.pop(digest, 0), self._crashes_noted(path)) + 1
        self._crashes[digest] = crashes
        if len(self._crashes) > DIGESTS_MAX:
            self._crashes.popitem(last=False)
        self._write(path, delivery, crashes)
        limited.error("core_crashed", "the core crashed on a body", drain=delivery.drain, digest=digest.hex())
        if crashes >= CRASHES_MAX:
            return MalformedBody(f"this body has crashed the decoder {crashes} times; expected another one")
        return CoreCrashed("the decoder crashed on this body; it is kept for a human")

    def _crashes_noted(self, path: Path) -> int:
        """How often it crashed any process; a disk that does not tell costs a sender a few tries more."""
        try:
            return self._bodies.note_of(path).crashes if path.exists() else 0
        except OSError as reason:
            limited.error(
                "aside", "a body that crashed the core could not be read", error=str(reason.strerror)
            )
            return 0

    def _write(self, path: Path, delivery: Delivery, crashes: int) -> None:
        try:
            if path.exists() or self._has_room(len(delivery.body)):
                note = Note(delivery.drain, delivery.received_at_ns, crashes)
                self._bodies.write(path, delivery.body, note)
        except OSError as reason:
            limited.error(
                "aside", "a body that crashed the core could not be kept", error=str(reason.strerror)
            )

    def _has_room(self, more_bytes: int) -> bool:
        sizes = [found.stat().st_size for found in self._root.glob(f"*{SUFFIX}")]
        return len(sizes) < self._files_max and sum(sizes) + more_bytes <= self._bytes_max


def _digest(delivery: Delivery) -> bytes:
    head = "\0".join((delivery.content_kind, *delivery.encodings)).encode()
    return hashlib.sha256(head + b"\0" + delivery.body).digest()[:16]
