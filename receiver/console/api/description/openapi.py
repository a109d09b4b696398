"""Description of the API in OpenAPI 3.1, made from the entries of the routes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec
from aiohttp import hdrs

from receiver import __version__
from receiver.console.api.access import COOKIE
from receiver.console.api.description.operation import Operation
from receiver.console.api.lines import EndLine
from receiver.console.api.route import Route
from receiver.console.queries.question import Parameter
from receiver.http.media_types import JSON
from receiver.http.protocol import PROBLEM

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


def document(routes: Iterable[Route]) -> dict[str, Any]:
    """Return the description of all routes with an `operation`."""
    described = [(route, route.operation) for route in routes if route.operation is not None]
    types = [operation.row for _, operation in described if operation.row is not None]
    schemas, components = msgspec.json.schema_components(
        [*types, EndLine], ref_template="#/components/schemas/{name}"
    )
    # msgspec returns the schemas in the order of the types.
    rows, end = iter(schemas), schemas[-1]
    paths: dict[str, dict[str, Any]] = {}
    for route, operation in described:
        contents: dict[str, Any] = {content_type: {} for content_type in operation.content_types}
        if operation.row is not None:
            first, row = operation.content_types[0], next(rows)
            contents[first] = {"schema": row if first == JSON else {"anyOf": [row, end]}}
        paths.setdefault(route.path, {})[route.method.lower()] = _described(route, operation, contents)
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


def _described(route: Route, operation: Operation, contents: Mapping[str, Any]) -> dict[str, Any]:
    is_post = route.method == hdrs.METH_POST
    # The API also refuses an unknown parameter, so that every route has 400.
    statuses = {*operation.errors, HTTPStatus.BAD_REQUEST, HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN}
    if is_post:
        statuses.add(HTTPStatus.UNSUPPORTED_MEDIA_TYPE)
    refused = {
        str(status.value): {"$ref": f"#/components/responses/{_name_of(status)}"}
        for status in sorted(statuses)
    }
    return {
        "operationId": operation.id,
        "summary": operation.summary,
        "parameters": _parameters(operation.parameters, route.path),
        "responses": {
            "200": {"description": "The answer.", "content": contents},
            **refused,
            "default": {"description": "Another error.", "content": _PROBLEM_CONTENT},
        },
        **({"requestBody": _request_body(operation.body)} if is_post else {}),
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
