"""Access to the API and the pages: the caller of each request, and the permissions of its role.

Callers authenticate with a bearer token, a session cookie or the header of a trusted proxy, in this order of
precedence. Without configured credentials, every caller is the administrator of this machine.

Invariant: the entry of a route names the role that it requires; a route without an entry requires `admin`,
    and refuses callers whose projects are limited. Each request to a route that changes state is logged.
Never: logs a token or a cookie.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from functools import lru_cache
from http import HTTPStatus
from ipaddress import IPv4Network, IPv6Network, ip_network
from typing import Final, Literal, NamedTuple, get_args
from urllib.parse import quote

import structlog
from aiohttp import hdrs, web

from receiver.console.api.problems import PREFIX, Forbidden, Unauthorized
from receiver.console.api.responses import Handler
from receiver.console.api.route import Requirement, route_of
from receiver.console.api.sessions import (
    STATE_S,
    check_state,
    new_key,
    session_user,
    session_value,
    state_value,
)
from receiver.http.peer import peer_address
from receiver.settings import Access as AccessSettings
from receiver.settings import Role, User

COOKIE: Final = "trace-drain-session"
LOGIN: Final = "/login"
NAME_CHARS_MAX = 256
"""Maximum length of a name that a proxy sends."""
NEXT_CHARS_MAX = 2_000
"""Maximum length of a URL to which a login redirects back: percent-encoding may triple its length."""
FAILURES_MAX = 5
"""Failed logins from an address within `WINDOW_S`, counted from the first of them."""
WINDOW_S = 60.0
ADDRESSES_MAX = 10_000
"""Maximum number of addresses with failures. Above it, the address with the oldest window is evicted."""
_TOKEN_OWNER: Final = "(api_token)"  # noqa: S105 - a name. Names in the settings have no parentheses
_ROLES: Final[tuple[Role, ...]] = get_args(Role)
log = structlog.get_logger()


class Caller(NamedTuple):
    """The sender of a request."""

    name: str
    role: Role
    proof: Literal["none", "token", "session", "proxy"]
    """How the caller was authenticated; `none`: no credentials are configured."""
    projects: tuple[str, ...] = ()
    """The only projects whose spans the caller may see; empty means all."""

    def may(self, needed: Role) -> bool:
        """Return whether the role of the caller includes the role that a route requires."""
        return _ROLES.index(self.role) >= _ROLES.index(needed)


CALLER: Final = web.RequestKey("caller", Caller)
ACCESS: Final[web.AppKey[Access]] = web.AppKey("access")
_LOCAL: Final = Caller("(local)", "admin", "none")


class LoginLimit:
    """Limit on failed logins: at `FAILURES_MAX` an address must wait, even if it sends a valid token."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._failures: dict[str, tuple[float, int]] = {}
        """Address → start of its window, and its failures since then; the oldest window is first."""

    def wait_s(self, address: str) -> float:
        """Return how long this address must wait until its next login; 0 if it need not wait."""
        begin_s, count = self._failures.get(address, (0.0, 0))
        return max(0.0, begin_s + WINDOW_S - self._now()) if count >= FAILURES_MAX else 0.0

    def record_failure(self, address: str) -> None:
        """Count a failed login."""
        now_s = self._now()
        begin_s, count = self._failures.get(address, (now_s, 0))
        if now_s - begin_s >= WINDOW_S:
            del self._failures[address]
            begin_s, count = now_s, 0
        self._failures[address] = begin_s, count + 1
        if len(self._failures) > ADDRESSES_MAX:
            del self._failures[next(iter(self._failures))]


