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


PLATFORM: Final = Remote(
    "the platform", "platform.base_url or --base-url", "platform.token_file or --token-file"
)
GATEWAY: Final = Remote(
    "the gateway", "platform.gateway_url or --gateway-url", "platform.api_key_file or --api-key-file"
)
