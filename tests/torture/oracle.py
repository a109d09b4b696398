"""The oracle: what delivery `number` of a seed is, byte by byte, and which rows it must become.

Keeps: both are a function of seed and number alone; no clock, no state. What was issued is therefore never
    remembered, only computed again.
Every trace id says whose it is: `tag of the seed u32 │ number u64 │ group u32`, all big-endian.
"""

from __future__ import annotations

import copy
import gzip
import hashlib
import hmac
import random
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from tests.e2e.expected import rows_of
from tests.e2e.requests_at_random import Requests, otlp_json

Key = tuple[str, str]
"""TraceId, SpanId."""

BEGAN_NS = int(datetime(2026, 1, 15, tzinfo=UTC).timestamp()) * 10**9
"""All spans lie in the three days after it, so that an INSERT has several partitions."""
DAYS = 3
PROJECTS = ("prj_red", "prj_green", "prj_blue")
BAD_SHARE = 0.15
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@dataclass(frozen=True)
class Drain:
    """A drain as the sender knows it."""

    name: str
    path: str
    token: str = ""
    secret: str = ""
    acknowledge: str = "journal"


DRAINS = (
    Drain("open", "/v1/traces"),
    Drain("bearer", "/bearer/v1/traces", token="torture-token"),
    Drain("signed", "/signed/v1/traces", secret="torture-secret"),
    Drain("patient", "/patient/v1/traces", acknowledge="store"),
)
LANES = (*[DRAINS[0]] * 3, *[DRAINS[1]] * 2, *[DRAINS[2]] * 2, DRAINS[3])
"""Delivery `number` goes to drain `LANES[number % len(LANES)]`; a sender works in one lane, so that the drain
whose answers wait for the store holds up nobody else."""


@dataclass(frozen=True)
class Delivery:
    """One body, how it is posted, and what must come of it."""

    number: int
    drain: Drain
    body: bytes
    headers: dict[str, str]
    rejected_count: int
    rows: dict[Key, dict[str, Any]]
    """Columns that are a function of what was sent."""


class Issued(Requests):
    """Random requests whose ids and times are a function of seed and number too."""

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(seed)
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        self.random = random.Random(digest)
        self._prefix = tag_of(seed) + number.to_bytes(8, "big")
        self._spans = 0

    def issued(self) -> ExportTraceServiceRequest:
        """A request with one span at least."""
        while True:
            request = self.request()
            if self._spans:
                return request

    def attributes(self, owner: Any, extra: dict[str, str] | None = None) -> None:  # noqa: ANN401 - as its base
        if extra and "platform.projectId" in extra:
            extra = extra | {"platform.projectId": self.random.choice(PROJECTS)}
        super().attributes(owner, extra)

    def span(self, span: Span) -> None:
        super().span(span)
        self._spans += 1
        group = self.random.randrange(3)
        span.trace_id = self._prefix + group.to_bytes(4, "big")
        span.span_id = self.random.randbytes(4) + self._spans.to_bytes(4, "big")
        span.start_time_unix_nano = BEGAN_NS + self.random.randrange(DAYS * 86_400 * 10**9)
        span.end_time_unix_nano = span.start_time_unix_nano + self.random.randint(-10, 10**10)
        for event in span.events:
            event.time_unix_nano = span.start_time_unix_nano + self.random.randrange(10**9)

    def spoiled(self, request: ExportTraceServiceRequest) -> tuple[ExportTraceServiceRequest, int]:
        """The same with spans in it that nobody can take, and their number."""
        if self.random.random() >= BAD_SHARE:
            return request, 0
        spoiled = copy.deepcopy(request)
        scopes = [scoped for group in spoiled.resource_spans for scoped in group.scope_spans]
        bad_count = self.random.randint(1, 4)
        for _ in range(bad_count):
            span = self.random.choice(scopes).spans.add()
            self.span(span)
            field, value = self.random.choice(BAD_IDS)
            setattr(span, field, value)
        return spoiled, bad_count


BAD_IDS = (
    ("trace_id", b""),
    ("trace_id", bytes(16)),
    ("trace_id", b"\x01" * 5),
    ("span_id", b""),
    ("span_id", bytes(8)),
    ("span_id", b"\x01" * 3),
)


class Oracle:
    """All deliveries of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def delivery(self, number: int) -> Delivery:
        """Make it; every time the same."""
        issued = Issued(self.seed, number)
        good = issued.issued()
        spoiled, rejected_count = issued.spoiled(good)
        drain = LANES[number % len(LANES)]
        is_json, is_packed = issued.random.random() < 0.4, issued.random.random() < 0.5
        body = otlp_json(spoiled) if is_json else spoiled.SerializeToString(deterministic=True)
        headers = {"content-type": JSON if is_json else PROTOBUF}
        if is_packed:
            body = gzip.compress(body, 1, mtime=0)
            headers["content-encoding"] = "gzip"
        rows = {(row["TraceId"], row["SpanId"]): row | {"Drain": drain.name} for row in rows_of(good)}
        return Delivery(number, drain, body, headers | credentials(drain, body), rejected_count, rows)

    def number_of(self, trace_id: str) -> int | None:
        """Whose trace it is; none: it was never ours to issue."""
        if len(trace_id) != 32 or trace_id[:8] != tag_of(self.seed).hex():
            return None
        return int(trace_id[8:24], 16)

    def first_trace_id(self, number: int) -> str:
        """The least trace id of this delivery and all after it."""
        return tag_of(self.seed).hex() + f"{number:016x}" + "0" * 8


def repacked(delivery: Delivery) -> Delivery:
    """The same content as a client posts it once more: compressed anew, and so signed anew."""
    if "content-encoding" not in delivery.headers:
        return delivery
    body = gzip.compress(gzip.decompress(delivery.body), 9, mtime=delivery.number)
    return replace(delivery, body=body, headers=delivery.headers | credentials(delivery.drain, body))


def tag_of(seed: int) -> bytes:
    """What all trace ids of a seed begin with; never zero."""
    return b"\xa5" + hashlib.sha256(str(seed).encode()).digest()[:3]


def credentials(drain: Drain, body: bytes) -> dict[str, str]:
    """What this drain asks of whoever posts this body."""
    if drain.token:
        return {"authorization": f"Bearer {drain.token}"}
    if drain.secret:
        return {"x-signature": hmac.new(drain.secret.encode(), body, hashlib.sha1).hexdigest()}
    return {}
