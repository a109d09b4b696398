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
FOOTER = struct.Struct("<4sHHIQQQQ")
RECORD_MAGIC, FOOTER_MAGIC = 0x184D2A54, 0x184D2A55
CHECKSUM = struct.Struct("<Q")
RECORD_MAGIC_BYTES = RECORD_MAGIC.to_bytes(4, "little")
FOOTER_BYTES = PREFIX.size + FOOTER.size


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
    prefix = PREFIX.pack(RECORD_MAGIC, HEADER.size + len(answers))
    plain = prefix + HEADER.pack(*sized, 0)[: -CHECKSUM.size]
    checksum = xxhash.xxh3_64_intdigest(plain + answers + payload)
    return plain + CHECKSUM.pack(checksum) + answers + payload


def footer(segment: bytes) -> bytes:
    """As the core's."""
    found = scan(segment)
    if found.sealed or found.damage or found.good_bytes != len(segment):
        raise CoreError("segment is sealed, torn or damaged")
    rows = sum(record.rows for record in found.records)
    sized = (b"TDRF", 1, 0, len(found.records), rows, len(segment), _digest(found))
    plain = PREFIX.pack(FOOTER_MAGIC, FOOTER.size) + FOOTER.pack(*sized, 0)[: -CHECKSUM.size]
    return plain + CHECKSUM.pack(xxhash.xxh3_64_intdigest(plain))


def scan(segment: bytes) -> Scan:
    """As the core's: whole records, then a footer, then nothing; what lies between is damage."""
    found = Scan()
    offset = bad_from = 0
    while offset < len(segment) and not found.sealed:
        whole = _record_at(segment, offset, found)
        digest = _footer_at(segment, offset)
        if whole is None and digest is None:
            offset += 1
            continue
        if bad_from < offset:
            found.damage.append((bad_from, offset - bad_from, "no whole record; expected one"))
        if whole is not None:
            found.records.append(whole)
            offset += whole.length
        else:
            found.sealed = True
            if not found.damage and digest != _digest(found):
                found.damage.append((offset, 0, "footer disagrees"))
            offset += FOOTER_BYTES
        bad_from = found.good_bytes = offset
    if found.sealed and bad_from < len(segment):
        found.damage.append((bad_from, len(segment) - bad_from, "bytes after the footer"))
    return found


def _digest(found: Scan) -> int:
    return xxhash.xxh3_64_intdigest(b"".join(CHECKSUM.pack(record.checksum) for record in found.records))


def _record_at(segment: bytes, offset: int, found: Scan) -> Record | None:
    start = offset + PREFIX.size
    if len(segment) < start + HEADER.size or not segment.startswith(RECORD_MAGIC_BYTES, offset):
        return None
    name, version, _, payload_bytes, rows, answers_bytes, epoch, seq, low, high, checksum = (
        HEADER.unpack_from(segment, start)
    )
    rest = start + HEADER.size
    end = rest + answers_bytes + payload_bytes
    if (name, version) != (b"TDRJ", 1) or end > len(segment):
        return None
    if xxhash.xxh3_64_intdigest(segment[offset : rest - CHECKSUM.size] + segment[rest:end]) != checksum:
        return None
    if not found.records:
        found.epoch, found.seq = epoch, seq
    elif (found.epoch, found.seq) != (epoch, seq):
        return None
    answers = segment[rest : rest + answers_bytes]
    return Record(offset, end - offset, rows, answers, (low, high), checksum)


def _footer_at(segment: bytes, offset: int) -> int | None:
    """Return the digest that a whole footer names."""
    end = offset + FOOTER_BYTES
    if end > len(segment) or not segment.startswith(PREFIX.pack(FOOTER_MAGIC, FOOTER.size), offset):
        return None
    *_, bytes_before, digest, checksum = FOOTER.unpack_from(segment, offset + PREFIX.size)
    plain = segment[offset : end - CHECKSUM.size]
    return digest if (bytes_before, checksum) == (offset, xxhash.xxh3_64_intdigest(plain)) else None
