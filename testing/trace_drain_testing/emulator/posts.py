"""Client that posts bodies to the addresses of integrations: webhooks and deliveries of drains."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping

import aiohttp

TIMEOUT_S = 10.0


class Poster:
    """Posts bodies over one session, which the first post opens."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> int | None:
        """Post a body. Return the status of the response; `None` without a response."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(TIMEOUT_S), trust_env=True)
        try:
            async with self._session.post(url, data=body, headers=headers, allow_redirects=False) as answer:
                await answer.read()
                return answer.status
        except (aiohttp.ClientError, TimeoutError, ValueError):
            return None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()


def signature_of(secret: str, body: bytes) -> str:
    """Return the signature of a body: its HMAC-SHA1 in hex."""
    return hmac.new(secret.encode(), body, hashlib.sha1).hexdigest()
