"""Checks of the settings of the hosting platform: its addresses and its webhooks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final
from urllib.parse import urlsplit

from receiver.config.access import HEADER_NAME
from receiver.errors import OperatorError
from receiver.settings import Settings
from receiver.sizes import size_text
from receiver.transcode import PatternSet

PATH = re.compile(r"/[A-Za-z0-9._~!$&'()*+,;=:@%/-]*")
VISIBLE: Final = re.compile(r"[!-~]+")
ADDRESSES: Final = ("base_url", "gateway_url", "install_url", "redirect_url")


def platform_problems(settings: Settings) -> Iterator[str]:
    """Check the addresses and the keys of the platform."""
    yield from _address_problems(settings)
    yield from _key_problems(settings)


def _address_problems(settings: Settings) -> Iterator[str]:
    """Require addresses of HTTP, without quoting them: they may hold a password."""
    for name in ADDRESSES:
        address = getattr(settings.platform, name)
        if address and not is_address(address):
            yield (
                f"platform.{name} is not an address; expected https://HOST or https://HOST/PATH, "
                "without a user name"
            )


def _key_problems(settings: Settings) -> Iterator[str]:
    """Require a new key beside the previous one: without it, no token would be encrypted again."""
    if settings.platform.encryption_key_previous and not settings.platform.encryption_key:
        yield (
            "platform.encryption_key_previous is set without platform.encryption_key; "
            "expected the new key in platform.encryption_key_file"
        )
    key = settings.platform.encryption_key
    if key and key == settings.platform.encryption_key_previous:
        yield "platform.encryption_key_previous equals platform.encryption_key; expected the key before"


def is_address(text: str) -> bool:
    """Return whether a text is the address of an HTTP server, without user, password and spaces."""
    if not VISIBLE.fullmatch(text):
        return False
    try:
        parts = urlsplit(text)
        is_usable = parts.port != 0 and parts.hostname is not None
    except ValueError:
        return False
    return is_usable and parts.scheme in {"http", "https"} and parts.username is None


def webhook_problems(settings: Settings) -> Iterator[str]:
    """Require a path of its own and a secret: an unsigned webhook could delete tokens."""
    webhook, limit = settings.platform.webhook, settings.limits.inflight_bytes_max
    if not webhook.path:
        return
    if not PATH.fullmatch(webhook.path) or not webhook.path.rstrip("/"):
        yield (
            f"platform.webhook.path is {webhook.path!r}; expected a path that starts with '/' and is not the "
            "root, without query or fragment"
        )
    if webhook.path.rstrip("/") in {drain.path.rstrip("/") for drain in settings.drain}:
        yield f"platform.webhook.path is '{webhook.path}', the path of a drain; expected another path"
    if not webhook.secrets:
        yield "platform.webhook.path is set without a secret; expected platform.webhook.secret_file"
    if not HEADER_NAME.fullmatch(webhook.signature_header):
        yield (
            f"platform.webhook.signature_header is {webhook.signature_header!r}; "
            "expected the name of an HTTP header"
        )
    if webhook.body_bytes_max > limit:
        yield (
            f"platform.webhook.body_bytes_max is over limits.inflight_bytes_max = {size_text(limit)}; "
            "expected less"
        )


def redaction(settings: Settings) -> Iterator[str]:
    """Yield a problem for each pattern that cannot be searched."""
    for key in ("redact_keys", "redact_patterns"):
        for index, pattern in enumerate(getattr(settings.platform.explain, key)):
            try:
                PatternSet([pattern])
            except OperatorError as error:
                yield f"platform.explain.{key}[{index}] {error}"
