"""Routes of Tempo's HTTP API below `/tempo`.

    GET /tempo/api/echo, /api/status/buildinfo       whether Tempo answers, and its version
    GET /tempo/api/v2/traces/{id}, /api/traces/{id}  a trace in protobuf
    GET /tempo/api/search?q=&limit=&spss=&start=     traces that match a query in TraceQL
    GET /tempo/api/v2/search/tags?scope=             names of tags by scope; without `v2`: as one list
    GET /tempo/api/v2/search/tag/{tag}/values?q=     values of a tag, with their types; without `v2`: texts

Invariant: a query becomes a filter tree, which is compiled to SQL with parameters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Final

from aiohttp import web

from receiver.console.api.responses import Handler, whole_json
from receiver.console.api.route import Route
from receiver.console.queries.filters.filter import TraceFilter
from receiver.console.queries.filters.filter_text import parse_trace_filter
from receiver.console.queries.filters.plain_text import is_plain
from receiver.console.queries.filters.traceql import parse_traceql
from receiver.console.queries.limits import NAMES_DEFAULT
from receiver.console.queries.question import Asked
from receiver.console.queries.search import SearchQuery
from receiver.console.queries.traces.otlp import OtlpFormat
from receiver.console.queries.traces.traces import trace_otlp
from receiver.console.tools.common import (
    TRACES_MAX,
    ToolRoutes,
    instant_s,
    json_line,
    limit_of,
    time_range,
    tool_route,
)
from receiver.console.tools.tempo.search import search_answer
from receiver.console.tools.tempo.tags import parse_tag, tag_names, tag_value_texts, typed_value
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange

PREFIX: Final = "/tempo/api"
VERSION: Final = "2.8.0"
"""Version of Tempo whose API this is; Grafana decides by it which requests it sends."""
PROTOBUF: Final = "application/protobuf"
TRACES_DEFAULT: Final = 20
SPANS_DEFAULT: Final = 3
SPANS_MAX: Final = 100
"""Maximum number of matching spans of each trace in an answer."""
_TRACE_FIELD: Final = b"\x0a"
"""Tag of the field `trace` of `TraceByIDResponse`: number 1, with a length."""
_OLDER_SEARCH: Final = ("tags", "minDuration", "maxDuration")


class TempoRoutes(ToolRoutes):
    """Handlers of Tempo's routes."""

    def routes(self) -> Iterator[Route]:
        """Yield the routes."""
        handlers: dict[str, Handler] = {
            "/echo": _echo,
            "/status/buildinfo": _version,
            # A `Trace` of Tempo has the fields of a `TracesData`.
            "/traces/{id}": partial(self._trace, PROTOBUF, _trace_pieces),
            "/v2/traces/{id}": partial(self._trace, PROTOBUF, _trace_responses),
            "/search": self._search,
            "/search/tags": self._tag_names,
            "/v2/search/tags": self._tag_scopes,
            "/search/tag/{tag}/values": self._tag_texts,
            "/v2/search/tag/{tag}/values": self._tag_values,
        }
        for path, handler in handlers.items():
            yield tool_route(f"{PREFIX}{path}", handler, error_text, "q")

    async def _search(self, request: web.Request) -> web.StreamResponse:
        now_s, query = time.time(), request.query
        if any(name in query for name in _OLDER_SEARCH):
            raise MalformedBody(
                "a search by tags is not supported; expected q, a query in TraceQL", field="tags"
            )
        wanted = SearchQuery(
            _parse_search(query.get("q", "")),
            _range(query, now_s),
            limit_of(query, "limit", TRACES_DEFAULT, TRACES_MAX),
        )
        spans_max = limit_of(query, "spss", SPANS_DEFAULT, SPANS_MAX)
        return await self._document(request, lambda store: search_answer(store, wanted, now_s, spans_max))

    async def _tag_names(self, request: web.Request) -> web.StreamResponse:
        find = _names_query(request)
        return await self._document(
            request,
            lambda store: json_line(
                {"tagNames": list(dict.fromkeys(name for names in find(store).values() for name in names))}
            ),
        )

    async def _tag_scopes(self, request: web.Request) -> web.StreamResponse:
        find = _names_query(request)
        return await self._document(
            request,
            lambda store: json_line(
                {"scopes": [{"name": name, "tags": tags} for name, tags in find(store).items()]}
            ),
        )

    async def _tag_texts(self, request: web.Request) -> web.StreamResponse:
        _, find = _values_query(request)
        return await self._document(request, lambda store: json_line({"tagValues": list(find(store))}))

    async def _tag_values(self, request: web.Request) -> web.StreamResponse:
        typed, find = _values_query(request)
        return await self._document(
            request, lambda store: json_line({"tagValues": list(map(typed, find(store)))})
        )


def error_text(_status: int, message: str) -> tuple[bytes, str]:
    """Return an error as Tempo answers it: its text alone."""
    return message.encode(), "text/plain; charset=utf-8"


async def _echo(_request: web.Request) -> web.Response:
    return web.Response(text="echo")


async def _version(_request: web.Request) -> web.Response:
    return whole_json(
        200, {"version": VERSION, "revision": "", "branch": "", "buildDate": "", "buildUser": ""}
    )


def _names_query(request: web.Request) -> Callable[[Store], dict[str, list[str]]]:
    now_s = time.time()
    asked, scope = _asked(request.query, now_s), request.query.get("scope", "")
    return lambda store: tag_names(store, asked, now_s, scope)


def _values_query(
    request: web.Request,
) -> tuple[Callable[[str], dict[str, str]], Callable[[Store], Iterator[str]]]:
    now_s = time.time()
    tag = parse_tag(request.match_info["tag"])
    asked, query = _asked(request.query, now_s), request.query.get("q", "")
    return partial(typed_value, tag), lambda store: tag_value_texts(store, tag, asked, now_s, query)


def _parse_search(text: str) -> TraceFilter:
    """Parse a query in TraceQL, or the words of a text, which search the texts of spans."""
    return parse_trace_filter(text) if is_plain(text) else parse_traceql(text)


def _range(query: Mapping[str, str], now_s: float) -> TimeRange:
    return time_range(instant_s(query, "start", 1), instant_s(query, "end", 1), now_s)


def _asked(query: Mapping[str, str], now_s: float) -> Asked[str | None]:
    return Asked(_range(query, now_s), limit_of(query, "limit", NAMES_DEFAULT))


_trace_pieces: Final = partial(trace_otlp, form=OtlpFormat.PROTOBUF)


def _trace_responses(store: Store, trace_id: str) -> Iterator[bytes]:
    """Yield a `TraceByIDResponse` for each part of the trace: concatenated, they decode as one response."""
    for piece in _trace_pieces(store, trace_id):
        yield _TRACE_FIELD + _varint(len(piece)) + piece


def _varint(number: int) -> bytes:
    found = bytearray()
    while number > 0x7F:  # noqa: PLR2004 - seven bits a byte
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes([*found, number])
