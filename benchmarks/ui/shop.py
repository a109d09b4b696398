"""Spans of a web shop whose newest deployment is worse, and a trace of any size, as OTLP requests in JSON."""

from __future__ import annotations

import random
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import orjson

Json = dict[str, Any]

SHOP_S = 3_500
"""How long ago the shop's first request was."""
NEW_DEPLOYMENT_S = 1_500
"""How long ago the worse deployment began."""
SHOP_SHARE = 0.8
"""Share of the requests that the shop answers; its blog answers the others."""
FAILED_BEFORE, FAILED_NOW = 0.01, 0.08
"""Share of the checkouts that fail, before and since the worse deployment."""
DEADLOCK_SHARE = 0.7
"""Share of the failures that are deadlocks; the others are time-outs."""
FAILED_EVERY = 997
"""Distance between failed spans of the large trace."""
PARAMETERS: Mapping[str, Mapping[str, str]] = {
    "search": {"q": "service=web http.route=/checkout", "selection": "status=error"},
    "sql": {
        "q": "SELECT toStartOfInterval(Timestamp, INTERVAL 5 MINUTE) AS at,\n"
        "    quantile(0.95)(Duration) / 1e6 AS p95_ms, quantile(0.5)(Duration) / 1e6 AS p50_ms\n"
        "FROM otel_traces WHERE ParentSpanId = ''\nGROUP BY at ORDER BY at"
    },
    "compare": {"a": "dpl_77a", "b": "dpl_8f2", "project": "prj_shop"},
}
"""Parameters with which a page shows its answer about the shop, by the page's name."""
REQUEST_SPANS = 5_000
SERVICES = ("web", "cart", "db", "auth", "queue")
SERVER, CLIENT = 2, 3
ERROR = 2


class Origin(NamedTuple):
    """Resource of spans."""

    service: str
    project: str
    deployment: str


class Batch:
    """Spans by resource, until they are sent."""

    def __init__(self) -> None:
        self._spans: dict[Origin, list[Json]] = defaultdict(list)

    def add(self, origin: Origin, span: Json) -> None:
        """Add a span."""
        self._spans[origin].append(span)

    def __len__(self) -> int:
        return sum(map(len, self._spans.values()))

    def body(self) -> bytes:
        """Return a request with all spans, and forget them."""
        groups = [
            {
                "resource": {"attributes": _resource(origin)},
                "scopeSpans": [{"scope": {"name": "shop"}, "spans": spans}],
            }
            for origin, spans in self._spans.items()
        ]
        self._spans.clear()
        return orjson.dumps({"resourceSpans": groups})


def shop(traces: int) -> Iterator[bytes]:
    """Yield requests with traces of the last hour."""
    rng, now_s, batch = random.Random(7), time.time(), Batch()  # noqa: S311 - repeatable spans
    for number in range(traces):
        _checkout(rng, batch, now_s - SHOP_S * (1 - number / traces), now_s)
        if len(batch) > REQUEST_SPANS:
            yield batch.body()
    yield batch.body()


def large_trace(trace_id: str, spans: int) -> Iterator[bytes]:
    """Yield requests with one trace, in which most spans follow the span before."""
    rng, batch = random.Random(3), Batch()  # noqa: S311 - as above
    begin_ns = int((time.time() - 60) * 1e9)
    starts, durations = [0], [10**10]
    for number in range(spans):
        parent = max(0, number - 1 - int(rng.expovariate(1 / 8)))
        if number:
            start = starts[parent] + int(rng.random() * durations[parent] * 0.5)
            starts.append(start)
            durations.append(max(1_000, int((starts[parent] + durations[parent] - start) * rng.random())))
        span = {
            "traceId": trace_id,
            "spanId": f"{number + 1:016x}",
            "parentSpanId": f"{parent + 1:016x}" if number else "",
            "name": f"operation {number % 97}",
            "kind": 1,
            **_times(begin_ns + starts[number], durations[number]),
            **_failure_and_events(number, begin_ns + starts[number], durations[number]),
        }
        batch.add(Origin(SERVICES[number % 5], "prj_large", "dpl_1"), span)
        if len(batch) >= REQUEST_SPANS:
            yield batch.body()
    yield batch.body()


