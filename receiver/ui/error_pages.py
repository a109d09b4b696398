"""Error pages: a browser that asks for a page gets each error as a page with links, not as problem details.

Errors of a page's own questions are in its frame: see `site`. Here are the others: an unknown path, a method
that a path does not have, a role that does not suffice, a request of another origin.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import hdrs, web

from receiver.api.access import LOGIN, is_for_reader
from receiver.api.problems import kept_headers
from receiver.api.responses import Handler
from receiver.http.protocol import PROBLEM
from receiver.ui.site import HEADERS
from receiver.ui.templating import environment, render

_NO_PAGE: Final = "This page does not exist"
TITLES: Final = {
    HTTPStatus.UNAUTHORIZED: "You are not logged in",
    HTTPStatus.FORBIDDEN: "This is not allowed",
    HTTPStatus.NOT_FOUND: _NO_PAGE,
    HTTPStatus.METHOD_NOT_ALLOWED: _NO_PAGE,
}
"""Headings by status."""
TITLE = "The page cannot be shown"
"""Heading for every other status."""


class _Problem(msgspec.Struct, frozen=True):
    """The problem details of an error, as far as a page shows them."""

    detail: str
    hint: str = ""


class ErrorPages:
    """Middleware that answers a browser with pages."""

    def __init__(self) -> None:
        self._templates = environment()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Replace problem details by a page if a browser shows the answer."""
        response = await handler(request)
        if not (
            isinstance(response, web.Response) and response.content_type == PROBLEM and is_for_reader(request)
        ):
            return response
        status = HTTPStatus(response.status)
        title = TITLES.get(status, TITLE)
        variables = {
            "title": title,
            # The details of an unknown path are about routes of the API.
            "problem": None if title == _NO_PAGE else _problem_of(response),
            "login": LOGIN if status == HTTPStatus.UNAUTHORIZED else "",
        }
        text = render(self._templates, "error", variables)
        headers = {**HEADERS, **kept_headers(response.headers), hdrs.CONTENT_TYPE: "text/html; charset=utf-8"}
        return web.Response(status=status, body=text.encode(), headers=headers)


def _problem_of(response: web.Response) -> _Problem:
    return msgspec.json.decode(response.text or "", type=_Problem)
