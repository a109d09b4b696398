"""Generator of realistic spans. The same seed always produces the same spans.

Traces of ten spans: HTTP requests, database calls and functions. Keys repeat; values repeat (routes, methods)
or not (ids, statements). Times are offsets. Trace ids lack their start, which is new in every request.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random
from typing import NamedTuple

Value = str | int | float | bool
Attributes = Mapping[str, Value]

TRACE_SPANS = 10
RESOURCES_MAX = 4

_SERVICES = ("storefront-web", "checkout-api", "inventory", "notification-worker")
_REGIONS = ("iad1", "fra1", "sfo1", "hnd1")
_SCOPES = (("next.js", "15.3.1"), ("@opentelemetry/instrumentation-pg", "0.51.0"))
_ROUTES = ("/api/products/[id]", "/api/cart/[id]/items", "/account/orders/[id]", "/search", "/api/webhooks")
_TABLES = ("products", "orders", "cart_items", "customers", "stock_levels")
_FUNCTIONS = ("renderPage", "loadCart", "priceItems", "authorize", "resolveFlags")
_WEBKIT = "AppleWebKit/605.1.15 (KHTML, like Gecko)"
_IPHONE = "iPhone; CPU iPhone OS 18_1 like Mac OS X"
_AGENTS = (
    f"Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) {_WEBKIT} Chrome/131.0.0.0 Safari/537.36",
    f"Mozilla/5.0 ({_IPHONE}) {_WEBKIT} Version/18.1 Mobile/15E148 Safari/604.1",
    "curl/8.11.0",
)


@dataclass(frozen=True, slots=True)
class Shape:
    spans: int = 520
    attributes: int = 11
    """Attributes per span."""
    events_share: float = 0.1
    """Fraction of spans that failed and have an exception event."""
    projects: int = 20
    cardinality: int = 1_000_000
    """Number of distinct values of identifiers: users, orders, addresses."""
    seed: int = 1


class SpanEvent(NamedTuple):
    at_ns: int
    name: str
    attributes: Attributes


class Span(NamedTuple):
    """One span. Its times are offsets, and its trace id lacks its start."""

    trace_end: bytes
    span_id: bytes
    parent_id: bytes
    name: str
    kind: int
    start_ns: int
    end_ns: int
    attributes: Attributes
    event: SpanEvent | None
    status: int
    message: str = ""
    """Message of the status."""
    trace_start: bytes = b""
    """Start of the trace id. If it is empty, the request sets one start for all of its traces."""


class Resource(NamedTuple):
    attributes: Attributes
    scope: tuple[str, str]
    spans: tuple[Span, ...]

    @property
    def service(self) -> str:
        return str(self.attributes["service.name"])


def delivery(shape: Shape, ordinal: int) -> tuple[Resource, ...]:
    # Seeded by number, so that the verification can generate a single delivery again.
    dice = Random(f"{shape.seed}/{ordinal}")  # noqa: S311 - test data
    count = min(RESOURCES_MAX, -(-shape.spans // TRACE_SPANS))
    shares = [shape.spans // count + (index < shape.spans % count) for index in range(count)]
    clock_ns, resources = 0, []
    for index, share in enumerate(shares):
        spans, clock_ns = _spans(dice, shape, share, clock_ns, index)
        attributes = _resource_attributes(dice, shape, _SERVICES[index])
        resources.append(Resource(attributes, _SCOPES[index % 2], spans))
    return tuple(resources)


def _resource_attributes(dice: Random, shape: Shape, service: str) -> Attributes:
    project = dice.randrange(shape.projects)
    return {
        "service.name": service,
        "platform.projectId": f"prj_{project:06}",
        "platform.deploymentId": f"dpl_{project:06}{dice.randrange(9)}",
        "deployment.environment.name": dice.choice(("production", "preview")),
        "cloud.region": dice.choice(_REGIONS),
        "telemetry.sdk.language": "nodejs",
    }


def _spans(
    dice: Random, shape: Shape, count: int, clock_ns: int, resource: int
) -> tuple[tuple[Span, ...], int]:
    spans: list[Span] = []
    trace_end, root = b"", b""
    for index in range(count):
        if index % TRACE_SPANS == 0:
            # The first byte differs in each of up to 256 traces, so that they do not share 16 digits.
            trace = index // TRACE_SPANS * RESOURCES_MAX + resource
            trace_end, root = bytes([trace % 256]) + dice.randbytes(8), b""
        clock_ns += dice.randrange(400_000)
        spans.append(_span(dice, shape, clock_ns, trace_end, root))
        root = root or spans[-1].span_id
    return tuple(spans), clock_ns


def _span(dice: Random, shape: Shape, start_ns: int, trace_end: bytes, root: bytes) -> Span:
    make, kind = (
        (http_request, 2)
        if not root
        else dice.choice(((sql_statement, 3), (sql_statement, 3), (function_call, 1)))
    )
    name, attributes = make(dice, shape)
    end_ns = start_ns + dice.randrange(80_000_000)
    has_failed = dice.random() < shape.events_share
    return Span(
        trace_end,
        # A span id of only zeros is invalid.
        dice.randbytes(7) + b"\x01",
        root,
        name,
        kind,
        start_ns,
        end_ns,
        _sized(dice, shape, attributes),
        SpanEvent(end_ns, "exception", _exception(dice)) if has_failed else None,
        2 if has_failed else dice.randrange(2),
    )


def _sized(dice: Random, shape: Shape, attributes: dict[str, Value]) -> Attributes:
    """Return `shape.attributes` attributes."""
    limited = dict(list(attributes.items())[: shape.attributes])
    for index in range(len(limited), shape.attributes):
        limited[f"app.extra.{index}"] = f"value {dice.randrange(shape.cardinality)}"
    return limited


def http_request(dice: Random, shape: Shape) -> tuple[str, dict[str, Value]]:
    """Return name and attributes of a request that a service answers."""
    method, route = dice.choice(("GET", "GET", "GET", "POST")), dice.choice(_ROUTES)
    return f"{method} {route}", {
        "http.request.method": method,
        "http.route": route,
        "url.path": route.replace("[id]", f"{dice.randrange(shape.cardinality):08x}"),
        "url.scheme": "https",
        "server.address": "shop.example.com",
        "server.port": 443,
        "http.response.status_code": dice.choice((200, 200, 304, 404)),
        "user_agent.original": dice.choice(_AGENTS),
        "client.address": f"203.0.{dice.randrange(114)}.{dice.randrange(256)}",
        "http.response.body.size": dice.randrange(90_000),
        "platform.cache.hit": dice.choice((True, False)),
    }


def sql_statement(dice: Random, shape: Shape) -> tuple[str, dict[str, Value]]:
    """Return name and attributes of a call of a database."""
    table, operation = dice.choice(_TABLES), dice.choice(("SELECT", "SELECT", "INSERT", "UPDATE"))
    row_id = dice.randrange(shape.cardinality)
    text = {
        "SELECT": f"SELECT id, name, price_cents, updated_at FROM {table} WHERE id = {row_id} LIMIT 50",  # noqa: S608 - never run
        "INSERT": f"INSERT INTO {table} (id, name, quantity) VALUES ({row_id}, $1, $2) RETURNING id",  # noqa: S608 - as above
        "UPDATE": f"UPDATE {table} SET quantity = quantity - $1 WHERE id = {row_id}",  # noqa: S608 - as above
    }[operation]
    return f"{operation} {table}", {
        "db.system.name": "postgresql",
        "db.namespace": "shop",
        "db.collection.name": table,
        "db.operation.name": operation,
        "db.query.text": text,
        "server.address": "ep-cool-darkness-123456.eu-central-1.aws.example.tech",
        "server.port": 5432,
        "db.response.returned_rows": dice.randrange(50),
        # Eighths are exact in binary and in decimal, so the stored text can be compared.
        "db.client.wait_ms": dice.randrange(1, 100_000) / 8,
        "db.client.pooled": True,
        "thread.id": dice.randrange(16),
    }


def function_call(dice: Random, shape: Shape) -> tuple[str, dict[str, Value]]:
    """Return name and attributes of a call within a service."""
    name = dice.choice(_FUNCTIONS)
    return name, {
        "code.function.name": name,
        "code.file.path": f"/var/task/.next/server/chunks/{name}.js",
        "code.line.number": dice.randrange(900),
        "app.user.id": f"usr_{dice.randrange(shape.cardinality):012x}",
        "app.tenant": dice.choice(("acme", "globex", "initech")),
        "app.flag.new_checkout": dice.choice((True, False)),
        "process.memory.used_mb": dice.randrange(1, 4_000) / 8,
        "process.cpu.utilization": dice.randrange(1, 1_024) / 1_024,
        "faas.coldstart": dice.randrange(20) == 0,
        "faas.invocation_id": f"{dice.getrandbits(64):016x}",
        "next.span_type": "AppRender.getBodyResult",
    }


def _exception(dice: Random) -> Attributes:
    message = "Cannot read properties of undefined (reading 'id')"
    return {
        "exception.type": dice.choice(("TypeError", "TimeoutError")),
        "exception.message": message,
        "exception.stacktrace": f"TypeError: {message}\n    at priceItems (/var/task/chunks/cart.js:"
        f"{dice.randrange(400)}:17)\n    at async loadCart (/var/task/chunks/cart.js:88:5)",
    }
