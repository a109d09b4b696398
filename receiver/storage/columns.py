"""The columns that our segments fill, and whether a table still takes them as they are.

A server converts what it is sent to whatever type a column has become, and says nothing of what is lost by
it. So an altered table is refused before the INSERT: the segments wait until somebody has mended it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_ATTRIBUTES = "Map(String, String)"

COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("TraceId", "SpanId", "ParentSpanId", "TraceState", "SpanName", "SpanKind"), "String"),
    **dict.fromkeys(("ServiceName", "ScopeName", "ScopeVersion", "StatusCode", "StatusMessage"), "String"),
    **dict.fromkeys(("ProjectId", "DeploymentId", "Drain", "SampleReason"), "String"),
    **dict.fromkeys(("ResourceSchemaUrl", "ScopeSchemaUrl"), "String"),
    **dict.fromkeys(("ResourceAttributes", "SpanAttributes", "ScopeAttributes"), _ATTRIBUTES),
    **dict.fromkeys(("Events.Name", "Links.TraceId", "Links.SpanId", "Links.TraceState"), "Array(String)"),
    **dict.fromkeys(("Events.Attributes", "Links.Attributes"), f"Array({_ATTRIBUTES})"),
    **dict.fromkeys(("Duration", "SegmentEpoch", "SegmentSeq", "SampleThreshold"), "UInt64"),
    **dict.fromkeys(("TraceFlags", "DroppedAttributesCount"), "UInt32"),
    **dict.fromkeys(("DroppedEventsCount", "DroppedLinksCount"), "UInt32"),
    "Timestamp": "DateTime64(9)",
    "Events.Timestamp": "Array(DateTime64(9))",
    "ReceivedAt": "DateTime64(3)",
    "SampleWeight": "Float64",
}
"""Without what makes no difference to a value: `LowCardinality`, `Nullable`, a time zone."""

_NO_DIFFERENCE = re.compile(r"LowCardinality\(|Nullable\(|, '[^']*'|\)")


def alteration(found: Iterable[tuple[str, str]]) -> str:
    """Say how a table, names and types of its columns, differs. Empty: it takes what we send."""
    types = dict(found)
    for name, expected in COLUMNS.items():
        if name not in types:
            return f"column '{name}' is gone"
        if _bare(types[name]) != _bare(expected):
            return f"column '{name}' is {types[name]}; expected {expected}"
    return ""


def _bare(kind: str) -> str:
    return _NO_DIFFERENCE.sub("", kind)
