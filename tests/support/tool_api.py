"""A small shop's traces in the embedded store, for tests of the routes for other tools."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from yarl import URL

from receiver.engine.store import Store
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S

Row = dict[str, Any]

START_S = NOW_S - 600
"""Start of the first trace."""
RANGE_S = (START_S - 60, START_S + 300)
"""A time range with all traces."""
CHECKOUT, CART, UNKNOWN = "00000000000000aa" + "1" * 16, "b" * 32, "c" * 32
ROOT, CHARGE, QUERY, ORPHAN = (f"{number:016x}" for number in (1, 2, 3, 4))


def _at(offset_s: int) -> str:
    return f"{datetime.fromtimestamp(START_S + offset_s, UTC):%Y-%m-%d %H:%M:%S}.000123456"


def _span(service: str, name: str, span_id: str, parent: str, offset_s: int, **more: Any) -> Row:  # noqa: ANN401 - any column
    return {
        "Timestamp": _at(offset_s),
        "TraceId": CHECKOUT,
        "SpanId": span_id,
        "ParentSpanId": parent,
        "ServiceName": service,
        "SpanName": name,
        "SpanKind": "Server",
        "Duration": 1_500_000_000,
        "StatusCode": "Unset",
        "ResourceAttributes": {"service.name": service, "host.name": f"{service}-1"},
        **more,
    }


def shop() -> list[Row]:
    """Return the rows: a checkout of three services with an orphan, which is stored twice, and a cart."""
    link: Row = {
        "Links.TraceId": [CART],
        "Links.SpanId": [ROOT],
        "Links.TraceState": [""],
        "Links.Attributes": [{}],
    }
    event: Row = {
        "Events.Timestamp": [_at(2)],
        "Events.Name": ["exception"],
        "Events.Attributes": [{"exception.type": "Declined"}],
    }
    orphan = _span("db", "SELECT", ORPHAN, "00000000000000ff", 3, SpanKind="Unspecified")
    return [
        _span("web", "GET /checkout", ROOT, "", 0, SpanAttributes={"http.status_code": "500"}, **link),
        _span(
            *("pay", "charge", CHARGE, ROOT, 1),
            **event,
            StatusCode="Error",
            StatusMessage="declined",
            ScopeName="stripe",
            SpanAttributes={"http.status_code": "402", "card": "visa"},
        ),
        _span("db", "SELECT", QUERY, CHARGE, 2, SpanKind="Client", Duration=999),
        orphan,
        orphan,
        _span("web", "GET /cart", ROOT, "", 60, TraceId=CART, SpanAttributes={"http.status_code": "200"}),
    ]


@contextmanager
def shop_store(directory: Path) -> Iterator[Store]:
    """Yield the embedded store with the shop's spans."""
    with engines.embedded(directory) as store:
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, shop())))
        yield store


def url(path: str, **query: object) -> URL:
    """Return a URL whose path is escaped already. A list repeats its parameter."""
    return URL(f"{path}?{urlencode(query, doseq=True)}", encoded=True)
