"""Description of the API in OpenAPI 3.1, made from the table of questions and from the other routes below."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from html import escape
from typing import Any, Final, NamedTuple

import msgspec

from receiver import __version__
from receiver.api.lines import ARROW, JSON_LINES
from receiver.http.protocol import PROBLEM
from receiver.query.question import Question
from receiver.query.questions import QUESTIONS
from receiver.query.time_range import SINCE_DEFAULT

JSON: Final = "application/json"


class Route(NamedTuple):
    """A route that is not a question."""

    summary: str
    parameters: Mapping[str, str]
    """Name → what to pass."""
    content_type: str = JSON


_SINCE = "an age such as 24h, or an instant such as 2026-01-31T10:00Z"
_CURSOR = "asks for pages: empty for the first page, then `next` in the last line of the page before"
ROUTES: Final[Mapping[tuple[str, str], Route]] = {
    ("get", "/api/v1/traces/{id}"): Route(
        "The spans of a trace.",
        {
            "id": "the trace id, 32 hex digits",
            "format": "lines (a line per stored row), otlp-json or otlp-protobuf; lines by default",
        },
        JSON_LINES,
    ),
    ("get", "/api/v1/traces/{id}/compare/{other}"): Route(
        "The differences of two traces: a line per pair of spans, and per span that only one of them has.",
        {"id": "the id of a trace", "other": "the id of the other trace"},
        JSON_LINES,
    ),
    ("get", "/api/v1/export"): Route(
        "Every stored column of all spans that match, oldest first, without a limit on rows.",
        {
            "filter": "a filter, like service=web status=error",
            "since": _SINCE,
            "until": _SINCE,
            "format": "jsonl, csv, otlp (lines of OTLP JSON) or parquet; jsonl by default",
        },
        JSON_LINES,
    ),
    ("get", "/api/v1/sql"): Route(
        "The rows of a SELECT statement, if the setting api.sql allows it.",
        {"query": "one SELECT statement", "limit": "maximum number of lines, up to 100000; 1000 by default"},
        JSON_LINES,
    ),
    ("post", "/api/v1/sql"): Route(
        "The same; the body is a JSON object with `query` and `limit`.", {}, JSON_LINES
    ),
    ("get", "/api/v1/ledger"): Route(
        "Numbers of received spans by outcome.",
        {
            "since": _SINCE,
            "project": "the id of a project",
            "drain": "the name of a drain",
            "verify": "1 compares the numbers with the table",
        },
    ),
    ("get", "/api/v1/counts"): Route(
        "Numbers of spans by prefix of their trace id.",
        {
            "trace_id": "a prefix of the trace ids",
            "digits": "how many digits to group by",
            "since": _SINCE,
            "until": _SINCE,
        },
        JSON_LINES,
    ),
    ("get", "/api/v1/schema"): Route("State of the tables.", {}),
    ("get", "/api/v1/health"): Route("Checks of the store and the writer.", {}),
    ("get", "/api/v1/dead"): Route("Dead letters.", {}, JSON_LINES),
    ("get", "/api/v1/dead/{id}"): Route("A dead letter.", {"id": "the id of a dead letter"}),
    ("post", "/api/v1/dead/{id}/replay"): Route(
        "Move a dead letter back into the journal.", {"id": "the id of a dead letter"}
    ),
    ("delete", "/api/v1/dead/{id}"): Route(
        "Delete a dead letter permanently.", {"id": "the id of a dead letter"}
    ),
    ("get", "/api/v1/rollup"): Route("State of the rollups: by day, then by table.", {}, JSON_LINES),
    ("post", "/api/v1/rollup/rebuild"): Route(
        "Derive the rollups again from the spans.", {"since": "how far back, like 24h; all by default"}
    ),
    ("get", "/api/v1/openapi.json"): Route("This description.", {}),
}


def document() -> dict[str, Any]:
    """Return the description of the API."""
    schemas, components = msgspec.json.schema_components(
        [question.row for question in QUESTIONS.values()], ref_template="#/components/schemas/{name}"
    )
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), route in ROUTES.items():
        described = {name: (text, "{" + name + "}" in path) for name, text in route.parameters.items()}
        paths.setdefault(path, {})[method] = _operation(
            route.summary, _parameters(described, path), route.content_type, {}
        )
    # msgspec returns the schemas in the order of the types.
    for (name, question), schema in zip(QUESTIONS.items(), schemas, strict=True):
        path = f"/api/v1/{name}"
        content_type = JSON if question.is_single else JSON_LINES
        operation = _operation(
            question.summary, _parameters(_question_parameters(question), path), content_type, schema
        )
        if question.ask_arrow is not None:
            operation["responses"]["200"]["content"][ARROW] = {}
        paths[path] = {"get": operation}
    return {
        "openapi": "3.1.0",
        "info": {"title": "trace-drain-receiver", "version": __version__, "license": {"name": "Apache-2.0"}},
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM_SCHEMA},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
        "security": [{}, {"token": []}],
    }


def page() -> str:
    """Return the description as an HTML page without scripts and styles."""
    sections = []
    for path, operations in document()["paths"].items():
        for method, operation in operations.items():
            items = "".join(
                f"<dt><code>{escape(parameter['name'])}</code></dt><dd>{escape(parameter['description'])}</dd>"
                for parameter in operation["parameters"]
            )
            sections.append(
                f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>"
                f"<p>{escape(operation['summary'])}</p><dl>{items}</dl></section>"
            )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8"><title>API of trace-drain-receiver</title>'
        "<h1>API of trace-drain-receiver</h1>"
        '<p>For programs: <a href="/api/v1/openapi.json">OpenAPI 3.1</a>. Answers with lines '
        f"(<code>{JSON_LINES}</code>) end with a line that has their number.</p>" + "".join(sections)
    )


_PROBLEM_SCHEMA: Final = {
    "type": "object",
    "required": ["type", "title", "status", "detail"],
    "properties": {
        "type": {"type": "string"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "hint": {"type": "string", "description": "what the API expected"},
        "parameter": {"type": "string", "description": "the parameter that is wrong"},
        "limit": {"type": "string", "description": "the limit that the query exceeds, such as memory"},
        "column": {"type": "integer", "description": "where in the filter, counted from 1"},
    },
}


def _question_parameters(question: Question) -> dict[str, tuple[str, bool]]:
    own = {parameter.name: (parameter.help, parameter.is_required) for parameter in question.parameters}
    filters = {"filter": ("a filter, like service=web status=error", False)} if question.has_filter else {}
    return {
        **own,
        **filters,
        **({"cursor": (_CURSOR, False)} if question.has_cursor else {}),
        "since": (f"start of the time range: {_SINCE}; {SINCE_DEFAULT} by default", False),
        "until": (f"end of the time range: {_SINCE}; now by default", False),
        "limit": (
            f"maximum number of lines, up to {question.limit_max}; {question.limit_default} by default",
            False,
        ),
    }


def _parameters(described: Mapping[str, tuple[str, bool]], path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": name,
            "in": "path" if "{" + name + "}" in path else "query",
            "required": is_required,
            "description": text,
            "schema": {"type": "string"},
        }
        for name, (text, is_required) in described.items()
    ]


def _operation(
    summary: str, parameters: Iterable[Mapping[str, Any]], content_type: str, schema: Mapping[str, Any]
) -> dict[str, Any]:
    problem = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}
    return {
        "summary": summary,
        "parameters": list(parameters),
        "responses": {
            "200": {"description": "The answer.", "content": {content_type: {"schema": schema}}},
            "default": {"description": "The reason why there is no answer.", "content": problem},
        },
    }
