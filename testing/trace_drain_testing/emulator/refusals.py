"""Errors of the emulated platform, and their bodies in the chosen shape."""

from __future__ import annotations

import json
from http import HTTPStatus
from typing import TypeVar

import msgspec
from aiohttp import web

from receiver.http.origin import Handler

Kind = TypeVar("Kind")


class Refusal(Exception):  # noqa: N818 - a verdict, not an accident
    """Refusal of a request: a status, a code and a message."""

    def __init__(
        self, status: HTTPStatus, code: str, message: str, headers: dict[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.headers = headers or {}


def bad_request(message: str) -> Refusal:
    return Refusal(HTTPStatus.BAD_REQUEST, "bad_request", message)


def not_found(kind: str) -> Refusal:
    """Return the error for an object that does not exist."""
    return Refusal(HTTPStatus.NOT_FOUND, "not_found", f"no such {kind}")


def forbidden(message: str) -> Refusal:
    """Return the error for an object or action without permission."""
    return Refusal(HTTPStatus.FORBIDDEN, "forbidden", message)


def conflict(message: str) -> Refusal:
    """Return the error for a change that the present state does not allow."""
    return Refusal(HTTPStatus.CONFLICT, "conflict", message)


def response_of(refusal: Refusal, shape: str) -> web.Response:
    """Return the response in a shape of P6."""
    code, message = refusal.code, str(refusal)
    if shape == "text":
        return web.Response(text=f"{code}: {message}\n", status=refusal.status, headers=refusal.headers)
    body = {
        "object": {"error": {"code": code, "message": message}},
        "flat": {"code": code, "message": message},
        "problem": {"type": "about:blank", "title": message, "status": refusal.status.value, "code": code},
    }[shape]
    content_type = "application/problem+json" if shape == "problem" else "application/json"
    return web.Response(
        body=json.dumps(body).encode(),
        status=refusal.status,
        content_type=content_type,
        headers=refusal.headers,
    )


def answering(handler: Handler) -> Handler:
    """Wrap a handler: a refusal that it raises becomes the response."""

    async def handle(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Refusal as refusal:
            return response_of(refusal, "object")

    return handle


def decoded(body: bytes, kind: type[Kind]) -> Kind:
    """Decode a JSON body. Raises `Refusal`."""
    try:
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as problem:
        raise bad_request(str(problem)) from None
