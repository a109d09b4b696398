"""The servers that are called: their names in messages, and where an operator sets address and secret."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Remote:
    """A server, as messages name it."""

    name: str
    address_from: str
    secret_from: str
    not_found: str
    """What a 404 means, and what to do."""


PLATFORM: Final = Remote(
    "the platform",
    "platform.base_url or --base-url",
    "platform.token_file or --token-file",
    "there is no such resource, or it belongs to another team: check the id and the team",
)
GATEWAY: Final = Remote(
    "the gateway",
    "platform.gateway_url or --gateway-url",
    "platform.api_key_file or --api-key-file",
    "there is no such model, or the address is wrong: `trace-drain platform models` lists the models",
)
