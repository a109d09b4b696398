"""One webhook: an event of the hosting platform, read from the JSON document that it posts.

The platform does not state the form of the document, so any JSON is accepted. A document without a usable id
gets one that is derived from its bytes; one without a usable time counts as created when it was received.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from datetime import UTC, datetime

import msgspec

from receiver.errors import MalformedBody
from receiver.platform.client.json_text import is_deep

ID_CHARS_MAX = 256
"""Length of an id. A longer one is replaced by a digest."""
TYPE_CHARS_MAX = 128
"""Length to which a type is cut: no known type is longer."""
FUTURE_MS_MAX = 86_400_000
"""Maximum time between the receipt of a webhook and a later time of creation, which a wrong clock causes.

A time beyond it is ignored, because such a webhook would override every later one about the same object.
"""
SECONDS_MAX = 1e11
"""Smaller numbers are seconds since 1970, larger ones milliseconds: 1e11 ms is in 1973, 1e11 s in 5138."""


class Webhook(msgspec.Struct, frozen=True):
    """A webhook as it is stored until it is applied."""

    id: str
    type: str
    created_at_ms: int
    received_at_ms: int
    body: msgspec.Raw
    """The document as received."""

    @property
    def key(self) -> str:
        """Name of its file: an id may have characters that a file name cannot have."""
        return hashlib.sha256(self.id.encode()).hexdigest()[:40]

    @property
    def at_s(self) -> float:
        """Time of its creation. Its id adds a part of a millisecond, so that equal times have an order."""
        return (self.created_at_ms + int(self.key[:2], 16) / 256) / 1_000


def parse(raw: bytes, received_at_ms: int) -> Webhook:
    """Read the body of a webhook. Raises `MalformedBody` if it is not one JSON document."""
    document = as_object(_decoded(raw))
    kind = document.get("type")
    return Webhook(
        id=_id_of(document.get("id"), raw),
        type=kind[:TYPE_CHARS_MAX] if isinstance(kind, str) else "",
        created_at_ms=_created_at_ms(document.get("createdAt"), received_at_ms),
        received_at_ms=received_at_ms,
        body=msgspec.Raw(raw),
    )


def as_object(value: object) -> Mapping[str, object]:
    """Return a JSON object, or an empty one in place of any other value."""
    return value if isinstance(value, dict) else {}


def _decoded(raw: bytes) -> object:
    # The limit of the stack depends on the thread: the store process could not read what an intake accepted.
    if is_deep(raw):
        raise MalformedBody("the JSON of the webhook is nested too deeply")
    try:
        return msgspec.json.decode(raw)
    # UnicodeDecodeError is a ValueError, as all errors of msgspec are.
    except ValueError:
        raise MalformedBody("the webhook is not JSON; expected one JSON object") from None


def _id_of(value: object, raw: bytes) -> str:
    if isinstance(value, str) and 0 < len(value) <= ID_CHARS_MAX:
        return value
    # A retry has the same bytes, so that it gets the same id.
    return f"sha256:{hashlib.sha256(raw).hexdigest()}"


def _created_at_ms(value: object, received_at_ms: int) -> int:
    created_at_ms = _milliseconds(value)
    is_possible = 0 < created_at_ms <= received_at_ms + FUTURE_MS_MAX
    return int(created_at_ms) if is_possible else received_at_ms


def _milliseconds(value: object) -> float:
    """Return a time of any form in milliseconds since 1970; 0 if it is no time."""
    if isinstance(value, str):
        try:
            instant = datetime.fromisoformat(value)
        except ValueError:
            return 0
        return (instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp() * 1_000
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0
    return value * 1_000 if value < SECONDS_MAX else value
