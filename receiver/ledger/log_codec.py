"""Codec of the ledger's log: the state at its beginning, then one entry per segment.

    magic:   "TDLG", framed as described in `receiver/durable/append_log.py`
    body:    msgpack: [number, digest of the entry before, entry]
    entry:   `Begun`, `Settled` as often as needed, then `SegmentEntry` …

Entries are numbered from 1, and numbering continues when the log is rewritten. A missing entry is therefore
visible as a gap, and a missing end by comparison with the head (`loss_detection.py`). A later `SegmentEntry`
of the same segment and part replaces the earlier entry, so that a segment recorded twice after a crash is
counted once.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from typing import NamedTuple

import msgspec

from receiver.durable.append_log import NO_EXTENT, Extent, Log, framed, unframed
from receiver.ledger.line_sums import Counts, Lines
from receiver.model import Heading, SegmentId

LINES_OF_ENTRY = 10_000
"""Maximum number of lines in a `Settled` entry, so that no entry grows with the ledger."""
DIGEST_BYTES = 16
DAMAGE = "damage"
"""Part of an entry for the damaged rows of a segment."""
REPLAY = "replay"
"""Part that marks a segment of replayed dead letters, whose spans are already counted. It has no lines."""
DELETION = "deletion"
"""Part of an entry for deleted rows. The epoch is 0 and the sequence number the deletion's random id."""

_MAGIC = b"TDLG"

Row = tuple[Heading, Counts]


# Tags are part of the format on disk, so they stay when a class is renamed.
class Begun(msgspec.Struct, frozen=True, array_like=True, tag="begun"):
    """The first entry of a log: the state apart from the sums."""

    complete_from_hour: int
    """First hour from which on the counts are complete; 0 if all hours are complete."""
    kept_from_hour: int
    """First hour with lines of its own. Older hours are added up in hour 0."""
    named_from_hour: int
    """First hour with separate projects. In older hours all projects are added up in `(other)`."""
    epochs: dict[int, int]
    """Epochs of the recorded segments, each with its last hour."""
    window: Extent
    """Extent of the deduplication window's log at that time."""


class Settled(msgspec.Struct, frozen=True, array_like=True, tag="settled"):
    """Sums of deleted segments."""

    rows: tuple[Row, ...]


class SegmentEntry(msgspec.Struct, frozen=True, array_like=True, tag="booked"):
    """Outcome of a segment, or of a part of it, that still exists and may be recorded again."""

    epoch: int
    seq: int
    part: str
    """See `Key`."""
    rows: tuple[Row, ...]
    parts_epoch: int | None
    """Epoch that rows of a split segment may have in the store, in place of the segment's epoch."""
    window: Extent
    """See `Begun`."""


class Key(NamedTuple):
    """Key of a ledger entry: a later `SegmentEntry` with the same key replaces it."""

    segment: SegmentId
    part: str = ""
    """Empty for the outcome of its deliveries; otherwise `DAMAGE`, `REPLAY` or `DELETION`."""


Entry = Begun | Settled | SegmentEntry


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
    """Decode a log. A torn tail is omitted silently; damage before it sets `is_damaged`."""
    return unframed(_MAGIC, content, _linked)


def segment_entry(
    key: Key, lines: Lines, parts_epoch: int | None = None, window: Extent = NO_EXTENT
) -> SegmentEntry:
    return SegmentEntry(
        key.segment.epoch, key.segment.seq, key.part, tuple(lines.items()), parts_epoch, window
    )


def key_of(entry: SegmentEntry) -> Key:
    """Return the key of an entry. A later entry with the same key replaces it."""
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
