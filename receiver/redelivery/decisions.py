"""Codec of the deduplication window's log of decisions. Pure bytes; no files here.

    magic:   "TDRL", framed as described in `receiver/durable/framing.py`
    body:    msgpack, one of `Decided`, `Ended`, `Ticked`; each carries the observed time

`Decided` is on the disk before a segment's first INSERT, `Ended` before its unlink.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from receiver.durable.framing import Log, framed, unframed
from receiver.model import SegmentId

KEPT = 0
"""Stored, and its digest is known from then on."""
DUPLICATE = 1
"""Not stored: the same delivery is stored already, or comes earlier in the same segment."""
EXEMPT = 2
"""Stored without deduplication: its drain sets `dedupe = false`, or some of its rows are missing."""

_MAGIC = b"TDRL"


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """Deliveries of a segment that are stored. Until `Ended`, no other segment may store them."""

    observed_s: float
    epoch: int
    seq: int
    digests: bytes
    """Digests of the deliveries that the segment stores, 16 bytes each."""
    verdicts: bytes
    """For each of its deliveries, in order: `KEPT`, `DUPLICATE` or `EXEMPT`."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """The rows of a segment were counted in the store: these digests are known from now on."""

    observed_s: float
    epoch: int
    seq: int
    digests: bytes
    """Empty if the segment stored no delivery, or if its digests are in a table already."""


class Ticked(msgspec.Struct, frozen=True, array_like=True, tag="ticked"):
    """Observed time, written regularly, and what the window lost."""

    observed_s: float
    lost_until_s: float
    """Deliveries accepted up to this time may be unknown, although they are within the window."""
    is_rot: bool = False
    """Whether they are unknown because of damage; otherwise because there were too many entries."""


Entry = Decided | Ended | Ticked

_DECODER = msgspec.msgpack.Decoder(Entry)


def segment_of(entry: Decided | Ended) -> SegmentId:
    """Return the segment that the entry is about."""
    return SegmentId(entry.epoch, entry.seq)


def written(entries: Iterable[Entry]) -> bytes:
    """Encode entries for appending."""
    return framed(_MAGIC, map(msgspec.msgpack.encode, entries))


def read(content: bytes) -> Log[Entry]:
    """Decode a log. A torn tail is omitted silently; damage before it sets `is_rotten`."""
    return unframed(_MAGIC, content, _DECODER.decode)
