"""Check of Host and Origin: keeps web pages of other sites from the API and the admin port.

If an attacker's DNS answers with our address (DNS rebinding), the browser sends the attacker's host name in
`Host`. If a page sends a request to another site, the browser sends the page's origin in `Origin`. An IP
address in `Host` cannot be rebound.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Awaitable, Callable, Iterable
from http import HTTPStatus

from aiohttp import web

from receiver.http.protocol import error_response
from receiver.logs import limited

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

_AUTHORITY = re.compile(r"(?P<v6>\[[0-9A-Fa-f:.]+\])?(?P<name>[^:@/\[\]]*)(?::[0-9]{0,5})?")
WRONG_HOST = (
    "the Host header does not name this receiver; expected an IP address, localhost, "
    "this machine's name, or a name listed in the setting api_hosts"
)
WRONG_ORIGIN = "a page of another origin sent this request; expected a page of this origin, or no browser"


class OriginCheck:
    """Refuses requests that a page of another site makes a browser send."""

    def __init__(self, port: str, names: Iterable[str], *, allows_short_names: bool = False) -> None:
        """`names`: DNS names of the receiver. Short names, without a dot, are not in the public DNS."""
        own = {"localhost", socket.gethostname(), *names}
        self._port = port
        self._names = frozenset(_normalized(name) for name in own)
        self._allows_short_names = allows_short_names

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Answer 403 to a request for another host, or from another origin."""
        reason = self._reason_to_refuse(request)
        if not reason:
            return await handler(request)
        limited.warning(f"{self._port}: origin", "request refused", port=self._port, error=reason)
        return error_response(HTTPStatus.FORBIDDEN, reason)

    def _reason_to_refuse(self, request: web.Request) -> str:
        host = request.headers.get("Host")
        # Scripts may omit Host in HTTP/1.0, but a browser always sends it.
        if host is not None and not self.is_allowed_host(host):
            return WRONG_HOST
        origin = request.headers.get("Origin")
        # The origin `null`, which sandboxed pages send, has no host and is refused here.
        if origin is not None and (not host or origin.partition("://")[2].lower() != host.lower()):
            return WRONG_ORIGIN
        site = request.headers.get("Sec-Fetch-Site", "none")
        # A link from another page shows the answer to the user only; the other page cannot read it.
        is_navigation = request.headers.get("Sec-Fetch-Mode") == "navigate" and request.method == "GET"
        return "" if site in {"none", "same-origin"} or is_navigation else WRONG_ORIGIN

    def is_allowed_host(self, host: str) -> bool:
        """Return whether a `Host` header, with or without a port, names this receiver."""
        match = _AUTHORITY.fullmatch(host)
        if match is None:
            return False
        if match["v6"]:
            return not match["name"] and _is_address(match["v6"][1:-1])
        name = _normalized(match["name"])
        is_short = bool(name) and "." not in name
        return name in self._names or (is_short and self._allows_short_names) or _is_address(name)


def _normalized(name: str) -> str:
    # A fully qualified name may end with a dot.
    return name.strip().lower().removesuffix(".")


def _is_address(text: str) -> bool:
    try:
        ipaddress.ip_address(text)
    except ValueError:
        return False
    return True
