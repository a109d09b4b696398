"""Independent implementation of the record layout, to test the core without using it."""

from __future__ import annotations

import struct

import msgspec
import xxhash

RECORD_BEFORE_CHECKSUM = struct.Struct("<II4sHHQIIQQqq")
FOOTER_BEFORE_CHECKSUM = struct.Struct("<II4sHHIQQQ")
CHECKSUM = struct.Struct("<Q")
HEADER_BYTES = RECORD_BEFORE_CHECKSUM.size + CHECKSUM.size
PREFIX_BYTES = 8
LZ4_MAGIC, ZSTD_MAGIC = b"\x04\x22\x4d\x18", b"\x28\xb5\x2f\xfd"


def record(  # noqa: PLR0913 - every argument is optional
    name: str,
    *,
    epoch: int = 0,
    seq: int = 0,
    rows: int = 1,
    padding_bytes: int = 0,
    magic: bytes = LZ4_MAGIC,
) -> bytes:
    """Build a record with one answer for the drain `name`. Its payload is not a block."""
    answers = msgspec.msgpack.encode([[name, b"d" * 16, 1, rows, [["prj", rows, rows, 0, 0]]]])
    payload = magic + b"block of " + name.encode() + b"." * padding_bytes if rows else b""
    follows = HEADER_BYTES - PREFIX_BYTES + len(answers)
    sized = (0x184D2A54, follows, b"TDRJ", 1, 0, len(payload), rows, len(answers), epoch, seq, 5, 7)
    header = RECORD_BEFORE_CHECKSUM.pack(*sized)
    return header + checksum(header + answers + payload) + answers + payload


def footer(*records: bytes, rows: int) -> bytes:
    """Build the footer that seals these records."""
    checksums = b"".join(record[RECORD_BEFORE_CHECKSUM.size : HEADER_BYTES] for record in records)
    counted = (len(records), rows, sum(map(len, records)), xxhash.xxh3_64_intdigest(checksums))
    plain = FOOTER_BEFORE_CHECKSUM.pack(0x184D2A55, 44, b"TDRF", 1, 0, *counted)
    return plain + checksum(plain)


def checksum(content: bytes) -> bytes:
    """Return the checksum as it is stored."""
    return CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))
