"""Client of the platform's API: adds the token and the team to each call. Scopes that calls need.

A scope is a name with a level: `deployment:read`, `project:write`. `write` includes `read`. The platform may
also write `read:deployment`, or the name alone, which is taken for both levels.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import msgspec

from receiver.platform.client.answers import PLATFORM
from receiver.platform.client.errors import AddressMissing, InvalidCall, TeamMissing
from receiver.platform.client.http_calls import HttpCaller, Request
from receiver.platform.client.json_text import parse

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
"""An id, slug or host name, without characters that could change the path."""
SCOPES: Final = (
    *("integration-configuration", "deployment", "deployment-check", "edge-config", "project"),
    *("project-env-vars", "global-project-env-vars", "team", "user", "log-drain", "domain"),
)
"""Every name that an integration can request."""
NEEDED: Final[dict[str, tuple[str, ...]]] = {
    "deployment events": ("deployment:read",),
    "microfrontends update": ("project:write",),
}
"""Scopes of each call. The specification names the scopes, but not the calls that need them."""
_LEVELS: Final = {"read": {"read"}, "write": {"read", "write"}}


class PlatformClient(HttpCaller):
    """Calls of one installation."""

    def __init__(
        self, base_url: str, token: str, *, team: str = "", slug: str = "", timeout_s: float = 30.0
    ) -> None:
        """Raise `AddressMissing` without a usable address and token."""
        if not token:
            raise AddressMissing(f"no access token of the platform; set {PLATFORM.secret_from}")
        super().__init__(PLATFORM, base_url, token, timeout_s=timeout_s)
        self.team = team
        self._slug = slug

    async def get_bytes(self, path: Sequence[str], query: Mapping[str, str]) -> bytes:
        """Return the body of an answer. Repeated after failures that may be temporary."""
        return await self.call(self._request("GET", path, query))

    async def patch(self, path: Sequence[str], body: Mapping[str, Any]) -> Any:  # noqa: ANN401 - any JSON
        """Change a resource, and return the JSON of the answer. Never repeated."""
        request = self._request("PATCH", path, None, msgspec.json.encode(body))
        return parse(await self.call(request), "the answer")

    def stream(
        self, path: Sequence[str], query: Mapping[str, str]
    ) -> AbstractAsyncContextManager[AsyncIterator[bytes]]:
        """Open an answer that is read in pieces. Never repeated."""
        return self.opened(self._request("GET", path, query))

    def require_team_id(self) -> str:
        if not self.team:
            raise TeamMissing(
                "this call needs the id of the team in its path, and a slug is not enough; set platform.team "
                "or --team"
            )
        return self.team

    def _request(
        self, method: str, path: Sequence[str], query: Mapping[str, str] | None, body: bytes | None = None
    ) -> Request:
        for part in path:
            if not _NAME.fullmatch(part):
                if "://" in part:
                    raise InvalidCall(
                        "the call has an address in place of an id or host name; expected shop.example.com, "
                        "not https://shop.example.com/"
                    )
                raise InvalidCall(
                    "an id or host name of the call is not valid; expected letters, digits and . _ - only"
                )
        team = {"teamId": self.team, "slug": self._slug}
        return Request(
            method, path, {**(query or {}), **{name: text for name, text in team.items() if text}}, body
        )


def missing_scopes(needed: Collection[str], granted: Collection[str]) -> list[str]:
    held = {scope for text in granted for scope in _levels_of(text)}
    return [scope for scope in needed if not _levels_of(scope) <= held]


def _levels_of(text: str) -> set[str]:
    """Return the name with each level that the scope includes."""
    first, _, second = text.strip().lower().partition(":")
    name, level = (second, first) if first in _LEVELS else (first, second)
    return {f"{name}:{included}" for included in _LEVELS.get(level, _LEVELS["write"])}
