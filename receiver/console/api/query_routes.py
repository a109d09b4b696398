"""Routes of queries: a route for each entry of `questions`, and span counts by trace id.

GET /api/v1/search, spans, services, operations …         see `receiver.console.queries.questions`
GET /api/v1/deployments/{id}/events                       the query `deployment-events`
GET /api/v1/counts?trace_id=ab12&digits=16&since=15m      spans by prefix of their trace id
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any, Final

from aiohttp import web
from multidict import MultiDict

from receiver.console.api.answers import SourceRoutes, send_document, send_lines
from receiver.console.api.description import operation
from receiver.console.api.lines import ARROW, StreamedAnswer, limited_answer
from receiver.console.api.route import Route, query_route
from receiver.console.queries.aggregates.counts import DIGITS_MAX, counts, parse_counts
from receiver.console.queries.deployment_events import EVENTS_DEFAULT, EVENTS_MAX
from receiver.console.queries.deployment_events import PARAMETERS as EVENT_PARAMETERS
from receiver.console.queries.parameter_types import Schema, whole_number
from receiver.console.queries.question import Asked, Parameter, Question
from receiver.console.queries.questions import QUESTIONS
from receiver.http.media_types import JSON, JSON_LINES

_PREFIX: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{2,32}$"}
_EVENTS: Final = operation.Operation(
    "eventsOfDeployment",
    "The stored events of a deployment: build log, changes of state, requests.",
    (
        Parameter("id", "the id of a deployment", is_required=True),
        *EVENT_PARAMETERS[1:],
        operation.since(),
        operation.UNTIL,
        Parameter("limit", "maximum number of lines", schema=whole_number(1, EVENTS_MAX, EVENTS_DEFAULT)),
    ),
    (JSON_LINES,),
    operation.BY_QUERY,
)
_COUNTS: Final = operation.Operation(
    "counts",
    "Numbers of spans by prefix of their trace id.",
    (
        Parameter("trace_id", "a prefix of the trace ids", is_required=True, schema=_PREFIX),
        Parameter("digits", "how many digits to group by", schema=whole_number(1, DIGITS_MAX, DIGITS_MAX)),
        operation.since(),
        operation.UNTIL,
    ),
    (JSON_LINES,),
    operation.BY_QUERY,
)


class QueryRoutes(SourceRoutes):
    """Handlers of the queries."""

    def routes(self) -> Iterator[Route]:
        """Yield the routes."""
        for name, question in QUESTIONS.items():
            yield query_route(f"/api/v1/{name}", self._question, _operation(name, question))
        yield query_route("/api/v1/deployments/{id}/events", self._deployment_events, _EVENTS)
        yield query_route("/api/v1/counts", self._counts, _COUNTS)

    async def _question(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, QUESTIONS[request.path.rpartition("/")[2]], request.query)

    async def _deployment_events(self, request: web.Request) -> web.StreamResponse:
        query = MultiDict([*request.query.items(), ("deployment", request.match_info["id"])])
        return await self._answer(request, QUESTIONS["deployment-events"], query)

    async def _answer(
        self, request: web.Request, question: Question[Any], query: Mapping[str, str]
    ) -> web.StreamResponse:
        asked, source = question.parse(query), self._source_for(request)
        if ARROW in request.headers.get("Accept", ""):
            return await send_lines(source, source.queues.heavy, _arrow(question, asked))
        answer = limited_answer(lambda store: question.ask(store, asked, time.time()))
        queue = source.queues.short if question.is_short else source.queues.heavy
        if question.is_single:
            return await send_document(source, queue, answer.pieces)
        return await send_lines(source, queue, answer)

    async def _counts(self, request: web.Request) -> web.StreamResponse:
        counted, source = parse_counts(request.query), self._source_for(request)
        answer = limited_answer(lambda store: counts(store, counted, now_s=time.time()))
        return await send_lines(source, source.queues.heavy, answer)


def _operation(name: str, question: Question[Any]) -> operation.Operation:
    first, *rest = name.split("-")
    lines = JSON if question.is_single else JSON_LINES
    not_found = [HTTPStatus.NOT_FOUND] if name == "compare" else []
    return operation.Operation(
        first + "".join(word.capitalize() for word in rest),
        question.summary,
        tuple(operation.question_parameters(question)),
        (lines,) if question.ask_arrow is None else (lines, ARROW),
        (*operation.BY_QUERY, HTTPStatus.NOT_ACCEPTABLE, *not_found),
        row=question.row,
    )


def _arrow(question: Question[Any], asked: Asked[Any]) -> StreamedAnswer:
    """Return an Arrow stream, which ends with its own mark."""
    ask_arrow = question.ask_arrow
    if ask_arrow is None:
        raise web.HTTPNotAcceptable
    return StreamedAnswer(ARROW, lambda store: ask_arrow(store, asked, time.time()))
