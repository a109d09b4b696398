"""A record on disk, and the footer that seals a segment. Pure bytes; no files here.

    record:   magic 0x184D2A54 u32 │ frame_bytes u32 │ header │ answers │ payload
    header:   "TDRJ" │ version u16 │ flags u16 │ payload_bytes u64 │ rows u32 │ answers_bytes u32 │ epoch u64
              │ seq u64 │ received_min_ms i64 │ received_max_ms i64 │ checksum u64
    answers:  msgpack: one entry per delivery, see `Answered`
    payload:  one LZ4 or zstd frame with one Native block; absent when rows = 0

    footer:   magic 0x184D2A55 u32 │ 44 u32 │ "TDRF" │ version u16 │ 0 u16 │ records u32 │ rows u64
              │ bytes_before u64 │ digest of the record checksums u64 │ checksum u64

All integers little endian. `frame_bytes` counts header and answers: stock tools skip the frame and read the
payload. A checksum is xxh3-64 of everything else in the record or footer.

A torn tail (fewer bytes than announced, or a last record whose checksum disagrees) is how a crash looks, so
it is an ordinary answer. Rot in a record that others follow, or that a footer seals, is damage: reported
with its place.
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
"""Where a record keeps its own."""


class Tally(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What became of one project's spans in one delivery."""

    project: str
    received: int
    stored: int
    sampled_out: int
    rejected: int


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One delivery that a record answers for."""

    drain: str
    digest: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    """xxh3-128 of drain, content kind and unpacked body: what a redelivery is known by."""
    received_at_ns: int
    rows: int
    """The delivery's rows in the block; they follow each other in this order."""
    tallies: tuple[Tally, ...]


class Damage(NamedTuple):
    """A stretch of a segment that was promised and cannot be read."""

    segment: SegmentId
    offset: int
    length_bytes: int
    reason: str

    def __str__(self) -> str:
        return f"segment {self.segment} at byte {self.offset}, {self.length_bytes} bytes: {self.reason}"


class FooterCounts(NamedTuple):
    """What a footer says of the segment before it."""

    records: int
    rows: int
    bytes_before: int


@dataclass(slots=True)
class Sums:
    """What a footer will say of the records so far, kept while they are appended: none is read again."""

    rows: int = 0
    bytes: int = 0
    checksums: bytearray = field(default_factory=bytearray)

    def add(self, record: builtins.bytes, rows: int) -> None:
        """Count one more."""
        self.rows += rows
        self.bytes += len(record)
        self.checksums += record[_CHECKSUM]

    def footer(self) -> builtins.bytes:
        """What seals them."""
        return transcode.footer_for(bytes(self.checksums), self.rows, self.bytes)


class HasDeliveries(Protocol):
    """A record, as the core tells of it."""

    @property
    def answers(self) -> bytes:
        """What it answers for, as msgpack."""


_ANSWERS = msgspec.msgpack.Decoder(tuple[Answered, ...])


def answers_of(record: HasDeliveries) -> tuple[Answered, ...]:
    """Decode what a record answers for."""
    return decoded(record.answers)


def decoded(answers: bytes) -> tuple[Answered, ...]:
    """Decode answers that are not to be trusted. Raises `msgspec.DecodeError`, `UnicodeDecodeError`."""
    return _ANSWERS.decode(answers)


def bytes_of_records(scan: Scan) -> int:
    """Where the last whole record ends: what a seal closes, and a torn seal is cut to."""
    return scan.good_bytes - FOOTER_BYTES if scan.sealed else scan.good_bytes


def damage_in(scan: Scan, segment: SegmentId, sealed_bytes: int | None = None) -> list[Damage]:
    """Everything that was promised under this name and is not there as promised. A sealed file has a size."""
    found = [Damage(segment, *stretch) for stretch in scan.damage]
    if scan.records and (scan.epoch, scan.seq) != (segment.epoch, segment.seq):
        other = SegmentId(scan.epoch, scan.seq)
        found.append(Damage(segment, 0, scan.good_bytes, f"holds records of segment {other}"))
    if sealed_bytes is not None and not scan.sealed:
        rest_bytes = sealed_bytes - scan.good_bytes
        found.append(
            Damage(segment, scan.good_bytes, rest_bytes, "no whole footer; expected one in a sealed file")
        )
    return found


def sealed_kind(content: bytes, scan: Scan) -> Kind:
    """Tell the codec, and so the name once sealed, by the first payload."""
    for record in scan.records:
        if record.rows:
            _, frame_bytes = _FRAME_PREFIX.unpack_from(content, record.offset)
            start = record.offset + _FRAME_PREFIX.size + frame_bytes
            return Kind.ZSTD if content[start : start + 4] == _ZSTD_MAGIC else Kind.LZ4
    return Kind.LZ4


def footer_counts_of(tail: bytes) -> FooterCounts | None:
    """Read the footer at the very end, trusting it: enough to list a segment, not to store it."""
    if len(tail) < FOOTER_BYTES:
        return None
    magic, _, name, _, _, records, rows, bytes_before, *_ = _FOOTER.unpack_from(
        tail, len(tail) - FOOTER_BYTES
    )
    return FooterCounts(records, rows, bytes_before) if (magic, name) == (_FOOTER_MAGIC, b"TDRF") else None
