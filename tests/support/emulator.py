"""Emulator of the platform in the process of a test, with a manual clock."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from receiver.config.addresses import Address
from trace_drain_testing.emulator.clock import STARTED_AT_S, Clock
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.run import FACTS_NAME, running

REDIRECT_URI = "http://127.0.0.1:1/installed"


@dataclass(frozen=True)
class RunningEmulator:
    """An emulator that listens."""

    facts: dict[str, str]
    """Content of platform.json."""
    state: Platform
    session: aiohttp.ClientSession

    async def control(self, method: str, path: str, body: object = None) -> Any:  # noqa: ANN401 - JSON
        """Call the control API, and return its answer. Fails if the API refuses the call."""
        url = self.facts["control_url"] + path
        async with self.session.request(method, url, json=body) as answer:
            assert answer.status == 200, await answer.text()
            return await answer.json()

    async def call(
        self,
        method: str,
        path: str,
        *,
        token: str | None = None,
        **options: Any,  # noqa: ANN401 - aiohttp's
    ) -> tuple[int, Any]:
        """Call the platform API with the token of the team. Return the status, and the answer's JSON."""
        headers = {"Authorization": f"Bearer {self.facts['token'] if token is None else token}"}
        url = self.facts["base_url"] + path
        async with self.session.request(method, url, headers=headers, **options) as answer:
            return answer.status, await answer.json()

    async def install(self, **fields: object) -> dict[str, str]:
        """Install the integration. Return its `id`, `code` and `redirect`."""
        made: dict[str, str] = await self.control(
            "POST", "/installations", {"redirect_uri": REDIRECT_URI, **fields}
        )
        return made

    async def exchange(self, code: str, **changed: str) -> tuple[int, Any]:
        """Exchange a code. Return the status, and the answer's JSON."""
        form = {
            "client_id": self.facts["client_id"],
            "client_secret": self.facts["client_secret"],
            "code": code,
            "redirect_uri": REDIRECT_URI,
            **changed,
        }
        return await self.call("POST", "/v2/oauth/access_token", data=form)

    async def deployment(self, **fields: object) -> str:
        """Create a deployment, and return its id."""
        project = next(iter(self.state.projects))
        made = await self.control("POST", "/deployments", {"project": project, **fields})
        return str(made["id"])


@asynccontextmanager
async def emulator(
    directory: Path, *, clock: Clock | None = None, seed: int = 1
) -> AsyncIterator[RunningEmulator]:
    """Run an emulator that writes platform.json into the directory."""
    platform = Platform(clock or Clock(STARTED_AT_S, is_manual=True), seed)
    async with running(platform, Address("127.0.0.1", 0), directory), aiohttp.ClientSession() as session:
        facts = json.loads((directory / FACTS_NAME).read_bytes())
        yield RunningEmulator(facts, platform, session)
