"""HTTP server that records the webhooks it receives, and answers the statuses that a test chooses."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer


@dataclass
class WebhookReceiver:
    """The recorded requests."""

    url: str = ""
    statuses: list[int] = field(default_factory=list)
    """Answers of the next requests; then 200."""
    requests: list[tuple[dict[str, str], bytes]] = field(default_factory=list)
    """Headers with names in lower case, and body, of each request."""

    @property
    def documents(self) -> list[dict[str, Any]]:
        """Return the body of each request."""
        return [json.loads(body) for _, body in self.requests]

    @property
    def types(self) -> list[str]:
        """Return the type of each webhook."""
        return [document["type"] for document in self.documents]

    def is_signed_with(self, secret: str, *, header: str = "x-platform-signature") -> list[bool]:
        """Return for each request whether its signature is right."""
        return [
            headers.get(header) == hmac.new(secret.encode(), body, hashlib.sha1).hexdigest()
            for headers, body in self.requests
        ]


@asynccontextmanager
async def webhook_receiver() -> AsyncIterator[WebhookReceiver]:
    """Run a server that receives webhooks."""
    receiver = WebhookReceiver()

    async def receive(request: web.Request) -> web.Response:
        headers = {name.lower(): value for name, value in request.headers.items()}
        receiver.requests.append((headers, await request.read()))
        return web.Response(status=receiver.statuses.pop(0) if receiver.statuses else 200)

    application = web.Application()
    application.router.add_post("/webhooks", receive)
    async with TestServer(application) as server:
        receiver.url = str(server.make_url("/webhooks"))
        yield receiver
