"""How many spans there are, and how many different ones, by the beginning of their trace id.

For whoever chose the trace ids, and wants to know whether every span is there once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from receiver.errors import MalformedBody
from receiver.query.limits import COUNTS_MAX, SETTINGS, within_time
from receiver.storage.store import TABLE, Store

_HEX = re.compile(r"[0-9a-f]{2,32}")
DIGITS_MAX = 32

_COUNTS = f"""
SELECT
    substring(TraceId, 1, {{digits:UInt8}}) AS Prefix,
    count() AS Spans,
    uniqExact(TraceId, SpanId) AS Distinct
FROM {TABLE}
WHERE startsWith(TraceId, {{trace_id:String}})
  AND Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}})
GROUP BY Prefix
ORDER BY Prefix
LIMIT {COUNTS_MAX}
{SETTINGS}
"""  # noqa: S608 - the table's name is a constant


class Counted(NamedTuple):
    """Which spans, and how they are grouped."""

    trace_id: str
    """How their trace ids begin."""
    digits: int
    """Of the trace id, by which they are counted."""
    since_s: int
    """Started at most so many seconds ago."""


def counts(store: Store, counted: Counted, *, now_s: float) -> Iterator[bytes]:
    """Give prefix, spans and distinct spans, one JSON object a line."""
    parameters: dict[str, str | int] = {
        "trace_id": counted.trace_id,
        "digits": counted.digits,
        "from_ns": max(0, int(now_s) - counted.since_s) * 10**9,
    }
    return within_time(store.lines(_COUNTS, parameters))


def parse_prefix(text: str) -> str:
    """Read the beginning of a trace id."""
    if not _HEX.fullmatch(text):
        raise MalformedBody(
            f"trace_id has {len(text)} characters; expected 2 to 32 lower-case hex digits", field="trace_id"
        )
    return text


def parse_digits(text: str) -> int:
    """Read by how many digits spans are counted."""
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= DIGITS_MAX):  # noqa: PLR2004 - two digits
        raise MalformedBody(f"digits: expected a whole number from 1 to {DIGITS_MAX}", field="digits")
    return int(text)
