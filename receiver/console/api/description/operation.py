"""Operation: the description of a route in OpenAPI, and the parameters that several routes have."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from typing import Any, Final, NamedTuple

from receiver.console.queries.page_cursor import CURSOR_CHARS_MAX
from receiver.console.queries.parameter_types import BEGIN, TIME, TRACE_ID, whole_number, with_default
from receiver.console.queries.question import Parameter, Question
from receiver.http.media_types import JSON
from receiver.time_range import SINCE_DEFAULT

BY_QUERY: Final = (
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Errors of queries: a limit is exceeded, the queue is full, or the store is unavailable."""
BY_STORE: Final = (HTTPStatus.SERVICE_UNAVAILABLE,)
_TIME_TEXT: Final = "an age such as 24h, or an instant such as 2026-01-31T10:00Z"
FILTER: Final = Parameter("filter", "a filter, like service=web status=error")
UNTIL: Final = Parameter("until", f"end of the time range: {_TIME_TEXT}; now by default", schema=TIME)
TRACE: Final = Parameter("id", "the id of a trace: 32 hex digits", is_required=True, schema=TRACE_ID)
_CURSOR: Final = Parameter(
    "cursor",
    "asks for pages: empty for the first page, then `next` in the last line of the page before",
    schema={"type": "string", "maxLength": CURSOR_CHARS_MAX},
)


class Operation(NamedTuple):
    """The description of a route."""

    id: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    content_types: tuple[str, ...] = (JSON,)
    errors: tuple[HTTPStatus, ...] = ()
    """Errors in addition to those of the method and the parameters."""
    body: tuple[Parameter, ...] = ()
    """Members of the JSON object in the body of a POST. If empty, the body is not read."""
    row: type | None = None
    """A `TypedDict`: a line of the first content type, or the document if that is JSON."""


def since(default: str = SINCE_DEFAULT) -> Parameter:
    """Return the parameter for the start of the time range."""
    return Parameter("since", f"start of the time range: {_TIME_TEXT}", schema=with_default(BEGIN, default))


def question_parameters(question: Question[Any]) -> Iterator[Parameter]:
    """Yield all parameters of a query."""
    yield from question.parameters
    if question.has_filter:
        yield FILTER
    if question.has_cursor:
        yield _CURSOR
    yield since()
    yield UNTIL
    yield Parameter(
        "limit", "maximum number of lines", schema=whole_number(1, question.limit_max, question.limit_default)
    )
