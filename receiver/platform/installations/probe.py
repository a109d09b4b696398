"""Probe of an installation: one call that changes nothing, and what its answer says."""

from __future__ import annotations

import asyncio
from typing import Final

from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import (
    ConfigurationDisabled,
    Forbidden,
    InvalidRequest,
    NotAuthorized,
    NotFound,
    PlatformError,
)
from receiver.platform.installations.lifecycle import Verdict
from receiver.platform.installations.records import Installation
from receiver.settings import Platform

_DEPLOYMENT: Final = "dpl_trace-drain-probe"
"""Deployment that does not exist: the platform answers 404 to a token that works."""
_VERDICT_OF: Final[tuple[tuple[type[PlatformError], Verdict], ...]] = (
    # Before its base class.
    (ConfigurationDisabled, "disabled"),
    (Forbidden, "forbidden"),
    (NotAuthorized, "unauthorized"),
    (NotFound, "works"),
    (InvalidRequest, "works"),
)


def probe(platform: Platform, installation: Installation, token: str) -> Verdict:
    """Call the platform with the token of an installation. Blocks."""
    return asyncio.run(_probe(platform, installation, token))


async def _probe(platform: Platform, installation: Installation, token: str) -> Verdict:
    try:
        # Without the scopes, which would refuse the call before it is sent.
        async with PlatformClient(
            platform.base_url, token, team=installation.team_id, timeout_s=platform.timeout_s
        ) as client:
            path = ("v3", "deployments", _DEPLOYMENT, "events")
            await client.get_bytes("deployment events", path, {"limit": "1"})
    except PlatformError as error:
        return next((verdict for kind, verdict in _VERDICT_OF if isinstance(error, kind)), "no answer")
    return "works"
