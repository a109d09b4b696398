"""The log of what the writer decided about redeliveries. Pure bytes; no files here.

    entry:   "TDRL" │ body_bytes u32 │ crc32 of the body u32 │ body
    body:    msgpack, one of `Decided`, `Ended`, `Ticked`; each carries the observed time

`Decided` is on the disk before a segment's first INSERT, `Ended` before its unlink. A torn tail is how a
crash looks, an ordinary answer. An entry that cannot be read though others follow is rot: told, read past.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from typing import NamedTuple

import msgspec

from receiver.model import SegmentId

KEPT = 0
"""Stored, and known from then on."""
DUPLICATE = 1
"""Left out: the same delivery is stored already, or comes earlier in the same segment."""
APART = 2
"""Stored, and neither looked up nor known: its drain says `dedupe = false`, or its rows are not all there."""

_HEAD = struct.Struct("<4sII")
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


Entry = Decided | Ended | Ticked

_DECODER = msgspec.msgpack.Decoder(Entry)


class Log(NamedTuple):
    """What could be read of a log."""

    entries: list[Entry]
    good: bytes
    """Its whole entries and nothing else."""
    is_rotten: bool
    """Something between them was written and cannot be read."""


def segment_of(entry: Decided | Ended) -> SegmentId:
    """Whose it is."""
    return SegmentId(entry.epoch, entry.seq)


def written(entries: Iterable[Entry]) -> bytes:
    """Lay entries out as they are appended."""
    bodies = [msgspec.msgpack.encode(entry) for entry in entries]
    return b"".join(_HEAD.pack(_MAGIC, len(body), zlib.crc32(body)) + body for body in bodies)


def read(content: bytes) -> Log:
    """Read a log: a torn tail is left out silently, rot is told."""
    entries: list[Entry] = []
    good: list[bytes] = []
    at, is_rotten, is_behind_rot = 0, False, False
    while at >= 0:
        found = _entry_at(content, at)
        if found is None:
            is_behind_rot = True
            at = content.find(_MAGIC, at + 1)
            continue
        entry, end = found
        is_rotten = is_rotten or is_behind_rot
        entries.append(entry)
        good.append(content[at:end])
        at = end
    return Log(entries, b"".join(good), is_rotten)


def _entry_at(content: bytes, at: int) -> tuple[Entry, int] | None:
    if at + _HEAD.size > len(content):
        return None
    magic, body_bytes, checksum = _HEAD.unpack_from(content, at)
    body = content[at + _HEAD.size : at + _HEAD.size + body_bytes]
    if magic != _MAGIC or len(body) < body_bytes or zlib.crc32(body) != checksum:
        return None
    try:
        return _DECODER.decode(body), at + _HEAD.size + body_bytes
    except msgspec.DecodeError:
        return None