class Access:
    """Access check: finds the caller of each request, and rejects requests that the caller may not send."""

    def __init__(
        self,
        token: Callable[[], str],
        settings: Callable[[], AccessSettings] = AccessSettings,
        key: bytes | None = None,
        now: Callable[[], float] = time.time,
    ) -> None:
        """`token`, `settings`: called for each request, because a reload may change them."""
        self._token = token
        self._settings = settings
        self._key = key or new_key()
        self._now = now
        self.login_limit = LoginLimit()

    @web.middleware
    async def middleware(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        """Reject a request whose caller is unknown or lacks the role that its route requires."""
        needed = _needed(request)
        if needed == "public":
            return await handler(request)
        caller = self.caller_of(request)
        if caller is None:
            if request.method == hdrs.METH_GET and is_for_reader(request):
                return _to_login(request)
            raise Unauthorized(
                "token is missing or wrong; expected 'Authorization: Bearer TOKEN' (api_token)"
            )
        request[CALLER] = caller
        if not caller.may(needed):
            raise Forbidden(f"the role '{caller.role}' does not allow this; expected the role '{needed}'")
        if caller.projects and not is_within_projects(request):
            raise Forbidden(
                "the answer cannot be limited to the projects of the user; expected a user of all projects"
            )
        return await handler(request)

    def caller_of(self, request: web.Request) -> Caller | None:
        """Return the caller of a request; `None` if it has no valid credentials."""
        users, proxy = self._users(), self._settings().proxy
        if not users and not proxy.user_header:
            return _LOCAL
        # A proxy in front may check one of two values, and this receiver the other.
        if _has_repeated_credentials(request):
            return None
        authorization = request.headers.get(hdrs.AUTHORIZATION, "")
        # Another scheme authenticates the client to a proxy in front, which may forward the header.
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() == "bearer":
            user = _owner_of(token, users)
            return Caller(user.name, user.role, "token", user.projects) if user else None
        if user := session_user(self._key, request.cookies.get(COOKIE, ""), users, self._now()):
            return Caller(user.name, user.role, "session", user.projects)
        # A client could send the header itself; the proxy may then forward both.
        names = request.headers.getall(proxy.user_header, ()) if proxy.user_header else ()
        if len(names) != 1 or not _is_name(names[0]) or not _is_peer(request.remote, proxy.allowed_peers):
            return None
        return Caller(names[0], proxy.role, "proxy", proxy.projects)

    def user_with(self, token: str) -> User | None:
        """Return the user with this token; `None` if there is none."""
        return _owner_of(token, self._users())

    def cookie_of(self, user: User) -> tuple[str, int]:
        """Return the value of a new session cookie, and its lifetime in seconds."""
        lifetime_s = int(self._settings().session_s)
        return session_value(self._key, user, int(self._now()) + lifetime_s), lifetime_s

    def new_state(self, caller: Caller, redirect_url: str) -> str:
        """Return a state for an installation that the caller begins now."""
        return state_value(self._key, _signer_of(caller), redirect_url, int(self._now()) + STATE_S)

    def check_state(self, caller: Caller, state: str, redirect_url: str) -> None:
        """Raise `InstallationRefused` unless the caller began the installation with this state lately."""
        check_state(self._key, state, _signer_of(caller), redirect_url, self._now())

    def _users(self) -> list[User]:
        """Return every user with a token, including the holder of `api_token`."""
        token = self._token()
        owner = [User(name=_TOKEN_OWNER, token=token, role="admin")] if token else []
        return [*owner, *self._settings().user]


def _has_repeated_credentials(request: web.Request) -> bool:
    """Return whether a request has two `Authorization` headers or two session cookies."""
    cookies = (each for header in request.headers.getall(hdrs.COOKIE, ()) for each in header.split(";"))
    sessions = [each for each in cookies if each.partition("=")[0].strip() == COOKIE]
    return len(sessions) > 1 or len(request.headers.getall(hdrs.AUTHORIZATION, ())) > 1


@web.middleware
async def log_changes(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Log the result of each request of a known caller to a route that changes state."""
    status = int(HTTPStatus.INTERNAL_SERVER_ERROR)
    try:
        response = await handler(request)
        status = response.status
        return response
    finally:
        caller, route = request.get(CALLER), route_of(request)
        if caller is not None and route is not None and route.changes:
            log.info(
                "change requested",
                action=request.method,
                path=request.path,
                status=status,
                name=caller.name,
                role=caller.role,
                peer=request.remote,
            )


def _signer_of(caller: Caller) -> tuple[str, str]:
    # A user that a proxy names is not the user of the same name in the settings.
    return "proxy" if caller.proof == "proxy" else "", caller.name


def _needed(request: web.Request) -> Requirement:
    # Without a route, the answer to a known caller is 404 or 405.
    if request.match_info.http_exception is not None:
        return "viewer"
    route = route_of(request)
    return "admin" if route is None else route.role


def is_within_projects(request: web.Request) -> bool:
    """Return whether a caller with limited projects may send the request."""
    route = route_of(request)
    return request.match_info.http_exception is not None or (route is not None and route.within_projects)


def is_for_reader(request: web.Request) -> bool:
    """Return whether a browser shows the answer as a page."""
    return not request.path.startswith(PREFIX) and "text/html" in request.headers.get(hdrs.ACCEPT, "")


def _to_login(request: web.Request) -> web.Response:
    url = request.raw_path
    query = f"?next={quote(url, safe='')}" if len(url) <= NEXT_CHARS_MAX else ""
    return web.Response(status=HTTPStatus.SEE_OTHER, headers={hdrs.LOCATION: LOGIN + query})


def _owner_of(token: str, users: list[User]) -> User | None:
    # As bytes: `compare_digest` refuses a text that is not ASCII. aiohttp decodes with surrogates.
    sent = token.encode(errors="surrogateescape")
    # Every token is compared, so that the time does not depend on which user it belongs to.
    owners = [user for user in users if hmac.compare_digest(user.token.encode(), sent)]
    return owners[0] if owners else None


def _is_name(text: str) -> bool:
    return 0 < len(text) <= NAME_CHARS_MAX and text.isprintable()


def _is_peer(peer: str | None, allowed: tuple[str, ...]) -> bool:
    address = peer_address(peer)
    return address is not None and any(address in network for network in _networks(allowed))


@lru_cache(maxsize=2)
def _networks(texts: tuple[str, ...]) -> tuple[IPv4Network | IPv6Network, ...]:
    return tuple(map(ip_network, texts))
