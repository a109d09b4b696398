"""Span counts, total and distinct, grouped by a prefix of the trace id.

A load generator that chooses its trace ids uses them to check that every span is stored exactly once.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from receiver.console.queries.limits import COUNTS_MAX, LimitedLines, parse_limit, within_time
from receiver.console.queries.question import reject_unknown_parameters
from receiver.engine.sql_text import compose
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import SINCE_DEFAULT, TimeRange, parse_range

_HEX = re.compile(r"[0-9a-f]{2,32}")
DIGITS_MAX = 32

_COUNTS = compose(
    """
SELECT
    substring(TraceId, 1, {digits:UInt8}) AS Prefix,
    count() AS Spans,
    uniqExact(TraceId, SpanId) AS Distinct
FROM {table}
WHERE startsWith(TraceId, {trace_id:String})
  AND {in_range}
GROUP BY Prefix
ORDER BY Prefix
LIMIT {limit}
{settings}
""",
    limit=COUNTS_MAX + 1,
)


class CountQuery(NamedTuple):
    """Filter and grouping of a count."""

    trace_id: str
    """Prefix of the trace ids."""
    digits: int
    """Number of leading hex digits to group by."""
    range: TimeRange


def counts(store: Store, counted: CountQuery, *, now_s: float) -> LimitedLines:
    """Return prefix, spans and distinct spans, one JSON object a line."""
    parameters: dict[str, str | int] = {
        "trace_id": counted.trace_id,
        "digits": counted.digits,
        **counted.range.parameters(now_s),
    }
    return LimitedLines(within_time(store.lines(_COUNTS, parameters)), COUNTS_MAX)


def parse_counts(query: Mapping[str, str]) -> CountQuery:
    """Parse the parameters of a count."""
    reject_unknown_parameters(query, ("trace_id", "digits", "since", "until"))
    return CountQuery(
        trace_id=_prefix(query.get("trace_id", "")),
        digits=parse_limit(query.get("digits", str(DIGITS_MAX)), DIGITS_MAX, "digits"),
        range=parse_range(query.get("since", SINCE_DEFAULT), query.get("until", "")),
    )


def _prefix(text: str) -> str:
    if not _HEX.fullmatch(text):
        raise MalformedBody(
            f"trace_id has {len(text)} characters; expected 2 to 32 lower-case hex digits", field="trace_id"
        )
    return text
