"""Platform that exchanges codes for tokens, each once, as its rules state."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer
from msgspec.structs import replace

from receiver.settings import Platform

REDIRECT_URL = "https://receiver.test/platform/installed"
INSTALL_URL = "https://platform.test/install?integration=traces"
TOKEN = "token-of-the-platform-3f9a"
TOKEN_PATH = "/v2/oauth/access_token"


def settings_of(base_url: str, /, **more: str) -> Platform:
    """Return settings with which the integration can be installed."""
    usable = Platform(
        base_url=base_url,
        client_id="oac_1",
        client_secret="secret of the client",
        install_url=INSTALL_URL,
        redirect_url=REDIRECT_URL,
    )
    return replace(usable, **more)


class PlatformServer:
    """Server of the platform's API."""

    def __init__(self) -> None:
        self.forms: list[dict[str, str]] = []
        """Forms that were posted, in order."""
        self.answer: dict[str, Any] = {
            "access_token": TOKEN,
            "token_type": "Bearer",
            "installation_id": "icfg_a1",
            "user_id": "user_1",
            "team_id": "team_1",
        }
        self.status = 200
        self.base_url = ""

    @property
    def settings(self) -> Platform:
        """Return the settings of a receiver that uses this platform."""
        return settings_of(self.base_url)

    async def exchange(self, request: web.Request) -> web.StreamResponse:
        """Answer with the token, once for each code."""
        form = {name: str(value) for name, value in (await request.post()).items()}
        is_used = any(form["code"] == before["code"] for before in self.forms)
        self.forms.append(form)
        if is_used:
            return _refusal("the code was exchanged before")
        if self.status == 0:
            assert request.transport is not None
            request.transport.close()
        if self.status >= 400:
            return web.json_response({"error": {"code": "failed", "message": "no"}}, status=self.status)
        return web.json_response(self.answer)


def _refusal(message: str) -> web.Response:
    error: Mapping[str, str] = {"code": "invalid_grant", "message": message}
    return web.json_response({"error": error}, status=400)


@asynccontextmanager
async def platform_server() -> AsyncIterator[PlatformServer]:
    """Start a server of the platform."""
    platform, application = PlatformServer(), web.Application()
    application.router.add_post(TOKEN_PATH, platform.exchange)
    async with TestServer(application) as server:
        platform.base_url = str(server.make_url("/")).rstrip("/")
        yield platform
