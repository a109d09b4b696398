"""The ledger's log: how everything stood when it was begun, then one entry for each segment. Pure bytes.

    magic:   "TDLG", framed as `receiver/storage/framing.py` says
    body:    msgpack: [number, digest of the entry before, entry]
    entry:   `Begun`, `Settled` as often as needed, then `Booked` …

Entries are numbered from 1 and the numbers go on when the log is rewritten, so a missing entry shows as a gap
and a missing end shows against the head (`ledger_witness.py`). A later `Booked` of the same segment and part
replaces the earlier one: what is done twice after a crash is counted once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from receiver.model import Heading, SegmentId
from receiver.storage.appended import NO_EXTENT, Extent
from receiver.storage.framing import Log, framed, unframed
from receiver.storage.ledger_lines import Counts, Lines

LINES_OF_ENTRY = 10_000
DIGEST_BYTES = 16
DAMAGE = "damage"
"""What the disk gave back damaged of a segment."""
REPLAY = "replay"
"""No lines: a note that the segment is made of dead letters, so that its spans are counted already."""

_MAGIC = b"TDLG"

Row = tuple[Heading, Counts]


class Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first entry: what is known beside the sums."""

    complete_from_hour: int
    """Nothing is missing in this hour and later; 0: nothing at all."""
    kept_from_hour: int
    """What is older is added up in the hour 0."""
    named_from_hour: int
    """In older hours all projects are counted together."""
    epochs: dict[int, int]
    """Starts of intakes whose segments were booked, and the last hour of each."""
    window: Extent = NO_EXTENT
    """How far the redelivery window's log was on the disk by then."""


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Sums over segments that are gone."""

    rows: tuple[Row, ...]


class Booked(msgspec.Struct, frozen=True, array_like=True, tag="booked"):
    """What became of a segment, or of a part of it, that may still lie there and be booked again."""

    epoch: int
    seq: int
    part: str
    """See `Key`."""
    rows: tuple[Row, ...]
    parts_epoch: int | None = None
    """What its rows are known by in the store, too, if it was cut up."""
    window: Extent = NO_EXTENT
    """See `Begun`."""


class Key(NamedTuple):
    """What is booked once."""

    segment: SegmentId
    part: str = ""
    """Empty: what became of its deliveries. `DAMAGE`, `REPLAY`: see there."""


Entry = Begun | Settled | Booked


class Position(NamedTuple):
    """A place in the chain: the number of the last entry before it, and that entry's digest."""

    number: int = 0
    digest: bytes = b""


START = Position()


class Linked(NamedTuple):
    """An entry and its place in the chain."""

    before: Position
    entry: Entry
    after: Position


class _Body(msgspec.Struct, frozen=True, array_like=True):
    number: int
    digest_before: bytes
    entry: Entry


_DECODER = msgspec.msgpack.Decoder(_Body)


def written(entries: Iterable[Entry], after: Position = START) -> tuple[bytes, Position]:
    """Encode entries that follow `after`. Returns the bytes to append and the position behind them."""
    bodies: list[bytes] = []
    for entry in entries:
        body = msgspec.msgpack.encode(_Body(after.number + 1, after.digest, entry))
        after = Position(after.number + 1, _digest(body))
        bodies.append(body)
    return framed(_MAGIC, bodies), after


def read(content: bytes) -> Log[Linked]:
    """Decode a log. A torn tail is left out silently, damage before the tail sets `is_rotten`."""
    return unframed(_MAGIC, content, _linked)


def booked(key: Key, lines: Lines, parts_epoch: int | None = None, window: Extent = NO_EXTENT) -> Booked:
    """Make the entry of one key."""
    return Booked(key.segment.epoch, key.segment.seq, key.part, tuple(lines.items()), parts_epoch, window)


def key_of(entry: Booked) -> Key:
    """Return what an entry is about."""
    return Key(SegmentId(entry.epoch, entry.seq), entry.part)


def settled(lines: Lines) -> Iterator[Settled]:
    """Make the entries of many sums."""
    rows = tuple(lines.items())
    for at in range(0, len(rows), LINES_OF_ENTRY):
        yield Settled(rows[at : at + LINES_OF_ENTRY])


def _linked(body: bytes) -> Linked:
    found = _DECODER.decode(body)
    before = Position(found.number - 1, found.digest_before)
    return Linked(before, found.entry, Position(found.number, _digest(body)))


def _digest(body: bytes) -> bytes:
    """Chain an entry to all before it: the body holds the digest of its predecessor."""
    return hashlib.blake2b(body, digest_size=DIGEST_BYTES).digest()
