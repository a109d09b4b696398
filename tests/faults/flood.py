"""Overload generator: requests that are expensive to decode and cheap to send."""

from __future__ import annotations

import asyncio
import gzip
import json
import time
from dataclasses import dataclass, field

from tests.faults.wire import post_head

BAD_SPANS = 40_000
"""Spans without ids: the receiver decodes and rejects them, so that the store has little to do."""
SENDERS = 16
HEADERS = "content-encoding: gzip\r\n"


@dataclass(frozen=True)
class Reply:
    """One response and the time it arrived."""

    trace: int
    status: int
    """0: no response."""
    at_s: float
    took_s: float


@dataclass
class Flood:
    """A client that sends at a fixed rate and does not wait for responses."""

    address: tuple[str, int]
    first_trace: int
    replies: list[Reply] = field(default_factory=list)

    def __post_init__(self) -> None:
        junk = json.dumps({"traceId": "", "spanId": "", "attributes": [{"key": "k"}]})
        self._tail = gzip.compress(b"," + b",".join([junk.encode()] * BAD_SPANS) + b"]}]}]}", 1)
        self._next = self.first_trace

    @property
    def acknowledged(self) -> set[str]:
        """Traces answered with 200."""
        return {f"{reply.trace:032x}" for reply in self.replies if reply.status == 200}

    def goodput(self, from_s: float, to_s: float) -> float:
        """Return the 200 responses per second in this interval."""
        count = sum(reply.status == 200 and from_s <= reply.at_s < to_s for reply in self.replies)
        return count / (to_s - from_s)

    async def as_fast_as_answered(self, duration_s: float) -> float:
        """Return the 200 responses per second of `SENDERS` clients that each wait for a response."""
        began_s = time.monotonic()

        async def send_in_sequence() -> None:
            while time.monotonic() < began_s + duration_s:
                await self.send()

        await asyncio.gather(*(send_in_sequence() for _ in range(SENDERS)))
        return self.goodput(began_s, time.monotonic())

    async def at_rate(self, rate: float, duration_s: float) -> float:
        """Send `rate` requests per second without waiting. Returns the 200 responses per second meanwhile."""
        began_s, sent = time.monotonic(), 0
        sending: set[asyncio.Task[Reply]] = set()
        while (passed_s := time.monotonic() - began_s) < duration_s:
            for _ in range(int(passed_s * rate) - sent):
                sending.add(asyncio.create_task(self.send()))
                sent += 1
            await asyncio.sleep(0.005)
        ended_s = time.monotonic()
        await asyncio.wait(sending)
        return self.goodput(began_s, ended_s)

    async def recovered_s(self, *, within_s: float, patience_s: float) -> float:
        """Return how long it takes until a request is answered with 200 within `within_s` again."""
        began_s = time.monotonic()
        while time.monotonic() < began_s + patience_s:
            reply = await self.send()
            if reply.status == 200 and reply.took_s < within_s:
                break
        return time.monotonic() - began_s

    async def send(self) -> Reply:
        """Send one request on a new connection."""
        trace, began_s = self._next, time.monotonic()
        self._next += 1
        try:
            status = await self._status_of(self._body(trace))
        except (OSError, EOFError):
            status = 0
        reply = Reply(trace, status, time.monotonic(), time.monotonic() - began_s)
        self.replies.append(reply)
        return reply

    async def _status_of(self, body: bytes) -> int:
        reader, writer = await asyncio.open_connection(*self.address)
        try:
            writer.write(post_head(len(body), headers=HEADERS) + body)
            return int((await reader.readuntil(b"\r\n")).split()[1])
        finally:
            writer.close()

    def _body(self, trace: int) -> bytes:
        """Return two gzip members: a valid span, and the expensive rest."""
        now_ns = time.time_ns()
        head = (
            f'{{"resourceSpans":[{{"scopeSpans":[{{"spans":[{{"traceId":"{trace:032x}","spanId":"{1:016x}",'
            f'"name":"x","startTimeUnixNano":"{now_ns}","endTimeUnixNano":"{now_ns}"}}'
        )
        return gzip.compress(head.encode(), 1) + self._tail
