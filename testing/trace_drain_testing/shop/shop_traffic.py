"""Requests of a web shop as spans: three services in two projects, and a release with a worse operation.

The service `web` answers customers. It calls `cart` and `payments`, which belong to another project, so that
traces cross services and projects. Attributes are those of the load harness's spans.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple

from trace_drain_testing.emulator.drains_traffic import ServiceSpans, Traffic
from trace_drain_testing.load.traffic import (
    Attributes,
    Resource,
    Shape,
    Span,
    SpanEvent,
    Value,
    function_call,
    http_request,
    sql_statement,
)

MS_NS = 10**6
INTERNAL, SERVER, CLIENT = 1, 2, 3
UNSET, FAILED = 0, 2
SHAPE = Shape(cardinality=5_000)
WEB_PROJECT, BACKEND_PROJECT = "prj_shop", "prj_backend"
PROJECT_OF = {"web": WEB_PROJECT, "cart": BACKEND_PROJECT, "payments": BACKEND_PROJECT}
"""Service → project."""
SCOPE_OF = {"web": ("next.js", "15.3.1"), "cart": ("fastify", "5.2.0"), "payments": ("fastify", "5.2.0")}
ROUTES = (("GET", "/"), ("GET", "/products/[id]"), ("GET", "/cart"), ("POST", "/checkout"))
ROUTE_WEIGHTS = (4, 5, 2, 3)
CHECKOUT = "/checkout"
WORSE_OPERATION = "applyCoupons"
COUPONS_MS, COUPONS_WORSE_MS = 12.0, 240.0
"""Median duration of the operation that regresses, before and in the worse release."""
FAILED_SHARE, FAILED_WORSE_SHARE = 0.005, 0.12
"""Fraction of the checkouts that fail, before and in the worse release."""
CONNECT_NS = 400_000
"""Time on the network between two services, each way."""
SPREAD = 0.35
"""Standard deviation of the logarithm of a duration."""
REQUEST_ID, PLATFORM_ID = "platform.requestId", "platform.id"
"""Span attributes that join a request's spans with its deployment event."""


class Release(NamedTuple):
    deployment: str
    is_worse: bool = False


@dataclass
class CustomerRequest:
    """One request of a customer: its spans by service, and the facts for its deployment event."""

    request_id: str
    platform_id: str
    trace_half: bytes
    start_ns: int
    """Offset of the request from the base time of its delivery, as for all other times here."""
    attributes: dict[str, Value] = field(default_factory=dict)
    """Attributes of its root span."""
    failure: str = ""
    spans: dict[str, list[Span]] = field(default_factory=lambda: defaultdict(list))

    @property
    def status(self) -> int:
        return int(self.attributes["http.response.status_code"])


class _Writer:
    """Writer of the spans of one request, in the order of time."""

    def __init__(self, dice: Random, request: CustomerRequest) -> None:
        self.dice = dice
        self.request = request
        self.now_ns = request.start_ns

    def new_id(self) -> bytes:
        # A span id of only zeros is invalid.
        return self.dice.randbytes(7) + b"\x01"

    def wait_ms(self, median_ms: float) -> None:
        """Let a random time pass."""
        self.now_ns += int(self.dice.lognormvariate(0, SPREAD) * median_ms * MS_NS)

    def add(  # noqa: PLR0913 - the fields of a span
        self,
        service: str,
        kind: int,
        name: str,
        attributes: Attributes,
        *,
        span_id: bytes,
        parent: bytes,
        start_ns: int,
        failure: str = "",
    ) -> None:
        """Add a span that ends now."""
        event = SpanEvent(self.now_ns, "exception", _exception(failure)) if failure else None
        half, status = self.request.trace_half, FAILED if failure else UNSET
        self.request.spans[service].append(
            Span(half, span_id, parent, name, kind, start_ns, self.now_ns, attributes, event, status, failure)
        )


def shop_request(dice: Random, start_ns: int, *, is_worse: bool) -> CustomerRequest:
    """Return a request, from the customer to the databases."""
    method, route = dice.choices(ROUTES, ROUTE_WEIGHTS)[0]
    request = _new_request(dice, start_ns, method, route)
    writer, root = _Writer(dice, request), dice.randbytes(7) + b"\x01"
    writer.wait_ms(2)
    _call(writer, root, "cart", "GET /cart/[id]", statements=dice.choice((1, 1, 2, 4)))
    if route == CHECKOUT:
        request.failure = _apply_coupons(writer, root, is_worse=is_worse)
        if not request.failure:
            _call(writer, root, "payments", "POST /charge", statements=1)
    _render(writer, root)
    if request.failure:
        request.attributes["http.response.status_code"] = 500
    writer.add(
        "web",
        SERVER,
        f"{method} {route}",
        request.attributes,
        span_id=root,
        parent=b"",
        start_ns=start_ns,
        failure=request.failure,
    )
    return request


