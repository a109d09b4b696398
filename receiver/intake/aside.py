"""Bodies that crashed the core, kept for a human, within bounds.

    DATA/aside/<digest>.<kind>[.<encoding>…].body     the body as it came off the wire

Keeps: the first crash keeps the body, the third one of the same body is the sender's to know (400), so that a
poisonous delivery does not come back for ever.
Never: more files or bytes than the ceilings; what is over them is counted and not written.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from pathlib import Path

from receiver.errors import CoreCrashed, MalformedBody, ReceiverError
from receiver.logs import limited
from receiver.model import Delivery
from receiver.settings import MIB

CRASHES_MAX = 3
"""From so many crashes of one body on it is refused."""
FILES_MAX = 64
BYTES_MAX = 256 * MIB
DIGESTS_MAX = 4_096
"""Bodies whose crashes are remembered, the latest ones."""


class Aside:
    """The directory of bodies set aside. Blocking: called from the disk's thread."""

    def __init__(self, root: Path, *, files_max: int = FILES_MAX, bytes_max: int = BYTES_MAX) -> None:
        self._root = root
        self._files_max = files_max
        self._bytes_max = bytes_max
        self._crashes: OrderedDict[bytes, int] = OrderedDict()

    def keep(self, delivery: Delivery) -> ReceiverError:
        """Set a body aside and give the verdict on its delivery."""
        digest = _digest(delivery)
        crashes = self._crashes.pop(digest, 0) + 1
        self._crashes[digest] = crashes
        if len(self._crashes) > DIGESTS_MAX:
            self._crashes.popitem(last=False)
        self._write(digest, delivery)
        limited.error("core_crashed", "the core crashed on a body", drain=delivery.drain, digest=digest.hex())
        if crashes >= CRASHES_MAX:
            return MalformedBody(f"this body has crashed the decoder {crashes} times; expected another one")
        return CoreCrashed("the decoder crashed on this body; it is kept for a human")

    def _write(self, digest: bytes, delivery: Delivery) -> None:
        name = ".".join((digest.hex(), delivery.content_kind, *delivery.encodings, "body"))
        target = self._root / name
        try:
            if target.exists() or not self._has_room(len(delivery.body)):
                return
            self._root.mkdir(mode=0o700, parents=True, exist_ok=True)
            target.write_bytes(delivery.body)
        except OSError as reason:
            limited.error("aside", "a body that crashed the core could not be kept", why=str(reason.strerror))

    def _has_room(self, more_bytes: int) -> bool:
        sizes = [found.stat().st_size for found in self._root.iterdir()] if self._root.exists() else []
        return len(sizes) < self._files_max and sum(sizes) + more_bytes <= self._bytes_max


def _digest(delivery: Delivery) -> bytes:
    head = "\0".join((delivery.content_kind, *delivery.encodings)).encode()
    return hashlib.sha256(head + b"\0" + delivery.body).digest()[:16]
