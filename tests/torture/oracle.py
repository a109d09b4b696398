"""Oracle: the bytes of delivery `number` of a seed, and the rows that it must become.

Invariant: both are functions of seed and number alone; no clock, no state. Issued deliveries are never
    stored, only computed again.
Each trace id identifies its delivery: `tag of the seed u32 │ number u64 │ group u32`, big-endian.
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
from tests.e2e.random_requests import Requests, otlp_json

Key = tuple[str, str]
"""TraceId, SpanId."""

FIRST_NS = int(datetime(2026, 1, 15, tzinfo=UTC).timestamp()) * 10**9
"""Spans start within `DAYS` days from here, so that an INSERT has several partitions."""
DAYS = 3
PROJECTS = ("prj_red", "prj_green", "prj_blue")
BAD_SHARE = 0.15
PROTOBUF, JSON = "application/x-protobuf", "application/json"


@dataclass(frozen=True)
class Drain:
    """A drain from the sender's view."""

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
"""Delivery `number` goes to drain `LANES[number % len(LANES)]`. A sender uses one lane, so that the drain
whose answers wait for the store does not delay the others."""


@dataclass(frozen=True)
class Delivery:
    """A body, how to post it, and the rows that it must become."""

    number: int
    drain: Drain
    body: bytes
    headers: dict[str, str]
    rejected_count: int
    rows: dict[Key, dict[str, Any]]
    """Columns that depend only on what was sent."""


class DeliveryRequests(Requests):
    """Random requests whose ids and times are functions of seed and number."""

    def __init__(self, seed: int, number: int) -> None:
        super().__init__(seed)
        digest = hashlib.sha256(f"{seed}/{number}".encode()).digest()
        self.random = random.Random(digest)
        self._prefix = tag_of(seed) + number.to_bytes(8, "big")
        self._spans = 0

    def non_empty_request(self) -> ExportTraceServiceRequest:
        """Return a request with at least one span."""
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
        span.start_time_unix_nano = FIRST_NS + self.random.randrange(DAYS * 86_400 * 10**9)
        span.end_time_unix_nano = span.start_time_unix_nano + self.random.randint(-10, 10**10)
        for event in span.events:
            event.time_unix_nano = span.start_time_unix_nano + self.random.randrange(10**9)

    def with_bad_spans(self, request: ExportTraceServiceRequest) -> tuple[ExportTraceServiceRequest, int]:
        """Return the request with added spans that must be rejected, and their number."""
        if self.random.random() >= BAD_SHARE:
            return request, 0
        extended = copy.deepcopy(request)
        scopes = [scoped for group in extended.resource_spans for scoped in group.scope_spans]
        bad_count = self.random.randint(1, 4)
        for _ in range(bad_count):
            span = self.random.choice(scopes).spans.add()
            self.span(span)
            field, value = self.random.choice(BAD_IDS)
            setattr(span, field, value)
        return extended, bad_count


BAD_IDS = (
    ("trace_id", b""),
    ("trace_id", bytes(16)),
    ("trace_id", b"\x01" * 5),
    ("span_id", b""),
    ("span_id", bytes(8)),
    ("span_id", b"\x01" * 3),
)


class Oracle:
    """Every delivery of a seed."""

    def __init__(self, seed: int) -> None:
        self.seed = seed

    def delivery(self, number: int) -> Delivery:
        """Return the delivery, the same at each call."""
        random_requests = DeliveryRequests(self.seed, number)
        request = random_requests.non_empty_request()
        sent, rejected_count = random_requests.with_bad_spans(request)
        drain = LANES[number % len(LANES)]
        is_json, is_compressed = random_requests.random.random() < 0.4, random_requests.random.random() < 0.5
        body = otlp_json(sent) if is_json else sent.SerializeToString(deterministic=True)
        headers = {"content-type": JSON if is_json else PROTOBUF}
        if is_compressed:
            body = gzip.compress(body, 1, mtime=0)
            headers["content-encoding"] = "gzip"
        rows = {(row["TraceId"], row["SpanId"]): row | {"Drain": drain.name} for row in rows_of(request)}
        return Delivery(number, drain, body, headers | credentials(drain, body), rejected_count, rows)

    def number_of(self, trace_id: str) -> int | None:
        """Return the delivery that a trace belongs to, or None if the trace was not issued."""
        if len(trace_id) != 32 or trace_id[:8] != tag_of(self.seed).hex():
            return None
        return int(trace_id[8:24], 16)

    def first_trace_id(self, number: int) -> str:
        """Return the lowest trace id of this delivery and all later ones."""
        return tag_of(self.seed).hex() + f"{number:016x}" + "0" * 8


def recompress(delivery: Delivery) -> Delivery:
    """Return the same content compressed and signed again, as a client may send it again."""
    if "content-encoding" not in delivery.headers:
        return delivery
    body = gzip.compress(gzip.decompress(delivery.body), 9, mtime=delivery.number)
    return replace(delivery, body=body, headers=delivery.headers | credentials(delivery.drain, body))


def tag_of(seed: int) -> bytes:
    """Return the prefix of all trace ids of a seed; never zero."""
    return b"\xa5" + hashlib.sha256(str(seed).encode()).digest()[:3]


def credentials(drain: Drain, body: bytes) -> dict[str, str]:
    """Return the headers that this drain requires for this body."""
    if drain.token:
        return {"authorization": f"Bearer {drain.token}"}
    if drain.secret:
        return {"x-signature": hmac.new(drain.secret.encode(), body, hashlib.sha1).hexdigest()}
    return {}
