"""Trace query: finds the time range of a trace in the companion table, then reads spans in that range."""

from __future__ import annotations

import re
from collections.abc import Iterator

from receiver.engine.store import COMPANION, TABLE, Parameters, Store
from receiver.errors import MalformedBody
from receiver.query.limits import SETTINGS, SPANS_MAX, within_time

_HEX_32 = re.compile(r"[0-9a-f]{32}")

_WHEN = f"""
SELECT toUnixTimestamp64Nano(min(Start)), toUnixTimestamp64Nano(max(End)), count()
FROM {COMPANION}
WHERE TraceId = {{trace_id:String}}
"""  # noqa: S608 - the table's name is a constant

_SPANS = f"""
SELECT *
FROM {TABLE}
WHERE TraceId = {{trace_id:String}}
  AND Timestamp >= fromUnixTimestamp64Nano({{from_ns:Int64}})
  AND Timestamp <= fromUnixTimestamp64Nano({{to_ns:Int64}})
ORDER BY Timestamp
LIMIT {SPANS_MAX}
{SETTINGS}
"""  # noqa: S608 - as above


def trace(store: Store, trace_id: str) -> Iterator[bytes]:
    """Return the spans of a trace by start time, one JSON object a line. An unknown trace has no lines."""
    parameters: Parameters = {"trace_id": normalized_trace_id(trace_id)}
    from_ns, to_ns, found = store.rows(_WHEN, parameters)[0]
    if not found:
        return iter(())
    return within_time(store.lines(_SPANS, {**parameters, "from_ns": from_ns, "to_ns": to_ns}))


def normalized_trace_id(trace_id: str) -> str:
    """Return a trace id in lower case without the dashes of a UUID."""
    plain = trace_id.strip().lower().replace("-", "")
    if not _HEX_32.fullmatch(plain):
        raise MalformedBody(f"trace id has {len(plain)} characters; expected 32 hex digits", field="trace_id")
    return plain
