"""A second, slow writing of the core's record layout, so that the journal can be tested against both."""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

import backports.zstd
import lz4.frame  # type: ignore[import-untyped]  # it ships no types
import msgspec
import xxhash

PREFIX = struct.Struct("<II")
HEADER = struct.Struct("<4sHHQIIQQqqQ")
FOOTER = struct.Struct("<4sHHIQQQ")
RECORD_MAGIC, FOOTER_MAGIC = 0x184D2A54, 0x184D2A55
CHECKSUM = struct.Struct("<Q")


class CoreError(ValueError):
    """As the core's."""


@dataclass
class Record:
    """As the core's."""

    offset: int
    length: int
    rows: int
    answers: bytes
    received_ms: tuple[int, int]
    checksum: int


@dataclass
class Scan:
    """As the core's."""

    epoch: int = 0
    seq: int = 0
    records: list[Record] = field(default_factory=list)
    good_bytes: int = 0
    sealed: bool = False
    damage: list[tuple[int, int, str]] = field(default_factory=list)


def record(  # noqa: PLR0913 - each can be left out
    name: str, *, epoch: int = 0, seq: int = 0, rows: int = 1, padding_bytes: int = 0, zstd: bool = False
) -> bytes:
    """Build a record that answers for one delivery of the drain `name`."""
    answers = msgspec.msgpack.encode([[name, b"d" * 16, 1, rows, [["prj", rows, rows, 0, 0]]]])
    block = b"block of " + name.encode() + b"." * padding_bytes
    frame = backports.zstd.compress(block) if zstd else lz4.frame.compress(block, compression_level=0)
    payload = frame if rows else b""
    sized = (b"TDRJ", 1, 0, len(payload), rows, len(answers), epoch, seq, 5, 7)
    plain = HEADER.pack(*sized, 0)[: -CHECKSUM.size]
    checksum = xxhash.xxh3_64_intdigest(plain + answers + payload)
    prefix = PREFIX.pack(RECORD_MAGIC, HEADER.size + len(answers))
    return prefix + plain + CHECKSUM.pack(checksum) + answers + payload


def footer(segment: bytes) -> bytes:
    """As the core's."""
    found = scan(segment)
    rows = sum(record.rows for record in found.records)
    sums = b"".join(CHECKSUM.pack(record.checksum) for record in found.records)
    plain = FOOTER.pack(b"TDRF", 1, 0, len(found.records), rows, len(segment), 0)[: -CHECKSUM.size]
    content = plain + CHECKSUM.pack(xxhash.xxh3_64_intdigest(sums + plain))
    return PREFIX.pack(FOOTER_MAGIC, len(content)) + content


def scan(segment: bytes) -> Scan:
    """As the core's: whole records, then a footer, then nothing; what lies between is damage."""
    found = Scan()
    offset, bad_from = 0, None
    while offset < len(segment):
        whole = _record_at(segment, offset)
        if whole is not None and found.records and whole[1] != (found.epoch, found.seq):
            whole = None
        closes = _is_footer(segment, offset)
        if whole is None and not closes:
            bad_from = offset if bad_from is None else bad_from
            offset += 1
            continue
        if bad_from is not None:
            found.damage.append((bad_from, offset - bad_from, "no whole record; expected one"))
            bad_from = None
        if whole is None:
            found.sealed = bool(found.damage) or segment[offset:] == footer(segment[:offset])
            break
        found.records.append(whole[0])
        found.epoch, found.seq = whole[1]
        offset += whole[0].length
        found.good_bytes = offset
    return found


def _record_at(segment: bytes, offset: int) -> tuple[Record, tuple[int, int]] | None:
    start = offset + PREFIX.size
    if len(segment) < start + HEADER.size or not segment.startswith(CHECKSUM.pack(RECORD_MAGIC)[:4], offset):
        return None
    _, frame_bytes = PREFIX.unpack_from(segment, offset)
    name, version, _, payload_bytes, rows, answers_bytes, epoch, seq, low, high, checksum = (
        HEADER.unpack_from(segment, start)
    )
    rest = start + HEADER.size
    end = rest + answers_bytes + payload_bytes
    if (name, version, frame_bytes) != (b"TDRJ", 1, HEADER.size + answers_bytes) or end > len(segment):
        return None
    plain = segment[start : rest - CHECKSUM.size]
    if xxhash.xxh3_64_intdigest(plain + segment[rest:end]) != checksum:
        return None
    answers = segment[rest : rest + answers_bytes]
    return Record(offset, end - offset, rows, answers, (low, high), checksum), (epoch, seq)


def _is_footer(segment: bytes, offset: int) -> bool:
    prefix = PREFIX.pack(FOOTER_MAGIC, FOOTER.size)
    if len(segment) - offset != PREFIX.size + FOOTER.size or not segment.startswith(prefix, offset):
        return False
    return bool(FOOTER.unpack_from(segment, offset + PREFIX.size)[5] == offset)
