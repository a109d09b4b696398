"""Description of the API in OpenAPI 3.1, made from the tables of questions and routes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from receiver import __version__
from receiver.console.api.access import COOKIE
from receiver.console.api.description.route_table import BY_QUERY, FILTER, ROUTES, UNTIL, Route, since
from receiver.console.api.lines import ARROW, JSON_LINES, EndLine
from receiver.console.api.responses import JSON
from receiver.console.queries.page_cursor import CURSOR_CHARS_MAX
from receiver.console.queries.parameter_types import whole_number
from receiver.console.queries.question import Parameter, Question
from receiver.console.queries.questions import QUESTIONS
from receiver.http.protocol import PROBLEM

_CURSOR: Final = Parameter(
    "cursor",
    "asks for pages: empty for the first page, then `next` in the last line of the page before",
    schema={"type": "string", "maxLength": CURSOR_CHARS_MAX},
)
_ABOUT: Final = (
    "Queries over the stored spans. An answer with lines ends with a line that has their number; without it "
    "the answer is incomplete. Every route for GET has HEAD, which checks the parameters and runs no query. "
    "Answers are compressed by zstd or gzip as Accept-Encoding asks. An answer that is sent as a whole "
    "has an ETag for If-None-Match."
)
_REASONS: Final[Mapping[HTTPStatus, str]] = {
    HTTPStatus.BAD_REQUEST: "A parameter is wrong; `parameter` names it.",
    HTTPStatus.UNAUTHORIZED: "The token is missing or wrong, or the session has ended.",
    HTTPStatus.FORBIDDEN: (
        "The role of the user does not allow it, a page of another site sent the request, Host names "
        "another machine, or SQL is off."
    ),
    HTTPStatus.NOT_FOUND: "The trace, the deployment or the dead letter does not exist.",
    HTTPStatus.NOT_ACCEPTABLE: "The question has no answer of the content type in Accept.",
    HTTPStatus.CONFLICT: "The action is impossible now, or explanations are off.",
    HTTPStatus.REQUEST_ENTITY_TOO_LARGE: "The body is too long.",
    HTTPStatus.UNSUPPORTED_MEDIA_TYPE: "The body is not declared as JSON.",
    HTTPStatus.UNPROCESSABLE_ENTITY: "The query exceeds a limit; `limit` names it.",
    HTTPStatus.TOO_MANY_REQUESTS: "This client has too many waiting queries.",
    HTTPStatus.SERVICE_UNAVAILABLE: "The store is unavailable, or the queue of queries is full.",
}
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


def document() -> dict[str, Any]:
    """Return the description of the API."""
    found, components = msgspec.json.schema_components(
        [*(question.row for question in QUESTIONS.values()), EndLine],
        ref_template="#/components/schemas/{name}",
    )
    *schemas, end = found
    paths: dict[str, dict[str, Any]] = {}
    for (method, path), route in ROUTES.items():
        paths.setdefault(path, {})[method] = _of_route(method, path, route)
    # msgspec returns the schemas in the order of the types.
    for (name, question), schema in zip(QUESTIONS.items(), schemas, strict=True):
        line = schema if question.is_single else {"anyOf": [schema, end]}
        paths[f"/api/v1/{name}"] = {"get": _of_question(name, question, line)}
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "trace-drain-receiver",
            "version": __version__,
            "description": _ABOUT,
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": {**components, "Problem": _PROBLEM_SCHEMA},
            "responses": {_name_of(status): _problem_response(status) for status in _REASONS},
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer", "description": "api_token, or a user's token."},
                "session": {
                    "type": "apiKey",
                    "in": "cookie",
                    "name": COOKIE,
                    "description": "Set by /login.",
                },
            },
        },
        "security": [{}, {"token": []}, {"session": []}],
    }


def _of_route(method: str, path: str, route: Route) -> dict[str, Any]:
    errors = {*route.errors}
    if method == "post":
        errors.add(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    contents: dict[str, Any] = {content_type: {} for content_type in route.content_types}
    operation = _operation(
        route.operation_id, route.summary, _parameters(route.parameters, path), contents, errors
    )
    if method == "post":
        operation["requestBody"] = _request_body(route.body)
    return operation


def _request_body(members: Sequence[Parameter]) -> dict[str, Any]:
    properties = {each.name: {"description": each.help, **each.schema} for each in members}
    if not properties:
        return {
            "description": "Any JSON; it is not read.",
            "required": False,
            "content": {JSON: {"schema": {}}},
        }
    schema = {
        "type": "object",
        "required": [each.name for each in members if each.is_required],
        "properties": properties,
        "additionalProperties": False,
    }
    return {"required": True, "content": {JSON: {"schema": schema}}}


def _of_question(name: str, question: Question[Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    contents: dict[str, Any] = {JSON if question.is_single else JSON_LINES: {"schema": schema}}
    if question.ask_arrow is not None:
        contents[ARROW] = {}
    first, *rest = name.split("-")
    operation_id = first + "".join(word.capitalize() for word in rest)
    parameters = _parameters(question_parameters(question), f"/api/v1/{name}")
    errors = {*BY_QUERY, HTTPStatus.NOT_ACCEPTABLE, *([HTTPStatus.NOT_FOUND] if name == "compare" else [])}
    return _operation(operation_id, question.summary, parameters, contents, errors)


def question_parameters(question: Question[Any]) -> Iterator[Parameter]:
    """Yield all parameters of a question."""
    yield from question.parameters
    if question.has_filter:
        yield FILTER
    if question.has_cursor:
        yield _CURSOR
    yield since()
    yield UNTIL
    yield Parameter(
        "limit",
        "maximum number of lines",
        schema=whole_number(1, question.limit_max, question.limit_default),
    )


def _parameters(described: Iterable[Parameter], path: str) -> list[dict[str, Any]]:
    return [
        {
            "name": parameter.name,
            "in": "path" if "{" + parameter.name + "}" in path else "query",
            "required": parameter.is_required,
            "description": parameter.help,
            "schema": dict(parameter.schema),
        }
        for parameter in described
    ]


def _operation(
    operation_id: str,
    summary: str,
    parameters: list[dict[str, Any]],
    contents: Mapping[str, Any],
    errors: Iterable[HTTPStatus],
) -> dict[str, Any]:
    # The API also refuses an unknown parameter, so that every route has 400.
    statuses = sorted({*errors, HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN})
    refused = {
        str(status.value): {"$ref": f"#/components/responses/{_name_of(status)}"} for status in statuses
    }
    return {
        "operationId": operation_id,
        "summary": summary,
        "parameters": parameters,
        "responses": {
            "200": {"description": "The answer.", "content": contents},
            **refused,
            "default": {"description": "Another error.", "content": _PROBLEM_CONTENT},
        },
    }


_PROBLEM_CONTENT: Final = {PROBLEM: {"schema": {"$ref": "#/components/schemas/Problem"}}}


def _problem_response(status: HTTPStatus) -> dict[str, Any]:
    response: dict[str, Any] = {"description": _REASONS[status], "content": _PROBLEM_CONTENT}
    if status in {HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE}:
        seconds = {"description": "seconds", "schema": {"type": "integer"}}
        response["headers"] = {"Retry-After": seconds}
    return response


def _name_of(status: HTTPStatus) -> str:
    return status.phrase.title().replace(" ", "")
