"""Answers to Tempo's searches: traces with their matching spans, in the strict JSON that Grafana decodes.

Grafana rejects an answer with a field that Tempo does not have, so this module adds none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from receiver.console.queries.filters.filter import Attribute, spansets, terms
from receiver.console.queries.search import SearchQuery, found_traces
from receiver.console.queries.tool_search import Matching, matching_spans, overviews
from receiver.console.queries.traces.trace_model import Row
from receiver.console.tools.common import json_line
from receiver.engine.store import Store

Json = dict[str, Any]

_DURATION_MS_MAX: Final = 2**32 - 1
_ALWAYS: Final = Attribute("resource", "service.name")


def search_answer(store: Store, wanted: SearchQuery, now_s: float, spans_max: int) -> bytes:
    """Return the answer to a search. `spans_max`: maximum number of matching spans of each trace."""
    found = found_traces(store, wanted, now_s)
    of_trace = matching_spans(store, wanted, found, now_s, spans_max)
    shown = compared_attributes(wanted)
    none = Matching(0, [])
    traces = [trace_item(row, of_trace.get(row["trace_id"], none), shown) for row in overviews(store, found)]
    return json_line({"traces": traces, "metrics": {}})


def compared_attributes(wanted: SearchQuery) -> list[Attribute]:
    """Return the attributes that the search compares, which Grafana shows beside each span."""
    compared = [term.field for spanset in spansets(wanted.filter) for term in terms(spanset.part)]
    return list(dict.fromkeys([_ALWAYS, *(field for field in compared if isinstance(field, Attribute))]))


def trace_item(row: Row, matching: Matching, shown: list[Attribute]) -> Json:
    """Return a found trace. `shown`: attributes of its matching spans."""
    errors: Mapping[str, int] = row["service_errors"]
    return {
        "traceID": row["trace_id"],
        "rootServiceName": row["service"],
        "rootTraceName": row["name"],
        "startTimeUnixNano": str(row["start_ns"]),
        "durationMs": min(int(row["duration_ns"]) // 1_000_000, _DURATION_MS_MAX),
        "spanSets": [{"matched": matching.matched, "spans": [_span(span, shown) for span in matching.first]}],
        "serviceStats": {
            name: {"spanCount": spans, "errorCount": errors.get(name, 0)}
            for name, spans in row["service_spans"].items()
        },
    }


def _span(row: Row, shown: list[Attribute]) -> Json:
    return {
        "spanID": row["SpanId"],
        "name": row["SpanName"],
        "startTimeUnixNano": str(row["StartNs"]),
        "durationNanos": str(row["Duration"]),
        "attributes": [
            {"key": key, "value": {"stringValue": value}} for key, value in dict(_values(row, shown)).items()
        ],
    }


def _values(row: Row, shown: list[Attribute]) -> Iterator[tuple[str, str]]:
    """Yield the attributes that the span has; of a key without a scope, the span's or else the resource's."""
    columns = {"resource": ("ResourceAttributes",), "span": ("SpanAttributes",)}
    for attribute in shown:
        # Not those of events and links, of which a span has many.
        both = ("ResourceAttributes", "SpanAttributes") if not attribute.scope else ()
        for column in columns.get(attribute.scope, both):
            if attribute.key in row[column]:
                yield attribute.key, row[column][attribute.key]
