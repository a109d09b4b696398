"""Deployment event as a row of its table.

Invariant: the row has the whole event as JSON, with fields and values that this program does not know. The
    same event has the same id at every fetch, whatever the order of its fields.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final

import msgspec

from receiver.time_range import instant_text

Event = Mapping[str, Any]
"""A deployment event as the platform sent it."""
Row = dict[str, str | int]

MS_MAX: Final = 4_102_444_800_000
"""The year 2100. Later times are stored as this time; the JSON has the platform's number."""
STATUS_MAX: Final = 999
# The specification gives no unit of times. No unit but one makes a number of this size a time since 1973.
_UNITS: Final = ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3), (math.inf, 1e-6))
"""Bound below which a number is in a unit, and the milliseconds of the unit: s, ms, µs, ns."""
_ID_CHARS: Final = 32


def event_id(event: Event) -> str:
    """Return the identity of an event: a digest of its id, or of its content if it has no id."""
    given = _text(_payload(event), "id")
    # Marked, so that no id equals a content.
    identity = b"id " + given.encode() if given else b"content " + _json(event)
    return sha256(identity).hexdigest()[:_ID_CHARS]


def created_ms(event: Event) -> int:
    """Return when an event was created, in milliseconds since 1970; 0 if the event does not say."""
    payload = _payload(event)
    number = next(
        (
            number
            for number in (_number(event, "created"), _number(payload, "created"), _number(payload, "date"))
            if number > 0
        ),
        0.0,
    )
    factor = next(factor for bound, factor in _UNITS if number < bound or bound == math.inf)
    return int(min(number * factor, MS_MAX))


def ready_state(event: Event) -> str:
    """Return the state of the deployment that an event reports; empty if it reports none."""
    return _text(_object(_payload(event), "info"), "readyState")


def row_of(event: Event, project: str, deployment: str, fetched_ms: int) -> Row:
    """Return the row of an event."""
    payload = _payload(event)
    proxy = _object(payload, "proxy")
    status = _number(payload, "statusCode") or _number(proxy, "statusCode")
    return {
        "ProjectId": project,
        "DeploymentId": deployment,
        "Created": _instant(created_ms(event)),
        "EventId": event_id(event),
        "Type": _text(event, "type"),
        "ReadyState": ready_state(event),
        "StatusCode": int(status) if 0 < status <= STATUS_MAX else 0,
        "RequestId": _text(payload, "requestId"),
        "PlatformId": _text(proxy, "platformId"),
        "Event": _json(event).decode(),
        "FetchedAt": _instant(fetched_ms),
    }


def _payload(event: Event) -> Event:
    return _object(event, "payload")


def _object(parent: Event, name: str) -> Event:
    found = parent.get(name)
    return found if isinstance(found, dict) else {}


def _text(parent: Event, name: str) -> str:
    found = parent.get(name)
    # An id may be a number.
    if isinstance(found, int) and not isinstance(found, bool):
        return str(found)
    return found if isinstance(found, str) else ""


def _number(parent: Event, name: str) -> float:
    found = parent.get(name)
    return float(found) if isinstance(found, int | float) and not isinstance(found, bool) else 0.0


def _instant(milliseconds: int) -> str:
    return instant_text(milliseconds // 1_000, sep=" ", zone=f".{milliseconds % 1_000:03}")


def _json(event: Event) -> bytes:
    return msgspec.json.encode(event, order="sorted")
