"""Content of records and segments, as the core reads it. Accesses no files.

The byte layout of records and footers is in `transcode/src/frame.rs`; only the core reads it. The deliveries
that a record acknowledges are msgpack, see `Answered`.

A torn tail (fewer bytes than declared, or a last record with a wrong checksum) is the normal result of a
crash and not an error. A wrong checksum in a record that another record or a footer follows is damage, which
is reported with its offset.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Annotated, NamedTuple

import msgspec

from receiver import transcode
from receiver.journal.segment_core import Record
from receiver.model import SegmentId

if TYPE_CHECKING:
    import builtins

    from receiver.transcode import Scan


class Tally(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Span counts of one project in one delivery, by outcome."""

    project: str
    received: int
    stored: int
    sampled_out: int
    rejected: int


class Answered(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A delivery whose rows are in a record. Syncing the record acknowledges the delivery."""

    drain: str
    digest: Annotated[bytes, msgspec.Meta(min_length=16, max_length=16)]
    """Keyed digest of drain, content kind and decompressed body. Identifies duplicates."""
    received_at_ns: int
    rows: int
    """Number of its rows in the block. The rows of the deliveries follow each other in list order."""
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
    records: int
    rows: int
    bytes_before: int


@dataclass(slots=True)
class Sums:
    """Running totals for the footer, so that sealing need not read the records again."""

    rows: int = 0
    bytes: int = 0
    heads: bytearray = field(default_factory=bytearray)

    def add(self, record: builtins.bytes, rows: int) -> None:
        self.rows += rows
        self.bytes += len(record)
        self.heads += record[: transcode.HEAD_BYTES]

    def footer(self) -> builtins.bytes:
        """Return the footer for the records added so far."""
        return transcode.footer_for(bytes(self.heads))


_ANSWERS = msgspec.msgpack.Decoder(tuple[Answered, ...])


def answers_of(record: Record) -> tuple[Answered, ...]:
    return decoded(record.answers)


def decoded(answers: bytes) -> tuple[Answered, ...]:
    """Decode deliveries from unverified bytes. Raises `msgspec.DecodeError` or `UnicodeDecodeError`."""
    return _ANSWERS.decode(answers)


def bytes_of_records(scan: Scan) -> int:
    """Return the offset after the last complete record: the end of valid data, without a footer."""
    return scan.good_bytes - transcode.FOOTER_BYTES if scan.sealed else scan.good_bytes


def damage_in(scan: Scan, segment: SegmentId, sealed_bytes: int | None = None) -> list[Damage]:
    """Return the unreadable ranges of a segment. `sealed_bytes`: the file size if the file is sealed."""
    damage = [Damage(segment, *damaged_range) for damaged_range in scan.damage]
    # A count by this segment's id would never find these rows in the store.
    if scan.records and (scan.epoch, scan.seq) != (segment.epoch, segment.seq):
        other = SegmentId(scan.epoch, scan.seq)
        damage.append(Damage(segment, 0, scan.good_bytes, f"contains records of segment {other}"))
    # An open file has no footer yet, so only a sealed file can lack one.
    if sealed_bytes is not None and not scan.sealed:
        rest_bytes = sealed_bytes - scan.good_bytes
        damage.append(
            Damage(segment, scan.good_bytes, rest_bytes, "footer is missing or damaged in a sealed file")
        )
    return damage


def footer_counts_of(tail: bytes) -> FooterCounts | None:
    """Read the footer at the end of a segment. Sufficient to list a segment, but not to store it."""
    counts = transcode.footer_counts(tail)
    return FooterCounts(*counts) if counts else None
