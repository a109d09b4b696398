"""Image of a waterfall as PNG: a bar for each span. Without text, so that it has no text of a sender.

A PNG is a signature and chunks: length, type, content, CRC-32. Each row of pixels begins with its filter, 0.
"""

from __future__ import annotations

import struct
import zlib
from itertools import islice
from typing import Final

from receiver.console.queries.traces.trace_model import Span, Trace

WIDTH: Final = 640
ROW_PIXELS: Final = 8
ROWS_MAX: Final = 48
"""Maximum number of spans in the image."""
_GAP_PIXELS: Final = 2
"""Pixels between two bars."""
_BACKGROUND, _BAR, _ERROR, _CRITICAL = range(4)
_PALETTE: Final = bytes((255, 255, 255, 122, 162, 247, 214, 39, 40, 27, 54, 120))
"""Red, green and blue of each color."""


def waterfall(trace: Trace) -> bytes:
    """Return the image of the first spans in the order of the tree: blue, or red if they failed.

    The lower half of a bar is dark where the span is on the critical path.
    """
    rows = [pixels for span in islice(trace.spans, ROWS_MAX) for pixels in _rows(trace, span)]
    header = struct.pack(">2I5B", WIDTH, len(rows), 8, 3, 0, 0, 0)  # 8 bits a pixel, colors by palette
    chunks = {
        b"IHDR": header,
        b"PLTE": _PALETTE,
        b"IDAT": zlib.compress(b"".join(b"\0" + row for row in rows), 9),
        b"IEND": b"",
    }
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(kind, content) for kind, content in chunks.items())


def _chunk(kind: bytes, content: bytes) -> bytes:
    checksum = zlib.crc32(content, zlib.crc32(kind))
    return struct.pack(">I", len(content)) + kind + content + struct.pack(">I", checksum)


def _rows(trace: Trace, span: Span) -> list[bytes]:
    upper = bytearray(WIDTH)
    _paint(upper, trace, (span.start_ns, span.end_ns), _ERROR if span.is_error else _BAR)
    lower = bytearray(upper)
    for section in span.critical:
        _paint(lower, trace, section, _CRITICAL)
    half = (ROW_PIXELS - _GAP_PIXELS) // 2
    return [*[bytes(upper)] * half, *[bytes(lower)] * half, *[bytes(WIDTH)] * _GAP_PIXELS]


def _paint(row: bytearray, trace: Trace, section: tuple[int, int], color: int) -> None:
    length_ns = max(1, trace.end_ns - trace.start_ns)
    left, right = ((at_ns - trace.start_ns) * WIDTH // length_ns for at_ns in section)
    # A bar thinner than a pixel would be invisible.
    left = min(left, WIDTH - 1)
    right = min(max(right, left + 1), WIDTH)
    row[left:right] = bytes([color]) * (right - left)
