"""Login page: exchanges a token for a session cookie.

Protection against requests of other sites: the check of Host and Origin covers every request, browsers send
no cookie across sites (`SameSite=Strict`), and a login redirects only to paths of this site.
"""

from __future__ import annotations

import math
import re
from http import HTTPStatus

import structlog
from aiohttp import hdrs, web

from receiver.console.api.access import ACCESS, COOKIE, LOGIN
from receiver.console.api.route import Route
from receiver.console.ui.document import document, go_to
from receiver.console.ui.forms import form_of
from receiver.console.ui.templating import environment, render
from receiver.http.peer import network_of
from receiver.logs import limited

_LOCAL_URL = re.compile(r"/(?!/)[!-\[\]-~]*")
"""Printable ASCII without a backslash, which browsers read as a slash. `//HOST/` is another site."""
log = structlog.get_logger()


class Login:
    """Routes to log in and to log out."""

    def __init__(self) -> None:
        self._templates = environment()

    def routes(self) -> tuple[Route, ...]:
        """Return the routes."""
        return (
            Route("GET", LOGIN, self._show, "public"),
            Route("POST", LOGIN, self._log_in, "public"),
            Route("POST", "/logout", self._log_out, "public"),
        )

    async def _show(self, request: web.Request) -> web.Response:
        next_url, caller = local_url(request.query.get("next", "")), request.app[ACCESS].caller_of(request)
        if caller is not None and caller.proof in {"none", "session"}:
            return go_to(next_url)
        # After a link of another site, browsers send the cookie only if our page redirects here again.
        is_after_link = request.headers.get("Sec-Fetch-Site") == "cross-site"
        return self._page(HTTPStatus.OK, next_url, again=is_after_link)

    async def _log_in(self, request: web.Request) -> web.Response:
        form = await form_of(request)
        next_url, access = local_url(form.get("next", "")), request.app[ACCESS]
        # No await from here on, so that concurrent logins cannot exceed the limit.
        address = network_of(request.remote)
        if wait_s := access.login_limit.wait_s(address):
            seconds = math.ceil(wait_s)
            limited.warning(f"login: {address}", "login delayed", peer=request.remote)
            page = self._page(
                HTTPStatus.TOO_MANY_REQUESTS, next_url, f"Too many failed logins. Try again in {seconds} s."
            )
            page.headers[hdrs.RETRY_AFTER] = str(seconds)
            return page
        user = access.user_with(form.get("token", "").strip())
        if user is None:
            access.login_limit.record_failure(address)
            limited.warning(f"login: {address}", "login refused", peer=request.remote)
            return self._page(HTTPStatus.FORBIDDEN, next_url, "This token is not valid.")
        log.info("user logged in", name=user.name, role=user.role, peer=request.remote)
        answer, (value, lifetime_s) = go_to(next_url), access.cookie_of(user)
        answer.set_cookie(
            COOKIE,
            value,
            max_age=lifetime_s,
            path="/",
            secure=_is_over_tls(request),
            httponly=True,
            samesite="Strict",
        )
        return answer

    async def _log_out(self, request: web.Request) -> web.Response:
        caller = request.app[ACCESS].caller_of(request)
        if caller is not None and caller.proof == "session":
            log.info("user logged out", name=caller.name, role=caller.role, peer=request.remote)
        answer = go_to(LOGIN)
        answer.del_cookie(COOKIE, path="/", secure=_is_over_tls(request), httponly=True, samesite="Strict")
        return answer

    def _page(
        self, status: HTTPStatus, next_url: str, trouble: str = "", *, again: bool = False
    ) -> web.Response:
        variables = {"next_url": next_url, "trouble": trouble, "again": again}
        return document(status, render(self._templates, "login", variables))


def local_url(text: str) -> str:
    """Return the URL if it is a path of this site, otherwise the first page."""
    return text if _LOCAL_URL.fullmatch(text) else "/"


def _is_over_tls(request: web.Request) -> bool:
    """Return whether the browser sent the form over TLS, which a proxy in front of the API ends."""
    return request.headers.get(hdrs.ORIGIN, "").lower().startswith("https://")
