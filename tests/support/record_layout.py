"""A second writing of the record layout: what the core must read, built without it."""

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


def record(  # noqa: PLR0913 - each can be left out
    name: str,
    *,
    epoch: int = 0,
    seq: int = 0,
    rows: int = 1,
    padding_bytes: int = 0,
    magic: bytes = LZ4_MAGIC,
) -> bytes:
    """Build a record that answers for one delivery of the drain `name`. Its payload is no block."""
    answers = msgspec.msgpack.encode([[name, b"d" * 16, 1, rows, [["prj", rows, rows, 0, 0]]]])
    payload = magic + b"block of " + name.encode() + b"." * padding_bytes if rows else b""
    follows = HEADER_BYTES - PREFIX_BYTES + len(answers)
    sized = (0x184D2A54, follows, b"TDRJ", 1, 0, len(payload), rows, len(answers), epoch, seq, 5, 7)
    header = RECORD_BEFORE_CHECKSUM.pack(*sized)
    return header + checksum(header + answers + payload) + answers + payload


def footer(*records: bytes, rows: int) -> bytes:
    """Build what seals these records."""
    checksums = b"".join(one[RECORD_BEFORE_CHECKSUM.size : HEADER_BYTES] for one in records)
    counted = (len(records), rows, sum(map(len, records)), xxhash.xxh3_64_intdigest(checksums))
    plain = FOOTER_BEFORE_CHECKSUM.pack(0x184D2A55, 44, b"TDRF", 1, 0, *counted)
    return plain + checksum(plain)


def checksum(content: bytes) -> bytes:
    """As it lies on the disk."""
    return CHECKSUM.pack(xxhash.xxh3_64_intdigest(content))
