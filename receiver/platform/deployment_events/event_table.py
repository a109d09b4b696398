"""Deployment events as rows of their table, each event once.

The row has the whole event as JSON, with fields and values that this program does not know. The same event
has the same id at every fetch, in any order of its fields.

The stored events are read before and after each INSERT. An INSERT that the engine lost, or whose outcome is
not known, is repeated for the missing events only. The deduplication token depends on the events, so an
INSERT that is repeated while it still runs stores no event twice.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple

import msgspec

from receiver.engine.sql_text import compose
from receiver.engine.store import DEPLOYMENT_EVENTS, Store
from receiver.errors import StoreTrouble
from receiver.time_range import instant_text

Event = Mapping[str, Any]
"""A deployment event as the platform sent it."""
Row = dict[str, str | int]

MS_MAX: Final = 4_102_444_800_000
"""The year 2100. Later times are stored as this time; the JSON has the platform's number."""
STATUS_MAX: Final = 999
# The specification gives no unit of times. For a number of this size, only one unit gives a time since 1973.
_UNITS: Final = ((1e11, 1e3), (1e14, 1.0), (1e17, 1e-3), (math.inf, 1e-6))
"""Bound below which a number is in a unit, and the milliseconds of the unit: s, ms, µs, ns."""
_ID_CHARS: Final = 32
ROWS_MAX = 1_000
"""Maximum number of events of an INSERT. The ids of more would not fit into a parameter of a statement."""
INSERTS_MAX = 3
"""Number of INSERTs of the same events after which the store counts as defective."""
_STORED: Final = compose("""
SELECT DISTINCT EventId FROM {deployment_events}
WHERE ProjectId = {project:String} AND DeploymentId = {deployment:String}
  AND EventId IN {ids:Array(String)}
""")


_NEWEST: Final = compose("""
SELECT JSONExtractFloat(Event, 'created') FROM {deployment_events}
WHERE ProjectId = {project:String} AND DeploymentId = {deployment:String}
  AND Created <= fromUnixTimestamp64Milli({now_ms:Int64})
ORDER BY Created DESC LIMIT 1
""")
_STATE: Final = compose("""
SELECT toString(ReadyState) FROM {deployment_events}
WHERE ProjectId = {project:String} AND DeploymentId = {deployment:String} AND ReadyState != ''
  AND Created <= fromUnixTimestamp64Milli({now_ms:Int64})
ORDER BY Created DESC LIMIT 1
""")


class Stored(NamedTuple):
    """Stored state of a deployment, without events whose time is in the future."""

    newest_ms: int | None
    """Time of the newest event in the unit of the platform; `None` if there is none."""
    state: str
    """State of the deployment by its newest event with a state; empty if there is none."""


def stored_of(store: Store, project: str, deployment: str, now_ms: int) -> Stored:
    """Return the stored state of a deployment under a project. Raises `StoreTrouble`."""
    parameters: dict[str, str | int] = {"project": project, "deployment": deployment, "now_ms": now_ms}
    newest, states = store.rows(_NEWEST, parameters), store.rows(_STATE, parameters)
    return Stored(int(newest[0][0]) if newest else None, states[0][0] if states else "")


def store_events(
    store: Store, project: str, deployment: str, events: Iterable[Event], fetched_ms: int
) -> int:
    """Store the events that are not stored yet. Returns their number. Raises `StoreTrouble`."""
    rows = {
        row["EventId"]: row for event in events for row in [row_of(event, project, deployment, fetched_ms)]
    }
    # Sorted, so that the same events make the same blocks.
    ordered = sorted(rows.values(), key=lambda row: (row["Created"], row["EventId"]))
    return sum(_store(store, ordered[at : at + ROWS_MAX]) for at in range(0, len(ordered), ROWS_MAX))


def _store(store: Store, rows: Sequence[Row]) -> int:
    missing = new = _missing(store, rows)
    for number in range(INSERTS_MAX):
        if not missing:
            return len(new)
        lines = b"\n".join(map(msgspec.json.encode, missing))
        ids = "".join(str(row["EventId"]) for row in missing)
        # With the number: an engine can keep the token of an INSERT whose rows it lost.
        target = f"{missing[0]['ProjectId']} {missing[0]['DeploymentId']}"
        token = sha256(f"{number} {target} {ids}".encode()).hexdigest()
        store.insert_lines(DEPLOYMENT_EVENTS, lines, token=token)
        missing = _missing(store, rows)
    if missing:
        cause = f"{len(missing)} deployment events are not stored after {INSERTS_MAX} INSERTs"
        raise StoreTrouble(cause, cause=cause)
    return len(new)


def _missing(store: Store, rows: Sequence[Row]) -> list[Row]:
    parameters = {
        "project": str(rows[0]["ProjectId"]),
        "deployment": str(rows[0]["DeploymentId"]),
        "ids": [str(row["EventId"]) for row in rows],
    }
    stored = {event_id for (event_id,) in store.rows(_STORED, parameters)}
    return [row for row in rows if row["EventId"] not in stored]


def event_id(event: Event) -> str:
    """Return the identity of an event: a digest of its id, or of its content if it has no id."""
    own_id = _text(_payload(event), "id")
    # With a prefix, so that no id equals a content.
    identity = b"id " + own_id.encode() if own_id else b"content " + _json(event)
    return sha256(identity).hexdigest()[:_ID_CHARS]


def created_ms(event: Event) -> int:
    """Return when an event was created, in milliseconds since 1970; 0 if it has no time."""
    payload = _payload(event)
    times = (_number(event, "created"), _number(payload, "created"), _number(payload, "date"))
    number = next((time for time in times if time > 0), 0.0)
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
