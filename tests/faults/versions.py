"""The journal as another version of the program would have written it."""

from __future__ import annotations

from pathlib import Path

from tests.support.record_layout import (
    FOOTER_BEFORE_CHECKSUM,
    HEADER_BYTES,
    RECORD_BEFORE_CHECKSUM,
    checksum,
    footer,
)

VERSION_AT = slice(12, 14)
PAYLOAD_BYTES_AT = slice(16, 24)
ROWS_AT = slice(24, 28)
ANSWERS_BYTES_AT = slice(28, 32)
FOOTER_BYTES = FOOTER_BEFORE_CHECKSUM.size + 8
FOOTER_MAGIC = b"\x55\x2a\x4d\x18"


def as_version(segment: bytes, version: int) -> bytes:
    """The same records, each with another version in its head and a checksum that is right."""
    records, offset, rows = [], 0, 0
    while offset < len(segment) and segment[offset : offset + 4] != FOOTER_MAGIC:
        head = bytearray(segment[offset : offset + RECORD_BEFORE_CHECKSUM.size])
        follows = number(head[PAYLOAD_BYTES_AT]) + number(head[ANSWERS_BYTES_AT])
        end = offset + HEADER_BYTES + follows
        head[VERSION_AT] = version.to_bytes(2, "little")
        rest = segment[offset + HEADER_BYTES : end]
        records.append(bytes(head) + checksum(bytes(head) + rest) + rest)
        rows += number(head[ROWS_AT])
        offset = end
    sealed = footer(*records, rows=rows) if offset < len(segment) else b""
    return b"".join(records) + sealed


def number(raw: bytes | bytearray) -> int:
    return int.from_bytes(raw, "little")


def segments(journal: Path) -> dict[Path, bytes]:
    """Every segment with its content."""
    found = (path for path in journal.rglob("*") if path.name.endswith((".open", ".native.lz4")))
    return {path: path.read_bytes() for path in found}
