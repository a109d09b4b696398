"""Projects, microfrontends groups and deployments of the emulated platform, and the events of deployments."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trace_drain_testing.emulator.clock import Signal
from trace_drain_testing.emulator.refusals import bad_request

STATES: Final = ("QUEUED", "INITIALIZING", "BUILDING", "READY", "ERROR", "CANCELED")
FINAL_STATES: Final = frozenset(STATES[3:])
"""Final states: a followed stream ends."""
EVENTS_MAX = 200_000
"""Maximum number of events of a deployment."""
OBJECTS_MAX = 10_000
"""Maximum number of projects, and of deployments."""
Event = dict[str, Any]


@dataclass
class Project:
    id: str
    name: str


@dataclass
class MicrofrontendsGroup:
    id: str
    name: str
    slug: str
    fallback_environment: str = "SAME_ENV"


@dataclass
class Deployment:
    """A deployment and its events, in the order in which they happened."""

    id: str
    project: str
    url: str
    state: str
    created_ms: int
    events: list[Event] = field(default_factory=list)
    changed: Signal = field(default_factory=Signal)

    @property
    def is_finished(self) -> bool:
        """Whether a followed stream ends."""
        return self.state in FINAL_STATES

    def add(self, events: Iterable[Mapping[str, Any]], now_ms: int) -> list[Event]:
        """Add events. Missing fields get values."""
        made: list[Event] = []
        for event in events:
            payload = event.get("payload", {})
            if not isinstance(payload, dict) or not isinstance(event.get("type", "stdout"), str):
                raise bad_request("an event is malformed; expected a text `type` and an object `payload`")
            created = event.get("created", now_ms)
            if isinstance(created, bool) or not isinstance(created, int | float):
                raise bad_request("an event is malformed; expected a number `created`")
            number = len(self.events) + len(made) + 1
            stated = {
                "deploymentId": self.id,
                "id": f"{created}{number:06}",
                "date": created,
                "serial": f"{created}{number:06}",
                "created": created,
            }
            made.append(
                {
                    **event,
                    "type": event.get("type", "stdout"),
                    "created": created,
                    "payload": stated | payload,
                }
            )
        if len(self.events) + len(made) > EVENTS_MAX:
            raise bad_request(f"the deployment would have over {EVENTS_MAX} events")
        self.events += made
        self.changed.notify()
        return made

    def set_state(self, state: str, now_ms: int) -> None:
        """Change the state, and add an event for it."""
        if state not in STATES:
            raise bad_request(f"unknown state; expected one of {', '.join(STATES)}")
        event = {"type": "deployment-state", "payload": {"info": {"type": "state", "readyState": state}}}
        # Before the state, so that a followed stream that sees the final state has sent this event.
        self.add([event], now_ms)
        self.state = state
        self.changed.notify()

    def summary(self) -> dict[str, Any]:
        """Return the deployment without its events."""
        return {
            "id": self.id,
            "project": self.project,
            "url": self.url,
            "state": self.state,
            "created": self.created_ms,
            "events": len(self.events),
        }