class _Request:
    """The spans of one request of a customer."""

    def __init__(self, rng: random.Random, batch: Batch, project: str, deployment: str) -> None:
        self._rng = rng
        self._batch = batch
        self._trace_id = f"{rng.getrandbits(128):032x}"
        self._place = (project, deployment)

    def span(  # noqa: PLR0913 - the fields of a span
        self,
        service: str,
        name: str,
        kind: int,
        *,
        start_s: float,
        seconds: float,
        parent: str,
        attributes: dict[str, str | int],
        failure: str = "",
    ) -> str:
        """Add a span, and return its id."""
        span_id = f"{self._rng.getrandbits(64):016x}"
        start_ns, duration_ns = int(start_s * 1e9), int(seconds * 1e9)
        span = {
            "traceId": self._trace_id,
            "spanId": span_id,
            "parentSpanId": parent,
            "name": name,
            "kind": kind,
            "attributes": _attributes(attributes),
            **_times(start_ns, duration_ns),
            **(_failure(failure, start_ns + duration_ns * 9 // 10) if failure else {}),
        }
        self._batch.add(Origin(service, *self._place), span)
        return span_id


def _checkout(rng: random.Random, batch: Batch, start_s: float, now_s: float) -> None:
    """Add a request to the shop, or to its blog: a page that loads a cart from a database."""
    is_new = now_s - start_s < NEW_DEPLOYMENT_S
    project = "prj_shop" if rng.random() < SHOP_SHARE else "prj_blog"
    deployment = ("dpl_8f2" if is_new else "dpl_77a") if project == "prj_shop" else "dpl_b1"
    is_worse = deployment == "dpl_8f2"
    route = rng.choice(["/", "/cart", "/checkout", "/products/:id"])
    db_s = rng.lognormvariate(-3.2, 0.6) * (1.6 if is_worse and route == "/checkout" else 1)
    cart_s = db_s + rng.lognormvariate(-4.5, 0.4)
    total_s = cart_s + rng.lognormvariate(-4, 0.5)
    is_failed = route == "/checkout" and rng.random() < (FAILED_NOW if is_worse else FAILED_BEFORE)
    deadlock = f"deadlock detected on row {rng.randrange(1_000)}"
    failure = deadlock if rng.random() < DEADLOCK_SHARE else "timeout after 5000 ms"
    if not is_failed:
        failure = ""
    made = _Request(rng, batch, project, deployment)
    root = made.span(
        "web",
        f"GET {route}",
        SERVER,
        start_s=start_s,
        seconds=total_s,
        parent="",
        attributes={
            "http.request.method": "GET",
            "http.route": route,
            "http.response.status_code": 500 if failure else 200,
            "user.id": f"u{rng.randrange(500)}",
        },
        failure="upstream failed" if failure else "",
    )
    call = made.span(
        "web",
        "call cart",
        CLIENT,
        start_s=start_s + 0.002,
        seconds=cart_s,
        parent=root,
        attributes={"server.address": "cart"},
    )
    cart = made.span(
        "cart",
        "load cart",
        SERVER,
        start_s=start_s + 0.003,
        seconds=cart_s - 0.002,
        parent=call,
        attributes={"rpc.method": "LoadCart"},
        failure=failure,
    )
    for number in range(rng.choice([1, 1, 2, 5])):
        _query(made, cart, start_s + 0.004 + number * db_s / 6, db_s / 6 if number else db_s / 2)
    if route == "/checkout" and not is_failed:
        _payment(made, root, start_s + cart_s, total_s - cart_s)


def _payment(made: _Request, parent: str, start_s: float, seconds: float) -> None:
    call = made.span(
        "web",
        "call payments",
        CLIENT,
        start_s=start_s,
        seconds=seconds * 0.9,
        parent=parent,
        attributes={"server.address": "payments"},
    )
    made.span(
        "payments",
        "charge card",
        SERVER,
        start_s=start_s + seconds * 0.1,
        seconds=seconds * 0.7,
        parent=call,
        attributes={"rpc.method": "Charge"},
    )


def _query(made: _Request, parent: str, start_s: float, seconds: float) -> None:
    attributes: dict[str, str | int] = {
        "db.system.name": "postgresql",
        "db.operation.name": "SELECT",
        "db.query.text": "SELECT * FROM cart WHERE id = $1",
    }
    made.span(
        "cart", "SELECT cart", CLIENT, start_s=start_s, seconds=seconds, parent=parent, attributes=attributes
    )


def _times(start_ns: int, duration_ns: int) -> Json:
    return {"startTimeUnixNano": str(start_ns), "endTimeUnixNano": str(start_ns + duration_ns)}


def _failure(message: str, at_ns: int) -> Json:
    kind = "DeadlockError" if "deadlock" in message else "TimeoutError"
    described = {"exception.type": kind, "exception.message": message}
    event = {"name": "exception", "timeUnixNano": str(at_ns), "attributes": _attributes(described)}
    return {"status": {"code": ERROR, "message": message}, "events": [event]}


def _failure_and_events(number: int, start_ns: int, duration_ns: int) -> Json:
    """Return the status and the events of a span in a large trace: each bar has marks."""
    failed = _failure("failed", start_ns) if number % FAILED_EVERY == 1 else {}
    logged = [
        {"name": f"step {step}", "timeUnixNano": str(start_ns + duration_ns * step // 3)} for step in (1, 2)
    ]
    return {**failed, "events": [*failed.get("events", []), *logged]}


def _resource(origin: Origin) -> list[Json]:
    return _attributes(
        {
            "service.name": origin.service,
            "platform.projectId": origin.project,
            "platform.deploymentId": origin.deployment,
        }
    )


def _attributes(values: dict[str, Any]) -> list[Json]:
    return [
        {"key": key, "value": {"intValue": str(value)} if isinstance(value, int) else {"stringValue": value}}
        for key, value in values.items()
    ]