def traffic_of(
    requests: Sequence[CustomerRequest], deployment_of: dict[str, str], half: bytes, base_ns: int
) -> Traffic:
    """Return the spans of requests for a delivery. `deployment_of`: deployments by project."""
    spans: dict[str, list[Span]] = defaultdict(list)
    for request in requests:
        for service, added in request.spans.items():
            spans[service] += added
    sources = [
        ServiceSpans(
            PROJECT_OF[service],
            deployment_of[PROJECT_OF[service]],
            "production",
            "node",
            Resource(_resource(service), SCOPE_OF[service], tuple(spans[service])),
        )
        for service in PROJECT_OF
        if spans[service]
    ]
    return Traffic(tuple(sources), half, base_ns)


def _new_request(dice: Random, start_ns: int, method: str, route: str) -> CustomerRequest:
    request_id = f"req_{dice.getrandbits(64):016x}"
    platform_id = f"iad1::{dice.getrandbits(40):010x}"
    _, attributes = http_request(dice, SHAPE)
    attributes |= {
        "http.request.method": method,
        "http.route": route,
        "url.path": route.replace("[id]", f"{dice.randrange(SHAPE.cardinality):08x}"),
        "http.response.status_code": 200,
        REQUEST_ID: request_id,
        PLATFORM_ID: platform_id,
    }
    return CustomerRequest(request_id, platform_id, dice.randbytes(8), start_ns, attributes)


def _call(writer: _Writer, parent: bytes, service: str, name: str, *, statements: int) -> None:
    """Add a call of another service, the span of that service, and its database calls."""
    client, server = writer.new_id(), writer.new_id()
    called_ns = writer.now_ns
    writer.now_ns += CONNECT_NS
    answered_ns = writer.now_ns
    writer.wait_ms(1)
    for _ in range(statements):
        begun_ns = writer.now_ns
        statement, attributes = sql_statement(writer.dice, SHAPE)
        writer.wait_ms(6)
        writer.add(
            service, CLIENT, statement, attributes, span_id=writer.new_id(), parent=server, start_ns=begun_ns
        )
    method, _, route = name.partition(" ")
    served: Attributes = {"http.request.method": method, "http.route": route}
    writer.add(service, SERVER, name, served, span_id=server, parent=client, start_ns=answered_ns)
    writer.now_ns += CONNECT_NS
    sent: Attributes = {"http.request.method": method, "server.address": service}
    writer.add("web", CLIENT, f"call {service}", sent, span_id=client, parent=parent, start_ns=called_ns)


def _apply_coupons(writer: _Writer, parent: bytes, *, is_worse: bool) -> str:
    """Add the operation that is slow in the worse release. Return its error; empty if it succeeded."""
    begun_ns, dice = writer.now_ns, writer.dice
    writer.wait_ms(COUPONS_WORSE_MS if is_worse else COUPONS_MS)
    has_failed = dice.random() < (FAILED_WORSE_SHARE if is_worse else FAILED_SHARE)
    failure = f"coupon {dice.randrange(900) + 100} has no expiry date" if has_failed else ""
    _, attributes = function_call(dice, SHAPE)
    attributes |= {"code.function.name": WORSE_OPERATION, "app.coupons": dice.randrange(1, 5)}
    writer.add(
        "web",
        INTERNAL,
        WORSE_OPERATION,
        attributes,
        span_id=writer.new_id(),
        parent=parent,
        start_ns=begun_ns,
        failure=failure,
    )
    return failure


def _render(writer: _Writer, parent: bytes) -> None:
    begun_ns = writer.now_ns
    name, attributes = function_call(writer.dice, SHAPE)
    writer.wait_ms(9)
    writer.add("web", INTERNAL, name, attributes, span_id=writer.new_id(), parent=parent, start_ns=begun_ns)


def _exception(message: str) -> Attributes:
    stack = f"CouponError: {message}\n    at {WORSE_OPERATION} (/var/task/chunks/coupons.js:88:17)"
    return {"exception.type": "CouponError", "exception.message": message, "exception.stacktrace": stack}


def _resource(service: str) -> Attributes:
    return {"service.name": service, "cloud.region": "iad1", "telemetry.sdk.language": "nodejs"}
