"""Quarantine: bodies that crashed the decoder, kept for inspection, with the number of crashes of each.

Invariant: the first crash stores the body. From the third crash of the same body, in any process, it is
    refused with 400, so that the sender does not retry it forever.
Never: stores more files or bytes than the limits. Above them, a crash is counted but its body is not stored.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path

from receiver.errors import CoreCrashed, MalformedBody, ReceiverError
from receiver.journal.quarantine import SUFFIX, QuarantineFiles, QuarantineNote
from receiver.logs import limited
from receiver.model import Delivery
from receiver.settings import MIB

CRASHES_MAX = 3
"""Number of crashes from which on a body is refused."""
FILES_MAX = 64
BYTES_MAX = 256 * MIB
"""Limits on the quarantined bodies together, so that a hostile sender cannot fill the disk."""
DIGESTS_MAX = 4_096
"""Bodies whose crash count is kept in memory; the oldest are dropped."""


class Quarantine:
    """The quarantine directory. Blocking: called on the disk thread."""

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
