"""Table of the API's routes that are not questions, for the description of the API."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final, NamedTuple

from receiver.console.api.traces import LINES
from receiver.console.queries.aggregates.counts import DIGITS_MAX
from receiver.console.queries.deployment_events import EVENTS_DEFAULT, EVENTS_MAX
from receiver.console.queries.deployment_events import PARAMETERS as EVENT_PARAMETERS
from receiver.console.queries.export import CONTENT_TYPES as EXPORT_TYPES
from receiver.console.queries.export import FORMATS, ExportFormat
from receiver.console.queries.parameter_types import (
    TIME,
    TRACE_ID,
    Schema,
    choice,
    whole_number,
    with_default,
)
from receiver.console.queries.question import Parameter
from receiver.console.queries.raw_sql.statement import FORMATS as SQL_FORMATS
from receiver.console.queries.raw_sql.statement import LINES_DEFAULT, LINES_MAX, QUERY_CHARS_MAX
from receiver.console.queries.traces.otlp import CONTENT_TYPES as OTLP_TYPES
from receiver.console.queries.traces.otlp import OtlpFormat
from receiver.http.media_types import JSON, JSON_LINES
from receiver.reports import LEDGER_SINCE
from receiver.time_range import SINCE_DEFAULT

BY_QUERY: Final = (
    HTTPStatus.UNPROCESSABLE_ENTITY,
    HTTPStatus.TOO_MANY_REQUESTS,
    HTTPStatus.SERVICE_UNAVAILABLE,
)
"""Errors of a route that runs a query: a limit is exceeded, the queue is full, the store is unavailable."""
BY_STORE: Final = (HTTPStatus.SERVICE_UNAVAILABLE,)
_TIME_TEXT: Final = "an age such as 24h, or an instant such as 2026-01-31T10:00Z"
FILTER: Final = Parameter("filter", "a filter, like service=web status=error")
UNTIL: Final = Parameter("until", f"end of the time range: {_TIME_TEXT}; now by default", schema=TIME)


def since(default: str = SINCE_DEFAULT) -> Parameter:
    """Return the parameter for the start of the time range."""
    return Parameter("since", f"start of the time range: {_TIME_TEXT}", schema=with_default(TIME, default))


class Route(NamedTuple):
    """A route that is not a question."""

    operation_id: str
    summary: str
    parameters: tuple[Parameter, ...] = ()
    content_types: tuple[str, ...] = (JSON,)
    errors: tuple[HTTPStatus, ...] = ()
    """Errors besides those that the method and the parameters imply."""
    body: tuple[Parameter, ...] = ()
    """Members of the JSON object that a POST sends. None: its body is not read."""


_TRACE_ID: Final = Parameter("id", "the id of a trace: 32 hex digits", is_required=True, schema=TRACE_ID)
_DEAD_ID: Final = Parameter("id", "the id of a dead letter", is_required=True)
_PREFIX: Final[Schema] = {"type": "string", "pattern": "^[0-9a-f]{2,32}$"}
_SQL: Final = (
    Parameter(
        "query",
        "a SELECT statement in ClickHouse's SQL",
        is_required=True,
        schema={"type": "string", "minLength": 1, "maxLength": QUERY_CHARS_MAX},
    ),
    Parameter("limit", "maximum number of lines", schema=whole_number(1, LINES_MAX, LINES_DEFAULT)),
    Parameter("format", "format of the lines", schema=choice(SQL_FORMATS, ExportFormat.JSONL)),
)
_SQL_TYPES: Final = tuple(EXPORT_TYPES[form] for form in SQL_FORMATS)
ROUTES: Final[Mapping[tuple[str, str], Route]] = {
    ("get", "/api/v1/traces/{id}"): Route(
        "trace",
        "The spans of a trace.",
        (
            _TRACE_ID,
            Parameter(
                "format",
                "lines: a line for each stored row; otlp-json, otlp-protobuf: a TracesData",
                schema=choice((LINES, *OtlpFormat), LINES),
            ),
        ),
        (JSON_LINES, *OTLP_TYPES.values()),
        (*BY_QUERY, HTTPStatus.NOT_FOUND),
    ),
    ("get", "/api/v1/traces/{id}/compare/{other}"): Route(
        "compareTraces",
        "The differences of two traces: a line per pair of spans, and per span that only one of them has.",
        (
            _TRACE_ID,
            Parameter("other", "the id of the other trace", is_required=True, schema=TRACE_ID),
        ),
        (JSON_LINES,),
        (*BY_QUERY, HTTPStatus.NOT_FOUND),
    ),
    ("get", "/api/v1/deployments/{id}/events"): Route(
        "eventsOfDeployment",
        "The stored events of a deployment: build log, changes of state, requests.",
        (
            Parameter("id", "the id of a deployment", is_required=True),
            *EVENT_PARAMETERS[1:],
            since(),
            UNTIL,
            Parameter("limit", "maximum number of lines", schema=whole_number(1, EVENTS_MAX, EVENTS_DEFAULT)),
        ),
        (JSON_LINES,),
        BY_QUERY,
    ),
    ("get", "/api/v1/traces/{id}/explain"): Route(
        "previewExplanation",
        "What an explanation of the trace would send to a language model, byte for byte, and its cost.",
        (_TRACE_ID,),
        errors=(*BY_QUERY, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    ),
    ("post", "/api/v1/traces/{id}/explain"): Route(
        "explainTrace",
        "Send the trace to the language model of the settings: a line per request, call, sentence and end.",
        (_TRACE_ID,),
        (JSON_LINES,),
        (*BY_QUERY, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
    ),
    ("get", "/api/v1/export"): Route(
        "export",
        "Every stored column of all spans that match, oldest first, without a limit on rows.",
        (
            FILTER,
            since(),
            UNTIL,
            Parameter(
                "format",
                "jsonl: a JSON object for each span; csv; otlp: lines of OTLP JSON; parquet",
                schema=choice(FORMATS, ExportFormat.JSONL),
            ),
        ),
        tuple(dict.fromkeys(EXPORT_TYPES.values())),
        BY_QUERY,
    ),
    ("get", "/api/v1/sql"): Route(
        "sql",
        "The rows of a SELECT statement, if the setting api.sql allows it.",
        _SQL,
        _SQL_TYPES,
        BY_QUERY,
    ),
    ("post", "/api/v1/sql"): Route(
        "postSql",
        "The same, with the statement in the body, which may be longer than a URL.",
        content_types=_SQL_TYPES,
        errors=(*BY_QUERY, HTTPStatus.REQUEST_ENTITY_TOO_LARGE),
        body=_SQL,
    ),
    ("get", "/api/v1/ledger"): Route(
        "ledger",
        "Numbers of received spans by outcome.",
        (
            since(LEDGER_SINCE),
            Parameter("project", "the id of a project"),
            Parameter("drain", "the name of a drain"),
            Parameter(
                "verify",
                "whether to compare the numbers with the table",
                schema=with_default({"type": "boolean"}, default=False),
            ),
        ),
        errors=BY_QUERY,
    ),
    ("get", "/api/v1/counts"): Route(
        "counts",
        "Numbers of spans by prefix of their trace id.",
        (
            Parameter("trace_id", "a prefix of the trace ids", is_required=True, schema=_PREFIX),
            Parameter(
                "digits", "how many digits to group by", schema=whole_number(1, DIGITS_MAX, DIGITS_MAX)
            ),
            since(),
            UNTIL,
        ),
        (JSON_LINES,),
        BY_QUERY,
    ),
    ("get", "/api/v1/schema"): Route("schema", "State of the tables.", errors=BY_STORE),
    ("get", "/api/v1/health"): Route("health", "Checks of the store and the writer."),
    ("get", "/api/v1/platform/projects"): Route(
        "removedProjects", "Projects that were removed on the platform.", (), (JSON_LINES,)
    ),
    ("post", "/api/v1/platform/projects/{id}/keep"): Route(
        "keepProject",
        "Keep the spans of a removed project: they do not become due for deletion.",
        (Parameter("id", "the id of a project", is_required=True),),
        errors=(HTTPStatus.NOT_FOUND, *BY_STORE),
    ),
    ("get", "/api/v1/dead"): Route("deadLetters", "Dead letters.", (), (JSON_LINES,), BY_STORE),
    ("get", "/api/v1/dead/{id}"): Route(
        "deadLetter", "A dead letter.", (_DEAD_ID,), errors=(HTTPStatus.NOT_FOUND, *BY_STORE)
    ),
    ("post", "/api/v1/dead/{id}/replay"): Route(
        "replayDeadLetter",
        "Move a dead letter back into the journal.",
        (_DEAD_ID,),
        errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *BY_STORE),
    ),
    ("delete", "/api/v1/dead/{id}"): Route(
        "deleteDeadLetter",
        "Delete a dead letter permanently.",
        (_DEAD_ID,),
        errors=(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, *BY_STORE),
    ),
    ("get", "/api/v1/rollup"): Route(
        "rollup", "State of the rollups: by day, then by table.", (), (JSON_LINES,), BY_STORE
    ),
    ("post", "/api/v1/rollup/rebuild"): Route(
        "rebuildRollups",
        "Derive the rollups again from the spans.",
        (Parameter("since", "how far back, like 24h; all by default", schema=TIME),),
        errors=BY_STORE,
    ),
    ("get", "/api/v1/platform/installations"): Route(
        "installations", "Installations of the platform's integration.", (), (JSON_LINES,)
    ),
    ("get", "/api/v1/openapi.json"): Route("description", "This description."),
}
