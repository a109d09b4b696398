"""Codec of the ledger's log: the state at its beginning, then one entry per segment. Pure bytes.

    magic:   "TDLG", framed as described in `receiver/durable/framing.py`
    body:    msgpack: [number, digest of the entry before, entry]
    entry:   `Begun`, `Settled` as often as needed, then `Booked` …

Entries are numbered from 1 and the numbers go on when the log is rewritten, so a missing entry shows as a gap
and a missing end shows against the head (`witness.py`). A later `Booked` of the same segment and part
replaces the earlier entry, so that a segment that is booked twice after a crash is counted once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from receiver.durable.append_log import NO_EXTENT, Extent
from receiver.durable.framing import Log, framed, unframed
from receiver.ledger.line_sums import Counts, Lines
from receiver.model import Heading, SegmentId

LINES_OF_ENTRY = 10_000
DIGEST_BYTES = 16
DAMAGE = "damage"
"""Part for the damaged rows of a segment."""
REPLAY = "replay"
"""Part without lines: the segment is made of dead letters, so its spans are counted already."""

_MAGIC = b"TDLG"

Row = tuple[Heading, Counts]


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first entry of a log: the state apart from the sums."""

    complete_from_hour: int
    """This hour and all later hours are complete; 0: all hours are."""
    kept_from_hour: int
    """Older hours are added up in hour 0."""
    named_from_hour: int
    """In older hours all projects are added up in `(other)`."""
    epochs: dict[int, int]
    """Epochs of the booked segments → the last hour of each."""
    window: Extent = NO_EXTENT
    """Extent of the deduplication window's log at that time."""


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Sums of deleted segments."""

    rows: tuple[Row, ...]


class Booked(msgspec.Struct, frozen=True, array_like=True, tag="booked"):
    """Outcome of a segment, or of a part of it, that still exists and may be booked again."""

    epoch: int
    seq: int
    part: str
    """See `Key`."""
    rows: tuple[Row, ...]
    parts_epoch: int | None = None
    """Epoch of its parts, which some of its rows have in the store if the segment was split."""
    window: Extent = NO_EXTENT
    """See `Begun`."""


class Key(NamedTuple):
    """Key of a ledger entry: a later `Booked` with the same key replaces it."""

    segment: SegmentId
    part: str = ""
    """Empty for the outcome of its deliveries; otherwise `DAMAGE` or `REPLAY`."""


Entry = Begun | Settled | Booked


class Position(NamedTuple):
    """Position in the chain of entries: number and digest of the last entry before it."""

    number: int = 0
    digest: bytes = b""


START = Position()


class Linked(NamedTuple):
    """An entry and the positions before and after it."""

    before: Position
    entry: Entry
    after: Position


class _Body(msgspec.Struct, frozen=True, array_like=True):
    number: int
    digest_before: bytes
    entry: Entry


_DECODER = msgspec.msgpack.Decoder(_Body)


def written(entries: Iterable[Entry], after: Position = START) -> tuple[bytes, Position]:
    """Encode entries that follow `after`. Returns the bytes to append and the position after them."""
    bodies: list[bytes] = []
    for entry in entries:
        body = msgspec.msgpack.encode(_Body(after.number + 1, after.digest, entry))
        after = Position(after.number + 1, _digest(body))
        bodies.append(body)
    return framed(_MAGIC, bodies), after


def read(content: bytes) -> Log[Linked]:
    """Decode a log. A torn tail is omitted silently; damage before it sets `is_rotten`."""
    return unframed(_MAGIC, content, _linked)


def booked(key: Key, lines: Lines, parts_epoch: int | None = None, window: Extent = NO_EXTENT) -> Booked:
    """Return the entry for a key."""
    return Booked(key.segment.epoch, key.segment.seq, key.part, tuple(lines.items()), parts_epoch, window)


def key_of(entry: Booked) -> Key:
    """Return the key of an entry."""
    return Key(SegmentId(entry.epoch, entry.seq), entry.part)


def settled(lines: Lines) -> Iterator[Settled]:
    """Split sums into entries of bounded size."""
    rows = tuple(lines.items())
    for at in range(0, len(rows), LINES_OF_ENTRY):
        yield Settled(rows[at : at + LINES_OF_ENTRY])


def _linked(body: bytes) -> Linked:
    decoded = _DECODER.decode(body)
    before = Position(decoded.number - 1, decoded.digest_before)
    return Linked(before, decoded.entry, Position(decoded.number, _digest(body)))


def _digest(body: bytes) -> bytes:
    """Return the digest of an entry. It covers earlier entries, because the body holds their digest."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
