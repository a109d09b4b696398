"""Format of a streamed response: one JSON object a line, then a line with their count."""

from __future__ import annotations

import msgspec

JSON_LINES = "application/x-ndjson"


def end_line(count: int) -> bytes:
    """Return the last line of a response with `count` lines."""
    return msgspec.json.encode({"end": {"count": count}}) + b"\n"
