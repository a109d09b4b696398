"""Events of a deployment: read at once, or followed as they happen."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Final, Literal

import msgspec

from receiver.platform.client import retries
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.errors import (
    AnswerCut,
    InvalidCall,
    PlatformError,
    TryLater,
    WrongAnswer,
    WrongShape,
)
from receiver.platform.client.event import Event, parse_event
from receiver.platform.client.seen_events import SeenEvents
from receiver.platform.client.stream_items import DONE, ArrayReader, json_texts

ALL_EVENTS = -1
"""Value of `limit` for every available event."""
MALFORMED_MAX = 3
"""Number of connections in a row that end with a malformed event and no new one, before that is an error."""
QUIET_ENDS_MAX = 2
"""Number of connections in a row without a new event, after which the deployment has no more events."""
QUIET_END_S = 10.0
"""Only connections that end within this time count: a later end may be a time limit of a proxy."""
FINAL_STATES: Final = {"READY", "ERROR", "CANCELED"}
"""States after which the end of a stream is final. For other states, `QUIET_ENDS_MAX` decides."""
_STATUS: Final = re.compile(r"[1-5](?:xx|[0-9]{2})")
_BUILD: Final = re.compile(r"[A-Za-z0-9_-]{1,253}")


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Selection of events. `None` stands for the platform's default."""

    direction: Literal["forward", "backward"] | None = None
    """Order by time."""
    limit: int | None = None
    since: int | None = None
    """Milliseconds since 1970."""
    until: int | None = None
    status_code: str | None = None
    """A status such as `503`, or a range such as `5xx`."""
    build: str | None = None
    delimiter: bool | None = None
    builds: bool | None = None

    def parameters(self) -> dict[str, str]:
        """Return the parameters of the request. Raises `InvalidCall`."""
        if self.limit is not None and self.limit < ALL_EVENTS:
            raise InvalidCall("limit is negative; expected a number of events, or -1 for all")
        if self.status_code is not None and not _STATUS.fullmatch(self.status_code):
            raise InvalidCall("the status is not valid; expected a status like 503, or a range like 5xx")
        if self.build is not None and not _BUILD.fullmatch(self.build):
            raise InvalidCall("the build is not valid; expected an id like bld_1")
        values: dict[str, str | int | None] = {
            "direction": self.direction,
            "limit": self.limit,
            "since": self.since,
            "until": self.until,
            "statusCode": self.status_code,
            "name": self.build,
            "delimiter": self.delimiter if self.delimiter is None else int(self.delimiter),
            "builds": self.builds if self.builds is None else int(self.builds),
        }
        return {name: str(value) for name, value in values.items() if value is not None}


async def events(client: PlatformClient, deployment: str, query: EventQuery) -> list[Event]:
    """Return the events of a deployment, which is an id or a host name."""
    answer = await client.get_bytes(_path(deployment), query.parameters())
    if not answer.lstrip().startswith(b"["):
        raise WrongShape("the answer is not an array of events")
    reader = ArrayReader()
    texts = reader.feed(answer)
    reader.end()
    return [parse_event(text) for text in texts]


async def follow(
    client: PlatformClient,
    deployment: str,
    query: EventQuery,
    *,
    on_interruption: Callable[[PlatformError], None] = lambda _: None,
    sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
) -> AsyncGenerator[Event, None]:
    """Yield events as they happen, until the deployment has no more. Close the iterator to end earlier.

    Connects again after an interruption, and calls `on_interruption` with the error. Raises a permanent
    error, and a temporary one after several attempts of the first connection.
    """
    following = _Following(client, deployment, query)
    while not following.is_finished:
        try:
            # Closed at once when the caller stops, because an open connection costs the platform memory.
            async with aclosing(following.connection()) as connection:
                async for event in connection:
                    yield event
        except PlatformError as failure:
            following.require_temporary(failure)
            on_interruption(failure)
        if not following.is_finished:
            await sleep(following.delay_s())


@dataclass(slots=True)
class _Progress:
    """Connections in a row without a new event."""

    failed: int = 0
    malformed: int = 0
    quiet: int = 0


class _Following:
    """State of a followed stream over all its connections."""

    def __init__(self, client: PlatformClient, deployment: str, query: EventQuery) -> None:
        if query.direction == "backward":
            raise InvalidCall("a followed stream has no direction; expected forward, or no follow")
        self._client = client
        self._path = _path(deployment)
        self._query = query
        self._seen = SeenEvents(query.since)
        self._row = _Progress()
        self._delays = retries.delays_s()
        self._has_answered = False
        self._has_final_state = False
        self._retry_after_s = 0.0
        self.is_finished = False

    async def connection(self) -> AsyncGenerator[Event, None]:
        """Yield the new events of one connection."""
        started_s = time.monotonic()
        has_new = False
        async with self._client.stream(self._path, self._parameters()) as pieces:
            self._has_answered = True
            self._seen.begin_connection()
            async for text in json_texts(pieces):
                if text == DONE:
                    break
                event = parse_event(text)
                state = event.payload.info.ready_state.upper()
                if state:
                    self._has_final_state = state in FINAL_STATES
                if self._seen.is_new(event, self._client.now_ms()):
                    has_new = True
                    self._row, self._delays = _Progress(), retries.delays_s()
                    yield event
        is_quiet = not has_new and time.monotonic() - started_s < QUIET_END_S
        self._row.quiet += is_quiet
        self.is_finished = self._has_final_state or self._row.quiet >= QUIET_ENDS_MAX

    def require_temporary(self, failure: PlatformError) -> None:
        """Raise the failure again unless a new connection may succeed."""
        self._row.failed += 1
        is_malformed = isinstance(failure, WrongAnswer) and not isinstance(failure, AnswerCut)
        self._row.malformed += is_malformed
        self._retry_after_s = (isinstance(failure, TryLater) and failure.retry_after_s) or 0.0
        if (
            not isinstance(failure, TryLater | WrongAnswer)
            or self._row.malformed >= MALFORMED_MAX
            or self._retry_after_s > retries.RETRY_AFTER_S_MAX
            or (not self._has_answered and self._row.failed >= retries.ATTEMPTS_MAX)
        ):
            raise failure

    def delay_s(self) -> float:
        """Return the time until the next connection."""
        waited_s, self._retry_after_s = self._retry_after_s + next(self._delays), 0.0
        return waited_s

    def _parameters(self) -> dict[str, str]:
        query = msgspec.structs.replace(self._query, since=self._seen.since_ms())
        if self._has_answered:
            # A limit would leave out events that happened while there was no connection.
            query = msgspec.structs.replace(query, limit=ALL_EVENTS)
        return {**query.parameters(), "follow": "1"}


def _path(deployment: str) -> tuple[str, ...]:
    return ("v3", "deployments", deployment, "events")
