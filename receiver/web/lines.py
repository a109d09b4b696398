"""The form of an answer in lines: one JSON object a line, then a line that says how many there were."""

from __future__ import annotations

import msgspec

JSON_LINES = "application/x-ndjson"


def end_line(count: int) -> bytes:
    """Return the last line of an answer of so many lines."""
    return msgspec.json.encode({"end": {"count": count}}) + b"\n"
