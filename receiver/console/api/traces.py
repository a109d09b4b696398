"""Routes of a trace, and of the differences of two traces.

GET /api/v1/traces/{id}?format=lines          every stored column, a JSON object for each span
GET /api/v1/traces/{id}?format=otlp-json      one `TracesData` in OTLP JSON
GET /api/v1/traces/{id}?format=otlp-protobuf  one `TracesData` in protobuf
GET /api/v1/traces/{id}/compare/{other}       the differences of two traces, an object for each pair
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Final

from aiohttp import web

from receiver.console.api.access import CALLER
from receiver.console.api.answers import SourceRoutes, send_trace
from receiver.console.api.description.operation import BY_QUERY, TRACE, Operation
from receiver.console.api.lines import StreamedAnswer, end_line
from receiver.console.api.route import Route, query_route
from receiver.console.queries.limits import LimitedLines
from receiver.console.queries.parameter_types import TRACE_ID, choice
from receiver.console.queries.question import Parameter, reject_unknown_parameters
from receiver.console.queries.traces import traces
from receiver.console.queries.traces.otlp import CONTENT_TYPES, OtlpFormat
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.http.media_types import JSON_LINES

LINES = "lines"
_TRACE: Final = Operation(
    "trace",
    "The spans of a trace.",
    (
        TRACE,
        Parameter(
            "format",
            "lines: a line for each stored row; otlp-json, otlp-protobuf: a TracesData",
            schema=choice((LINES, *OtlpFormat), LINES),
        ),
    ),
    (JSON_LINES, *CONTENT_TYPES.values()),
    (*BY_QUERY, HTTPStatus.NOT_FOUND),
)
_COMPARISON: Final = Operation(
    "compareTraces",
    "The differences of two traces: a line per pair of spans, and per span that only one of them has.",
    (TRACE, Parameter("other", "the id of the other trace", is_required=True, schema=TRACE_ID)),
    (JSON_LINES,),
    (*BY_QUERY, HTTPStatus.NOT_FOUND),
)


class TraceRoutes(SourceRoutes):
    """Handlers of the routes."""

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            query_route("/api/v1/traces/{id}", self._trace, _TRACE),
            query_route("/api/v1/traces/{id}/compare/{other}", self._comparison, _COMPARISON),
        )

    async def _trace(self, request: web.Request) -> web.StreamResponse:
        answer = trace_answer(request.match_info["id"], request.query, request[CALLER].projects)
        return await send_trace(self._source_for(request), answer)

    async def _comparison(self, request: web.Request) -> web.StreamResponse:
        ids = request.match_info["id"], request.match_info["other"]
        return await send_trace(self._source_for(request), comparison_answer(*ids, request.query))


def trace_answer(trace_id: str, query: Mapping[str, str], projects: Sequence[str]) -> StreamedAnswer:
    """Return the answer to a request for a trace. `projects`: of the caller."""
    reject_unknown_parameters(query, ("format",))
    plain, form = traces.normalized_trace_id(trace_id), query.get("format", LINES)
    if form != LINES:
        otlp = _otlp_format(form)
        return StreamedAnswer(CONTENT_TYPES[otlp], lambda store: traces.trace_otlp(store, plain, otlp))
    started, hidden = list[LimitedLines](), list[bool]()

    def pieces(store: Store) -> Iterator[bytes]:
        has_lines = False
        started.append(traces.trace(store, plain))
        for piece in started[0].pieces():
            has_lines = True
            yield piece
        # After the lines: a connection runs one statement at a time. Only with lines: otherwise the time
        # would reveal whether a trace of other projects exists.
        if has_lines:
            hidden.append(traces.hides_spans(store, plain, projects))

    return StreamedAnswer(
        JSON_LINES, pieces, lambda count: end_line(count, is_cut=started[0].is_cut, hides_spans=any(hidden))
    )


def comparison_answer(trace_id: str, other_id: str, query: Mapping[str, str]) -> StreamedAnswer:
    """Return the answer to a request for the differences of two traces."""
    reject_unknown_parameters(query)
    ids = traces.normalized_trace_id(trace_id), traces.normalized_trace_id(other_id)
    return StreamedAnswer(JSON_LINES, lambda store: traces.comparison(store, *ids), end_line)


def _otlp_format(text: str) -> OtlpFormat:
    try:
        return OtlpFormat(text)
    except ValueError as error:
        names = ", ".join((LINES, *OtlpFormat))
        raise MalformedBody(f"format: expected one of {names}", field="format") from error
