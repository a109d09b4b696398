"""Common parts of the routes for other tools: errors in the form of the tool, limits, numbers in a URL.

Unlike the routes of the API, these ignore unknown parameters: each version of a tool sends more of them, and
its user cannot change that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from typing import Final

import orjson
from aiohttp import web

from receiver.console.api.answers import SourceRoutes, send_built, send_trace
from receiver.console.api.lines import StreamedAnswer
from receiver.console.api.problems import kept_headers, problem_of
from receiver.console.api.responses import Handler
from receiver.console.api.route import Route
from receiver.console.queries.limits import NAMES_MAX, decimal_number, parse_limit
from receiver.console.queries.search import BATCH_TRACES
from receiver.engine.store import Store
from receiver.errors import MalformedBody, ReceiverError
from receiver.time_range import TimeRange

TRACES_MAX: Final = BATCH_TRACES
"""Maximum number of traces that a search returns, which is answered as a whole."""
RANGE_S_DEFAULT: Final = 3_600.0
_HEX: Final = re.compile("[0-9a-f]{1,32}")
_DIGITS_MAX: Final = 20
_UNITS: Final = {1: "seconds", 1_000: "milliseconds", 1_000_000: "microseconds"}

Form = Callable[[int, str], tuple[bytes, str]]
"""Returns the body and the content type of an error, from its status and its text."""


class ToolRoutes(SourceRoutes):
    """Base of the routes of a tool that reads spans."""

    async def _document(
        self, request: web.Request, build: Callable[[Store], bytes], *, is_short: bool = False
    ) -> web.StreamResponse:
        """Answer with a document. `is_short`: its queries read little, and do not wait for longer ones."""
        source = self._source_for(request)
        return await send_built(source, source.queues.short if is_short else source.queues.heavy, build)

    async def _trace(
        self, content_type: str, pieces: Callable[[Store, str], Iterator[bytes]], request: web.Request
    ) -> web.StreamResponse:
        """Answer with a trace. `pieces`: yields none for an unknown trace."""
        trace_id = trace_id_of(request.match_info["id"])
        answer = StreamedAnswer(content_type, lambda store: pieces(store, trace_id))
        return await send_trace(self._source_for(request), answer)


def json_line(document: object) -> bytes:
    """Return a document as JSON, with a newline at its end."""
    return orjson.dumps(document, option=orjson.OPT_APPEND_NEWLINE)


def tool_route(path: str, handler: Handler, form: Form, filter_parameter: str) -> Route:
    """Return a route with its errors in the form of a tool. `filter_parameter`: see `problem_of`."""

    @wraps(handler)
    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except ReceiverError as error:
            problem = problem_of(error, filter_parameter)
            body, content_type = form(problem.status, problem.message)
            headers = {**kept_headers(problem.headers), "Content-Type": content_type}
            return web.Response(status=problem.status, body=body, headers=headers)

    # The tools only read.
    return Route("GET", path, handle, "viewer", within_projects=True)


def time_range(
    begin_s: float | None, end_s: float | None, now_s: float, default_s: float = RANGE_S_DEFAULT
) -> TimeRange:
    """Return the range between two instants; an absent end is now, an absent start `default_s` earlier.

    Raises `MalformedBody` if it ends before it begins.
    """
    to_s = now_s if end_s is None else end_s
    found = TimeRange(from_at_s=max(0.0, to_s - default_s) if begin_s is None else begin_s, to_at_s=to_s)
    if found.is_empty(now_s):
        raise MalformedBody("the time range ends before it begins; expected an earlier start", field="start")
    return found


def instant_s(query: Mapping[str, str], name: str, per_second: int) -> float | None:
    """Return an instant that is a whole number of units since 1970; `None` if it is absent or zero."""
    units = decimal_number(query.get(name) or "0", _DIGITS_MAX)
    if units is None:
        raise MalformedBody(
            f"{name}: expected a whole number since 1970, as {_UNITS[per_second]}", field=name
        )
    # Tools send zero for a time that is not set.
    return units / per_second or None


def limit_of(query: Mapping[str, str], name: str, default: int, limit_max: int = NAMES_MAX) -> int:
    """Return a limit; an absent or empty parameter has the default."""
    return parse_limit(query.get(name) or str(default), limit_max, name)


def trace_id_of(text: str) -> str:
    """Return a stored trace id. Tools omit leading zeros."""
    plain = text.strip().lower()
    if not _HEX.fullmatch(plain):
        raise MalformedBody("the trace id is not valid; expected 1 to 32 hex digits", field="trace_id")
    return plain.zfill(32)
