"""The ledger's log: how everything stood when it was begun, then one entry for each segment. Pure bytes.

    magic:   "TDLG", framed as `receiver/storage/framing.py` says
    body:    msgpack: `Begun`, `Settled` as often as needed, then `Booked` …

A later `Booked` of the same segment and part takes the place of an earlier one: what is done twice after a
crash is counted once.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from receiver.model import Heading, SegmentId
from receiver.storage.appended import NO_EXTENT, Extent
from receiver.storage.framing import Log, framed, unframed
from receiver.storage.ledger_lines import Counts, Lines

LINES_OF_ENTRY = 10_000
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

_DECODER = msgspec.msgpack.Decoder(Entry)


def written(entries: Iterable[Entry]) -> bytes:
    """Lay entries out as they are appended."""
    return framed(_MAGIC, map(msgspec.msgpack.encode, entries))


def read(content: bytes) -> Log[Entry]:
    """Read a log: a torn tail is left out silently, rot is told."""
    return unframed(_MAGIC, content, _DECODER.decode)


def booked(key: Key, lines: Lines, parts_epoch: int | None = None, window: Extent = NO_EXTENT) -> Booked:
    """Make the entry of one key."""
    return Booked(key.segment.epoch, key.segment.seq, key.part, tuple(lines.items()), parts_epoch, window)


def key_of(entry: Booked) -> Key:
    """Tell what an entry is about."""
    return Key(SegmentId(entry.epoch, entry.seq), entry.part)


def settled(lines: Lines) -> Iterator[Settled]:
    """Make the entries of many sums."""
    rows = tuple(lines.items())
    for at in range(0, len(rows), LINES_OF_ENTRY):
        yield Settled(rows[at : at + LINES_OF_ENTRY])
