"""Writes deployment events to their table, each event once.

Before an INSERT the stored events are read, and after it they are read again: an INSERT whose outcome is not
known, or that the engine lost, is repeated for the missing events only. The deduplication token depends on
the events, so an INSERT that is repeated while it still runs stores no event twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from receiver.engine.sql_text import compose
from receiver.engine.store import DEPLOYMENT_EVENTS, Store
from receiver.errors import StoreTrouble
from receiver.platform.deployment_events.event_row import Event, Row, row_of

ROWS_MAX = 1_000
"""Maximum number of events of an INSERT. The ids of more would not fit into a parameter of a statement."""
INSERTS_MAX = 3
"""INSERTs of the same events after which the store counts as defective."""
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
    """What is stored of a deployment, without events whose time is in the future."""

    newest_ms: int | None
    """Time of the newest event in the unit of the platform; `None` if there is none."""
    state: str
    """State of the deployment that its newest event about a state reports; empty if there is none."""


def stored_of(store: Store, project: str, deployment: str, now_ms: int) -> Stored:
    """Return what is stored of a deployment under a project. Raises `StoreTrouble`."""
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
        place = f"{missing[0]['ProjectId']} {missing[0]['DeploymentId']}"
        token = sha256(f"{number} {place} {ids}".encode()).hexdigest()
        store.insert_lines(DEPLOYMENT_EVENTS, lines, token=token)
        missing = _missing(store, rows)
    if missing:
        cause = f"{len(missing)} deployment events are not stored after {INSERTS_MAX} INSERTs"
        raise StoreTrouble(cause, cause=cause)
    return len(new)


def _missing(store: Store, rows: Sequence[Row]) -> list[Row]:
    wanted = {
        "project": str(rows[0]["ProjectId"]),
        "deployment": str(rows[0]["DeploymentId"]),
        "ids": [str(row["EventId"]) for row in rows],
    }
    stored = {event_id for (event_id,) in store.rows(_STORED, wanted)}
    return [row for row in rows if row["EventId"] not in stored]
