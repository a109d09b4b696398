"""Errors of the API: maps exceptions to problem details.

Never: copies the text of a filter or a value to an answer.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import NamedTuple

from aiohttp import web

from receiver import errors
from receiver.console.api.spool import ClientTooSlow
from receiver.console.queries.filters.filter_values import meant
from receiver.console.queries.limits import limit_exceeded
from receiver.engine.error_codes import NO_TABLE_CODES
from receiver.http.protocol import PROBLEM, problem_body
from receiver.logs import limited

NO_TABLES = "the store has no tables; the receiver creates them when it starts, so retry in a few seconds"
PREFIX = "/api/v1/"
COMPARED_CHARACTERS = 100
"""Maximum length of an unknown path that is compared with the routes: the time grows with the length."""

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Unauthorized(errors.ReceiverError):
    """The request has no token or a wrong token."""


class Forbidden(errors.ReceiverError):
    """The role of the caller does not allow the request."""


STATUS_OF: Mapping[type[errors.ReceiverError], int] = {
    **{kind: answer.status for kind, answer in errors.ANSWER_OF.items()},
    errors.InvalidFilter: HTTPStatus.BAD_REQUEST,
    errors.InvalidStatement: HTTPStatus.BAD_REQUEST,
    errors.LimitExceeded: HTTPStatus.UNPROCESSABLE_ENTITY,
    Unauthorized: HTTPStatus.UNAUTHORIZED,
    Forbidden: HTTPStatus.FORBIDDEN,
    errors.NoSuchTrace: HTTPStatus.NOT_FOUND,
    errors.NoSuchView: HTTPStatus.NOT_FOUND,
    errors.NoSuchDeployment: HTTPStatus.NOT_FOUND,
    errors.NoSuchProject: HTTPStatus.NOT_FOUND,
    errors.NoSuchDeadLetter: HTTPStatus.NOT_FOUND,
    errors.DeadLetterConflict: HTTPStatus.CONFLICT,
    errors.InstallationRefused: HTTPStatus.BAD_REQUEST,
    errors.InstallationFailed: HTTPStatus.BAD_GATEWAY,
    errors.NotConfigured: HTTPStatus.CONFLICT,
    errors.CallerBusy: HTTPStatus.TOO_MANY_REQUESTS,
    errors.QueueFull: HTTPStatus.SERVICE_UNAVAILABLE,
    ClientTooSlow: HTTPStatus.SERVICE_UNAVAILABLE,
}


class ApiProblem(NamedTuple):
    """Content of the answer to an error."""

    status: int
    message: str
    headers: Mapping[str, str] = {}
    place: Mapping[str, str | int] = {}
    """The invalid part of the request, as members of the problem details."""


@web.middleware
async def map_errors(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Map every exception to a status."""
    try:
        return await handler(request)
    except web.HTTPException as refusal:
        return _response(ApiProblem(refusal.status, _routing_problem(request, refusal), refusal.headers))
    except errors.ReceiverError as error:
        # Only a search has the parameter `q`, which excludes `filter`.
        return _response(problem_of(error, "q" if "q" in request.query else "filter"))


def problem_of(error: errors.ReceiverError, filter_parameter: str) -> ApiProblem:
    """Return the answer to an error. `filter_parameter`: the parameter that the filter was sent in."""
    if isinstance(error, errors.StoreTrouble):
        return _store_problem(error)
    if isinstance(error, errors.InvalidFilter) and error.field == "filter":
        error = error.named(filter_parameter)
    status = STATUS_OF.get(type(error), HTTPStatus.INTERNAL_SERVER_ERROR)
    return ApiProblem(status, str(error), _headers_of(status), _place_of(error))


def _store_problem(trouble: errors.StoreTrouble) -> ApiProblem:
    limited.warning(f"api: {trouble.label}", "query failed", error=trouble.label)
    if exceeded := limit_exceeded(trouble):
        return ApiProblem(STATUS_OF[errors.LimitExceeded], str(exceeded), {}, _place_of(exceeded))
    status = STATUS_OF[errors.StoreTrouble]
    if trouble.code in NO_TABLE_CODES:
        return ApiProblem(status, NO_TABLES, _headers_of(status))
    return ApiProblem(status, f"the store: {trouble.label}", _headers_of(status))


def _routing_problem(request: web.Request, refusal: web.HTTPException) -> str:
    """Return the text for a path or a method without a route, or the standard phrase of another error."""
    if isinstance(refusal, web.HTTPMethodNotAllowed):
        return f"the route does not have this method; expected {' or '.join(sorted(refusal.allowed_methods))}"
    if isinstance(refusal, web.HTTPNotFound):
        # Names of routes only: the path of the request is never in the answer.
        names = {resource.canonical.removeprefix(PREFIX) for resource in request.app.router.resources()}
        close = meant(request.path.removeprefix(PREFIX)[:COMPARED_CHARACTERS], sorted(names))
        return f"the API has no such route; /docs lists all routes{close and f'; {close}'}"
    if isinstance(refusal, web.HTTPNotAcceptable):
        return "this question has no Arrow stream; expected another content type in Accept"
    return refusal.reason


def _response(problem: ApiProblem) -> web.Response:
    status, message, headers, place = problem
    response = web.Response(
        status=status, body=problem_body(status, message, **place), headers={"Content-Type": PROBLEM}
    )
    response.headers.update(kept_headers(headers))
    return response


def kept_headers(headers: Mapping[str, str]) -> dict[str, str]:
    """Return the headers of an error that every answer to it has, in any format."""
    return {name: headers[name] for name in ("Allow", "Retry-After", "WWW-Authenticate") if name in headers}


def _headers_of(status: int) -> dict[str, str]:
    if status == HTTPStatus.UNAUTHORIZED:
        return {"WWW-Authenticate": "Bearer"}
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        return {"Retry-After": str(errors.RETRY_AFTER_S)}
    return {}


def _place_of(error: errors.ReceiverError) -> dict[str, str | int]:
    if isinstance(error, errors.InvalidFilter):
        return {"parameter": error.field, "column": error.column}
    if isinstance(error, errors.LimitExceeded):
        return {"limit": error.field}
    if isinstance(error, errors.InvalidStatement):
        return {"parameter": "query"}
    return {"parameter": error.field} if isinstance(error, errors.MalformedBody) and error.field else {}
