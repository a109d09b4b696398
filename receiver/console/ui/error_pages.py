"""Error pages: a browser receives each error as a page with links, not as problem details.

Errors of a page's own queries are shown in its frame (`site`). These pages show all other errors: an
unknown path, a method that a path does not have, an insufficient role, a request of another origin.
"""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Final
from urllib.parse import quote

import msgspec
from aiohttp import web

from receiver.console.api.access import CALLER, LOGIN, is_for_reader, is_within_projects
from receiver.console.api.problems import kept_headers
from receiver.console.api.responses import Handler
from receiver.console.ui.document import document
from receiver.console.ui.page import Page
from receiver.console.ui.pages.table import PAGES
from receiver.console.ui.templating import environment, render
from receiver.http.protocol import PROBLEM

TITLES: Final = {
    HTTPStatus.UNAUTHORIZED: "You are not logged in",
    HTTPStatus.FORBIDDEN: "This is not allowed",
    HTTPStatus.NOT_FOUND: "This does not exist",
    HTTPStatus.CONFLICT: "This is not possible now",
    HTTPStatus.BAD_GATEWAY: "The installation is not complete",
}
TITLE = "This did not work"
"""Heading for statuses without an entry in `TITLES`."""


OTHER_PROJECTS: Final = "this page shows data of all projects; your user is limited to some"
DEAD_LETTER: Final = PAGES["dead-letter"].path


class _Problem(msgspec.Struct, frozen=True):
    """The problem details of an error that a page shows."""

    detail: str
    hint: str = ""

    @property
    def text(self) -> str:
        return f"{self.detail}; {self.hint}" if self.hint else self.detail


class ErrorPages:
    """Middleware that shows errors to a browser as pages."""

    def __init__(self, more: Sequence[Page] = ()) -> None:
        """`more`: pages of other areas."""
        self._templates = environment()
        self._more = more

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Replace problem details with a page if a browser shows the answer."""
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
            # The details of an unknown path name routes of the API.
            "text": _text_of(request, response) if has_route else "No page has this address",
            "links": _links(request, status, self._more),
        }
        text = render(self._templates, "error", variables)
        return document(status, text, kept_headers(response.headers))


def _text_of(request: web.Request, response: web.Response) -> str:
    # The details are written for programs, and name no page.
    if response.status == HTTPStatus.FORBIDDEN and _is_of_other_projects(request):
        return OTHER_PROJECTS
    return msgspec.json.decode(response.text or "", type=_Problem).text


def _is_of_other_projects(request: web.Request) -> bool:
    caller = request.get(CALLER)
    return caller is not None and bool(caller.projects) and not is_within_projects(request)


def _links(request: web.Request, status: HTTPStatus, more: Sequence[Page]) -> dict[str, str]:
    """Return label → URL of the pages where a user can continue. The caller may open each of them."""
    if status == HTTPStatus.UNAUTHORIZED:
        return {"Log in": LOGIN}
    links = {"Overview": "/", "Search": "/search"}
    caller = request.get(CALLER)
    if caller is not None and caller.projects:
        return links
    links["Receiver"] = "/receiver"
    for page in more:
        if request.path.startswith(f"{page.path}/"):
            return {f"Back to the page {page.title}": page.path, **links}
    resource = request.match_info.route.resource
    is_form = resource is not None and resource.canonical.startswith(f"{DEAD_LETTER}/")
    if is_form and status != HTTPStatus.NOT_FOUND:
        name = quote(request.match_info["id"], safe="")
        return {"Back to the dead letter": DEAD_LETTER.format(id=name), **links}
    return links
