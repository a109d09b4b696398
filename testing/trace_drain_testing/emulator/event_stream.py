"""Deployment events as the platform sends them: an array, or a followed stream in one of several forms."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import msgspec
from aiohttp import web

from trace_drain_testing.emulator.answers import AnswerWriter, begin
from trace_drain_testing.emulator.deployments import Deployment, Event
from trace_drain_testing.emulator.event_query import EventQuery
from trace_drain_testing.emulator.installations import Installation
from trace_drain_testing.emulator.platform import Platform
from trace_drain_testing.emulator.switches import Faults

KEEP_ALIVE_S = 1.0
"""Time without an event after which a keep-alive is sent: real time, because it is for proxies."""


@dataclass(frozen=True, slots=True)
class Form:
    content_type: str
    keep_alive: bytes = b"\n"
    before: bytes = b""
    start: bytes = b""
    separator: bytes = b""
    after: bytes = b"\n"
    end: bytes = b""


FORMS: Final = {
    "json-lines": Form("application/stream+json"),
    "without-keep-alive": Form("application/stream+json", keep_alive=b""),
    "array": Form("application/json", start=b"[", separator=b",", after=b"\n", end=b"]"),
    "event-stream": Form("text/event-stream", keep_alive=b": wait\n\n", before=b"data: ", after=b"\n\n"),
}
"""Forms by shape of P25."""


@dataclass
class Order:
    """Order in which events are sent, with the faults that change it."""

    faults: Faults
    held: list[Event] = field(default_factory=list)

    def arrange(self, events: Iterable[Event]) -> Iterator[Event]:
        """Yield the events. A fault delays an event until after the next, or repeats it."""
        for event in events:
            if not self.held and self.faults.take("events-out-of-order"):
                self.held.append(event)
                continue
            yield event
            if self.faults.take("events-twice"):
                yield event
            yield from self.rest()

    def rest(self) -> Iterator[Event]:
        """Yield the delayed events."""
        while self.held:
            yield self.held.pop()


def shaped_events(platform: Platform, events: Iterable[Event]) -> list[Event]:
    """Return events in the order and the shape for sending."""
    order = Order(platform.faults)
    arranged = [*order.arrange(events), *order.rest()]
    return [_shaped(platform, event) for event in arranged]


async def follow(
    platform: Platform,
    request: web.Request,
    installation: Installation,
    deployment: Deployment,
    query: EventQuery,
) -> web.StreamResponse:
    """Send the existing events, then each new event, until the deployment is in a final state."""
    form = FORMS[platform.unstated.shape_of("P25")]
    response = web.StreamResponse(headers={"Content-Type": form.content_type, "Cache-Control": "no-cache"})
    stream = _Stream(platform, await begin(platform, request, response), form)
    await stream.write(form.start)
    # One at a time, so that the client reads while events are written.
    position = len(deployment.events)
    await stream.send(query.select(deployment.events))
    while True:
        new, position = deployment.events[position:], len(deployment.events)
        await stream.send(event for event in new if query.selects(event))
        # A revoked token or a disabled installation ends the stream, as new requests are refused.
        if platform.is_stopping or installation.state != "active":
            break
        if position < len(deployment.events):
            continue
        if deployment.is_finished:
            break
        await deployment.changed.wait(KEEP_ALIVE_S)
        if position == len(deployment.events):
            await stream.write(form.keep_alive)
    await stream.finish()
    return response


class _Stream:
    def __init__(self, platform: Platform, answer: AnswerWriter, form: Form) -> None:
        self._platform = platform
        self._answer = answer
        self._form = form
        self._order = Order(platform.faults)
        self._has_events = False

    async def write(self, content: bytes) -> None:
        if content:
            await self._answer.write(content)

    async def send(self, events: Iterable[Event]) -> None:
        for event in self._order.arrange(events):
            await self._send(event)

    async def finish(self) -> None:
        for event in self._order.rest():
            await self._send(event)
        await self.write(self._form.end)

    async def _send(self, event: Event) -> None:
        # A fault that is set while the stream is open cuts the stream as well.
        self._answer.is_cut = self._answer.is_cut or self._platform.faults.take("api-cut")
        separator = self._form.separator if self._has_events else b""
        self._has_events = True
        text = msgspec.json.encode(_shaped(self._platform, event))
        await self.write(separator + self._form.before + text + self._form.after)


def _shaped(platform: Platform, event: Event) -> Event:
    """Return an event in the shapes of P20, P22 and P26."""
    shape_of = platform.unstated.shape_of
    payload = event["payload"]
    shaped = event
    info = payload.get("info")
    state = info.get("readyState") if isinstance(info, dict) else None
    if shape_of("P26") == "other-states" and isinstance(state, str):
        payload = payload | {"info": info | {"readyState": f"phase-{state.lower()}"}}
        shaped = shaped | {"payload": payload}
    if shape_of("P22") == "other-types":
        shaped = shaped | {"type": f"build/{event['type']}"}
    if shape_of("P20") == "extra":
        extra = {"level": 3, "tags": ["a", None], "source": {"file": "build.ts", "line": 7}}
        shaped = shaped | {"extra": extra, "payload": payload | {"extra": extra}}
    return shaped
