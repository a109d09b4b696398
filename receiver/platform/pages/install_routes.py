"""Routes that install the platform's integration: to the platform, and back with a code.

The platform redirects back by GET, which changes data here. The browser does not send the session cookie with
a link of another site, so the login repeats the request with it. The signed state proves that the user began
the installation; nothing else of the URL is trusted.

Never: sends the token, or a part of the URL other than a checked link, to the browser.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import parse_qsl, urlencode, urlsplit, urlunsplit

import structlog
from aiohttp import web

from receiver.console.api.access import ACCESS, CALLER
from receiver.console.api.route import Route
from receiver.console.ui.document import go_to
from receiver.console.ui.facts import ReceiverFacts
from receiver.errors import InstallationRefused
from receiver.platform.installations.installing import Installing, Redirect, unusable_settings
from receiver.platform.installations.platform_records import PlatformRecords
from receiver.settings import Platform

PAGE: Final = "/platform"
PARAMETER_CHARS_MAX = 2_048
"""Maximum length of a parameter of the redirect."""
_NEXT = re.compile(r"https://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:[/?#][!#-;=?-~]*)?")
"""An address that can be shown as a link: without a user name, which could look like the host."""
log = structlog.get_logger()


class InstallRoutes:
    def __init__(self, facts: ReceiverFacts, records: PlatformRecords) -> None:
        self._facts = facts
        self._installing = Installing(records.installations, records.directory)

    def routes(self) -> tuple[Route, ...]:
        """Return the routes. HEAD, which may come before GET, is not answered: it would use the code."""
        return (
            Route("GET", f"{PAGE}/install", self._begin, "admin", has_head=False),
            Route("GET", f"{PAGE}/installed", self._complete, "admin", changes=True, has_head=False),
        )

    async def _begin(self, request: web.Request) -> web.Response:
        """Redirect to the platform with a new state."""
        platform = self._platform()
        state = request.app[ACCESS].new_state(request[CALLER], platform.redirect_url)
        return go_to(install_link(platform, state))

    async def _complete(self, request: web.Request) -> web.Response:
        """Exchange the code, and redirect to the page, whose URL has neither the code nor the state."""
        platform, query = self._platform(), request.query
        _require_no_error(query.get("error", ""))
        state = query.get("state", "")
        request.app[ACCESS].check_state(request[CALLER], state, platform.redirect_url)
        redirect = Redirect(code_of(query), state, query.get("configurationId", ""))
        installation = await self._installing.complete(platform, redirect)
        log.info("integration installed", name=request[CALLER].name, part=installation.id)
        text = f"The integration is installed as {installation.id}."
        return go_to(f"{PAGE}?result={self._facts.results.keep(text, link_of(query.get('next', '')))}")

    def _platform(self) -> Platform:
        platform = self._facts.settings.platform
        if missing := unusable_settings(platform):
            raise InstallationRefused(f"settings are missing or no address: {', '.join(missing)}")
        return platform


def install_link(platform: Platform, state: str) -> str:
    """Return the URL of the platform at which the user confirms the installation."""
    parts = urlsplit(platform.install_url)
    query = [*parse_qsl(parts.query), ("redirect_uri", platform.redirect_url), ("state", state)]
    return urlunsplit(parts._replace(query=urlencode(query)))


def _require_no_error(error: str) -> None:
    """Raise `InstallationRefused` for an error in a redirect (RFC 6749, 4.1.2.1), which is not shown."""
    if error == "access_denied":
        raise InstallationRefused(
            "the installation was declined on the platform; nothing was changed, so begin again on the page "
            "Platform to install it"
        )
    if error:
        raise InstallationRefused(
            "the platform reports an error instead of a code; nothing was changed, so begin again on the "
            "page Platform"
        )


def code_of(query: Mapping[str, str]) -> str:
    """Return the code of the redirect; empty if there is none. The platform does not state its parameter."""
    similar = [value for name, value in query.items() if "code" in name.lower()]
    return query.get("code") or (similar[0] if len(similar) == 1 else "")


def link_of(text: str) -> str:
    """Return the URL at which the platform continues, if a page may show it as a link; otherwise empty."""
    return text if len(text) <= PARAMETER_CHARS_MAX and _NEXT.fullmatch(text) else ""
