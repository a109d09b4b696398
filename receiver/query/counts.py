"""Span counts, total and distinct, grouped by a prefix of the trace id.

A load generator that chooses its trace ids uses them to check that every span is stored exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from receiver.engine.store import TABLE, Store
from receiver.errors import MalformedBody
from receiver.query.limits import COUNTS_MAX, SETTINGS, within_time

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


class CountQuery(NamedTuple):
    """Filter and grouping of a count."""

    trace_id: str
    """Prefix of the trace ids."""
    digits: int
    """Number of leading hex digits to group by."""
    since_s: int
    """Maximum age of the span start in seconds."""


def counts(store: Store, counted: CountQuery, *, now_s: float) -> Iterator[bytes]:
    """Return prefix, spans and distinct spans, one JSON object a line."""
    parameters: dict[str, str | int] = {
        "trace_id": counted.trace_id,
        "digits": counted.digits,
        "from_ns": max(0, int(now_s) - counted.since_s) * 10**9,
    }
    return within_time(store.lines(_COUNTS, parameters))


def parse_prefix(text: str) -> str:
    """Parse a prefix of a trace id."""
    if not _HEX.fullmatch(text):
        raise MalformedBody(
            f"trace_id has {len(text)} characters; expected 2 to 32 lower-case hex digits", field="trace_id"
        )
    return text


def parse_digits(text: str) -> int:
    """Parse the number of digits to group by."""
    if not (text.isascii() and text.isdigit() and len(text) <= 2 and 1 <= int(text) <= DIGITS_MAX):  # noqa: PLR2004 - two digits
        raise MalformedBody(f"digits: expected a whole number from 1 to {DIGITS_MAX}", field="digits")
    return int(text)
