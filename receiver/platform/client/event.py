"""One event of a deployment: a line of a build, a request, a change of state.

`raw` has the whole event as the platform sent it. The other fields are those that this program reads; a field
of another type than the specification states counts as missing.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from receiver.platform.client.errors import WrongShape
from receiver.platform.client.json_text import converted, parse_object, tolerant

CREATED_MAX_MS: Final = 253_402_300_799_999
"""Last millisecond of the year 9999, beyond which there are no dates."""


class Part(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A part of an event. An empty text or `None`: the event does not have the field."""


class Info(Part, frozen=True):
    """The build, and the state that it reports."""

    name: str = ""
    path: str = ""
    step: str = ""
    ready_state: str = ""


class Proxy(Part, frozen=True):
    """A request, as the platform's proxy saw it."""

    method: str = ""
    host: str = ""
    path: str = ""
    status_code: int | None = None


class Payload(Part, frozen=True):
    info: Info = Info()
    text: str = ""
    id: str = ""
    status_code: int | None = None
    proxy: Proxy | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    created: float
    """Milliseconds since 1970."""
    payload: Payload
    raw: dict[str, Any]


class _Head(msgspec.Struct):
    type: str
    created: float


def parse_event(text: bytes) -> Event:
    """Parse an event. Raises `NotJson` or `WrongShape`."""
    what = "an event of the answer"
    raw = parse_object(text, what)
    head = converted(raw, _Head, what)
    if not 0 <= head.created <= CREATED_MAX_MS:
        raise WrongShape(f"{what} has a time that is no date")
    return Event(type=head.type, created=head.created, payload=tolerant(raw.get("payload"), Payload), raw=raw)
