"""A small shop's traces, and the API with the routes of other tools over them."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from aiohttp.test_utils import TestClient, TestServer
from yarl import URL

from receiver.console.api.query_queue import QUERIES_MAX
from receiver.console.api.route import Routes
from receiver.console.api.routes import Api
from receiver.console.api.source import ApiSourceFor
from receiver.console.api.spool import SpoolSpace
from receiver.engine.store import NO_FILTERS, Store
from receiver.errors import StoreTrouble
from tests.support import engines
from tests.support.fake_clickhouse import NOW_S

Client = TestClient[Any, Any]
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


class BrokenStore:
    """Store whose queries all fail."""

    def __init__(self, code: int) -> None:
        self._code = code

    def marked(self, _mark: str, _filters: Mapping[str, str] = NO_FILTERS) -> AbstractContextManager[None]:
        return nullcontext()

    def rows(self, _statement: str, _parameters: object = None) -> list[Any]:
        raise StoreTrouble("value 'secret of a row' cannot be read", code=self._code)

    lines = rows


@contextmanager
def shop_store(directory: Path) -> Iterator[Store]:
    """Yield the embedded store with the shop's spans."""
    with engines.embedded(directory) as store:
        store.command("INSERT INTO otel_traces FORMAT JSONEachRow\n" + "\n".join(map(json.dumps, shop())))
        yield store


@asynccontextmanager
async def served(
    store: Any,  # noqa: ANN401 - also broken stores
    directory: Path,
    routes: Callable[[ApiSourceFor], Routes],
    token: str = "",
) -> AsyncIterator[Client]:
    """Yield a client of the API with these routes."""
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(QUERIES_MAX) as stream_pool:
        space = SpoolSpace(directory, 0, lambda: 0)
        api = Api(store, lambda: token, dict, dict, dict, pool, stream_pool, space)
        async with TestClient(TestServer(api.application(routes(api.source)))) as client:
            yield client


def url(path: str, **query: object) -> URL:
    """Return a URL whose path is escaped already. A list repeats its parameter."""
    return URL(f"{path}?{urlencode(query, doseq=True)}", encoded=True)
