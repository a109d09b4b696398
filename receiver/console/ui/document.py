"""An HTML document as a response, with the headers of all pages."""

from __future__ import annotations

from collections.abc import Mapping
from http import HTTPStatus
from typing import Final

from aiohttp import hdrs, web

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'; "
        "require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers send forms with `Origin: null`
}
"""Headers that replace or extend those of every response of the API."""


def document(status: int, text: str, more: Mapping[str, str] | None = None) -> web.Response:
    """Return a document. `more`: additional headers."""
    headers = {**HEADERS, **(more or {}), hdrs.CONTENT_TYPE: "text/html; charset=utf-8"}
    return web.Response(status=status, body=text.encode(), headers=headers)


def go_to(url: str) -> web.Response:
    """Return a redirect after a form, so that the browser does not send the form again."""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={**HEADERS, hdrs.LOCATION: url})
