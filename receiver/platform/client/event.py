"""One event of a deployment: a line of a build, a request, a change of state.

`raw` has the whole event as the platform sent it. The other fields are named by the specification; a field of
another type than stated counts as missing.
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

    type: str = ""
    name: str = ""
    entrypoint: str = ""
    path: str = ""
    step: str = ""
    ready_state: str = ""


class Proxy(Part, frozen=True):
    """A request, as the platform's proxy saw it."""

    timestamp: float | None = None
    method: str = ""
    host: str = ""
    path: str = ""
    status_code: int | None = None
    user_agent: tuple[str, ...] = ()
    referer: str = ""
    client_ip: str = ""
    region: str = ""
    scheme: str = ""
    response_byte_size: int | None = None
    cache_id: str = ""
    path_type: str = ""
    path_type_variant: str = ""
    platform_id: str = ""
    """Id of the request, which spans may have too."""
    platform_cache: str = ""
    lambda_region: str = ""
    waf_action: str = ""
    waf_rule_id: str = ""


class Payload(Part, frozen=True):
    deployment_id: str = ""
    info: Info = Info()
    text: str = ""
    id: str = ""
    date: float | None = None
    serial: str = ""
    created: float | None = None
    status_code: int | None = None
    request_id: str = ""
    proxy: Proxy | None = None


class Event(msgspec.Struct, frozen=True, kw_only=True):
    type: str
    created: float
    """Milliseconds since 1970."""
    payload: Payload
    raw: dict[str, Any]
    """The event with its unknown fields."""


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
