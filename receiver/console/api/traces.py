"""Answers about a trace, and about the differences of two traces.

GET /api/v1/traces/{id}?format=lines          every stored column, one JSON object a span
GET /api/v1/traces/{id}?format=otlp-json      one `TracesData` in OTLP JSON
GET /api/v1/traces/{id}?format=otlp-protobuf  one `TracesData` in protobuf
GET /api/v1/traces/{id}/compare/{other}       the differences of two traces, one JSON object a span
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from receiver.console.api.lines import StreamedAnswer, end_line, no_end
from receiver.console.queries.question import reject_unknown_parameters
from receiver.console.queries.traces.otlp import CONTENT_TYPES, OtlpFormat
from receiver.console.queries.traces.traces import (
    comparison,
    hides_spans,
    normalized_trace_id,
    trace,
    trace_otlp,
)
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.http.media_types import JSON_LINES

LINES = "lines"


def trace_answer(
    store: Store, trace_id: str, query: Mapping[str, str], projects: Sequence[str]
) -> StreamedAnswer:
    """Return the answer to a request for a trace. `projects`: of the caller."""
    reject_unknown_parameters(query, ("format",))
    plain, form = normalized_trace_id(trace_id), query.get("format", LINES)
    if form != LINES:
        otlp = _otlp_format(form)
        return StreamedAnswer(CONTENT_TYPES[otlp], lambda: trace_otlp(store, plain, otlp), no_end)
    # Nothing runs yet: the statement starts in the query's thread, when the pieces are read.
    lines, hidden = trace(store, plain), list[bool]()

    def pieces() -> Iterator[bytes]:
        has_lines = False
        for piece in lines.pieces():
            has_lines = True
            yield piece
        # After the lines: a connection runs one statement at a time. Not without lines: it would find the
        # spans of a trace that is entirely of other projects, and take longer than for an unknown trace.
        if has_lines:
            hidden.append(hides_spans(store, plain, projects))

    return StreamedAnswer(
        JSON_LINES, pieces, lambda count: end_line(count, is_cut=lines.is_cut, hides_spans=any(hidden))
    )


def comparison_answer(store: Store, trace_id: str, other_id: str, query: Mapping[str, str]) -> StreamedAnswer:
    """Return the answer to a request for the differences of two traces."""
    reject_unknown_parameters(query)
    ids = normalized_trace_id(trace_id), normalized_trace_id(other_id)
    return StreamedAnswer(JSON_LINES, lambda: comparison(store, *ids), end_line)


def _otlp_format(text: str) -> OtlpFormat:
    try:
        return OtlpFormat(text)
    except ValueError as error:
        names = ", ".join((LINES, *OtlpFormat))
        raise MalformedBody(f"format: expected one of {names}", field="format") from error
