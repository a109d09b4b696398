"""The log of what the writer decided about redeliveries. Pure bytes; no files here.

    magic:   "TDRL", framed as `receiver/durable/framing.py` says
    body:    msgpack, one of `Decided`, `Ended`, `Ticked`; each carries the observed time

`Decided` is on the disk before a segment's first INSERT, `Ended` before its unlink.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from receiver.durable.framing import Log, framed, unframed
from receiver.model import SegmentId

KEPT = 0
"""Stored, and known from then on."""
DUPLICATE = 1
"""Left out: the same delivery is stored already, or comes earlier in the same segment."""
APART = 2
"""Stored, and neither looked up nor known: its drain says `dedupe = false`, or its rows are not all there."""

_MAGIC = b"TDRL"


class Decided(msgspec.Struct, frozen=True, array_like=True, tag="decided"):
    """Which deliveries of a segment are stored. Until it ended, nobody else may store what it keeps."""

    observed_s: float
    epoch: int
    seq: int
    digests: bytes
    """Of the deliveries it keeps, 16 bytes each."""
    verdicts: bytes
    """For each of its deliveries, in order: `KEPT`, `DUPLICATE` or `APART`."""


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """A segment is done with; these digests are known from now on: their rows were counted in the store."""

    observed_s: float
    epoch: int
    seq: int
    digests: bytes
    """None when it kept none, or when they are in a table already."""


class Ticked(msgspec.Struct, frozen=True, array_like=True, tag="ticked"):
    """Time was seen to pass."""

    observed_s: float
    lost_until_s: float
    """What was accepted up to then may not be known any more, though the window would reach back to it."""
    is_rot: bool = False
    """Because what was noted of it is damaged or gone; else because there were too many entries."""


Entry = Decided | Ended | Ticked

_DECODER = msgspec.msgpack.Decoder(Entry)


def segment_of(entry: Decided | Ended) -> SegmentId:
    """Whose it is."""
    return SegmentId(entry.epoch, entry.seq)


def written(entries: Iterable[Entry]) -> bytes:
    """Lay entries out as they are appended."""
    return framed(_MAGIC, map(msgspec.msgpack.encode, entries))


def read(content: bytes) -> Log[Entry]:
    """Read a log: a torn tail is left out silently, rot is told."""
    return unframed(_MAGIC, content, _DECODER.decode)
