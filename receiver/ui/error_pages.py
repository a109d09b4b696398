"""Error pages: a browser that asks for a page gets each error as a page with links, not as problem details.

Errors of a page's own questions are in its frame: see `site`. Here are the others: an unknown path, a method
that a path does not have, a role that does not suffice, a request of another origin.
"""

from __future__ import annotations

from http import HTTPStatus
from typing import Final

import msgspec
from aiohttp import web

from receiver.api.access import LOGIN, is_for_reader
from receiver.api.problems import kept_headers
from receiver.api.responses import Handler
from receiver.http.protocol import PROBLEM
from receiver.ui.document import document
from receiver.ui.templating import environment, render

TITLES: Final = {
    HTTPStatus.UNAUTHORIZED: "You are not logged in",
    HTTPStatus.FORBIDDEN: "This is not allowed",
    HTTPStatus.NOT_FOUND: "This does not exist",
    HTTPStatus.CONFLICT: "This is not possible now",
}
"""Headings by status."""
TITLE = "This did not work"
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
        unknown = request.match_info.http_exception
        has_route = unknown is None or unknown.status != status
        variables = {
            "title": TITLES.get(status, TITLE) if has_route else "This page does not exist",
            # The details of an unknown path are about routes of the API.
            "problem": _problem_of(response) if has_route else None,
            "login": LOGIN if status == HTTPStatus.UNAUTHORIZED else "",
        }
        text = render(self._templates, "error", variables)
        return document(status, text, kept_headers(response.headers))


def _problem_of(response: web.Response) -> _Problem:
    return msgspec.json.decode(response.text or "", type=_Problem)
