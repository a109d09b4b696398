"""Byte layout of a record and of the footer that seals a segment. Accesses no files.

    record:   magic 0x184D2A54 u32 │ frame_bytes u32 │ header │ answers │ payload
    header:   "TDRJ" │ version u16 │ flags u16 │ payload_bytes u64 │ rows u32 │ answers_bytes u32 │ epoch u64
              │ seq u64 │ received_min_ms i64 │ received_max_ms i64 │ checksum u64
    answers:  msgpack: one entry per delivery, see `Answered`
    payload:  one LZ4 or zstd frame with one Native block; absent when rows = 0

    footer:   magic 0x184D2A55 u32 │ 44 u32 │ "TDRF" │ version u16 │ 0 u16 │ records u32 │ rows u64
              │ bytes_before u64 │ digest of the record checksums u64 │ checksum u64

All integers are little endian. `frame_bytes` counts header and answers, so that standard LZ4 and zstd tools
skip the frame and read the payload. A checksum is xxh3-64 of everything else in the record or footer.

A torn tail (fewer bytes than announced, or a last record whose checksum disagrees) is the normal result of a
crash and no error. A bad checksum in a record that another record or a footer follows is damage, which is
reported with its offset.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple, Protocol

import msgspec

from receiver import transcode
from receiver.journal.names import Kind
from receiver.model import SegmentId

if TYPE_CHECKING:
    import builtins

    from receiver.transcode import Scan

_FRAME_PREFIX = struct.Struct("<II")
_ZSTD_MAGIC = b"\x28\xb5\x2f\xfd"
_FOOTER = struct.Struct("<II4sHHIQQQQ")
_FOOTER_MAGIC = 0x184D2A55
FOOTER_BYTES = _FOOTER.size
_CHECKSUM = slice(64, 72)
"""Position of the checksum in a record."""


class Tally(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Span counts of one project in one delivery, by outcome."""

    project: str
    received: int
    stored: int
    sampled_out: int
    rejected: int


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A delivery whose rows a record holds: stored in the record, answered by its acknowledgement."""

    drain: str
    digest: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    """xxh3-128 of drain, content kind and unpacked body; identifies duplicates."""
    received_at_ns: int
    rows: int
    """Number of rows in the block; deliveries follow each other in this order."""
    tallies: tuple[Tally, ...]


class Damage(NamedTuple):
    """A byte range of a segment that was acknowledged and cannot be read."""

    segment: SegmentId
    offset: int
    length_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"segment {self.segment} at byte {self.offset}, {self.length_bytes} bytes: {self.reason}"


class FooterCounts(NamedTuple):
    """Counts that a footer holds about its segment."""

    records: int
    rows: int
    bytes_before: int


@dataclass(slots=True)
class Sums:
    """Running totals for the footer, kept while records are appended, so that no record is read again."""

    rows: int = 0
    bytes: int = 0
    checksums: bytearray = field(default_factory=bytearray)

    def add(self, record: builtins.bytes, rows: int) -> None:
        """Add a record."""
        self.rows += rows
        self.bytes += len(record)
        self.checksums += record[_CHECKSUM]

    def footer(self) -> builtins.bytes:
        """Return the footer for the records added so far."""
        return transcode.footer_for(bytes(self.checksums), self.rows, self.bytes)


class HasDeliveries(Protocol):
    """A record as the compiled core returns it."""

    @property
    def answers(self) -> bytes:
        """Deliveries of the record, encoded as msgpack."""


_ANSWERS = msgspec.msgpack.Decoder(tuple[Answered, ...])


def answers_of(record: HasDeliveries) -> tuple[Answered, ...]:
    """Decode the deliveries of a record."""
    return decoded(record.answers)


def decoded(answers: bytes) -> tuple[Answered, ...]:
    """Decode deliveries from unverified bytes. Raises `msgspec.DecodeError` or `UnicodeDecodeError`."""
    return _ANSWERS.decode(answers)


def bytes_of_records(scan: Scan) -> int:
    """Return the offset after the last complete record: the end of valid data, without a footer."""
    return scan.good_bytes - FOOTER_BYTES if scan.sealed else scan.good_bytes


def damage_in(scan: Scan, segment: SegmentId, sealed_bytes: int | None = None) -> list[Damage]:
    """Return the unreadable ranges of a segment. `sealed_bytes`: the file size if the file is sealed."""
    damage = [Damage(segment, *damaged_range) for damaged_range in scan.damage]
    if scan.records and (scan.epoch, scan.seq) != (segment.epoch, segment.seq):
        other = SegmentId(scan.epoch, scan.seq)
        damage.append(Damage(segment, 0, scan.good_bytes, f"contains records of segment {other}"))
    if sealed_bytes is not None and not scan.sealed:
        rest_bytes = sealed_bytes - scan.good_bytes
        damage.append(
            Damage(segment, scan.good_bytes, rest_bytes, "footer is missing or damaged in a sealed file")
        )
    return damage


def sealed_kind(content: bytes, scan: Scan) -> Kind:
    """Return the file kind for a sealed segment, by the codec of its first payload."""
    for record in scan.records:
        if record.rows:
            _, frame_bytes = _FRAME_PREFIX.unpack_from(content, record.offset)
            start = record.offset + _FRAME_PREFIX.size + frame_bytes
            return Kind.ZSTD if content[start : start + 4] == _ZSTD_MAGIC else Kind.LZ4
    return Kind.LZ4


def footer_counts_of(tail: bytes) -> FooterCounts | None:
    """Read the footer without verifying it: enough to list a segment, not to store it."""
    if len(tail) < FOOTER_BYTES:
        return None
    magic, _, name, _, _, records, rows, bytes_before, *_ = _FOOTER.unpack_from(
        tail, len(tail) - FOOTER_BYTES
    )
    return FooterCounts(records, rows, bytes_before) if (magic, name) == (_FOOTER_MAGIC, b"TDRF") else None
