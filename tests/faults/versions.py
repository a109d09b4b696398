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
    """Return the same records with another version in each header and valid checksums."""
    records, offset, rows = [], 0, 0
    while offset < len(segment) and segment[offset : offset + 4] != FOOTER_MAGIC:
        header = bytearray(segment[offset : offset + RECORD_BEFORE_CHECKSUM.size])
        following_bytes = number(header[PAYLOAD_BYTES_AT]) + number(header[ANSWERS_BYTES_AT])
        end = offset + HEADER_BYTES + following_bytes
        header[VERSION_AT] = version.to_bytes(2, "little")
        rest = segment[offset + HEADER_BYTES : end]
        records.append(bytes(header) + checksum(bytes(header) + rest) + rest)
        rows += number(header[ROWS_AT])
        offset = end
    sealed = footer(*records, rows=rows) if offset < len(segment) else b""
    return b"".join(records) + sealed


def number(raw: bytes | bytearray) -> int:
    return int.from_bytes(raw, "little")


def segments(journal: Path) -> dict[Path, bytes]:
    """Return every segment of the journal with its content."""
    paths = (path for path in journal.rglob("*") if path.name.endswith((".open", ".native.lz4")))
    return {path: path.read_bytes() for path in paths}
