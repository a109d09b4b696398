"""Codec of the deduplication window's log of decisions. This module opens no files.

    magic:   "TDRL", framed as described in `receiver/durable/append_log.py`
    body:    msgpack, one of `Decided`, `Ended`, `Ticked`; each carries the observed time

`Decided` is synced before the first INSERT of a segment, `Ended` before its file is deleted.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from receiver.durable.append_log import Log, framed, unframed
from receiver.model import SegmentId

KEPT = 0
"""The delivery is stored, and its digest enters the window."""
DUPLICATE = 1
"""The delivery is not stored: a copy is already stored, or comes earlier in the same segment."""
EXEMPT = 2
"""The delivery is stored without deduplication: its drain has `dedupe = false`, or rows are missing."""

_MAGIC = b"TDRL"


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """Decision which deliveries of a segment to store. Until `Ended`, no other segment may store them."""

    observed_s: float
    epoch: int
    seq: int
    digests: bytes
    """Digests of the deliveries that the segment stores, 16 bytes each."""
    verdicts: bytes
    """For each of its deliveries, in order: `KEPT`, `DUPLICATE` or `EXEMPT`."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The rows of a segment were counted in the store, so these digests enter the window."""

    observed_s: float
    epoch: int
    seq: int
    digests: bytes
    """Empty if the segment stored no delivery, or if its digests are already in a table."""


class Ticked(msgspec.Struct, frozen=True, array_like=True, tag="ticked"):
    """Regular record of the window's clock, and of the last loss of entries."""

    observed_s: float
    lost_until_s: float
    """Digests of deliveries accepted up to this time may be missing, although they are within the window."""
    is_damage: bool
    """Whether damage caused the loss; otherwise the limit on entries did."""


Entry = Decided | Ended | Ticked

_DECODER = msgspec.msgpack.Decoder(Entry)


def segment_of(entry: Decided | Ended) -> SegmentId:
    return SegmentId(entry.epoch, entry.seq)


def written(entries: Iterable[Entry]) -> bytes:
    return framed(_MAGIC, map(msgspec.msgpack.encode, entries))


def read(content: bytes) -> Log[Entry]:
    """Decode a log. A torn tail is omitted silently; damage before it sets `is_damaged`."""
    return unframed(_MAGIC, content, _DECODER.decode)
