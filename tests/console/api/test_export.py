"""Exports over HTTP: their content types, how their end is recognized, and errors without the input."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientPayloadError
from aiohttp.test_utils import TestClient, TestServer

from receiver.console.api.routes import Api
from receiver.console.api.spool import SpoolSpace
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.support import engines
from tests.support.segments import SegmentMaker

Client = TestClient[Any, Any]


@pytest.fixture(scope="module")
def store(engine_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """Yield a store with four spans of today."""
    segment = SegmentMaker(tmp_path_factory.mktemp("segments")).make(0, 0, 0, 0)
    with engines.embedded(engine_dir) as store:
        store.insert(segment.path, token="export#0", query_id="trace-drain-export#0")
        yield store


@pytest.fixture
async def client(store: Store, tmp_path: Path) -> AsyncIterator[Client]:
    with ThreadPoolExecutor(1) as pool, ThreadPoolExecutor(1) as stream_pool:
        api = Api(store, str, dict, dict, dict, pool, stream_pool, SpoolSpace(tmp_path, 0, lambda: 0))
        async with TestClient(TestServer(api.application())) as client:
            yield client


async def content(client: Client, form: str, **query: str) -> tuple[str, bytes]:
    answer = await client.get("/api/v1/export", params={"since": "30d", "format": form, **query})
    assert answer.status == 200, await answer.text()
    return answer.headers["Content-Type"], await answer.read()


async def test_answer_has_every_span_in_each_format(client: Client) -> None:
    lines_type, lines = await content(client, "jsonl")
    csv_type, table = await content(client, "csv")
    otlp_type, messages = await content(client, "otlp")
    parquet_type, file = await content(client, "parquet")

    *rows, end = map(json.loads, lines.splitlines())
    assert (lines_type, len(rows), end) == ("application/x-ndjson", 4, {"end": {"count": 4}})
    assert (csv_type, table.count(b"\n")) == ("text/csv", 5)
    assert json.loads(messages.splitlines()[-1]) == {"end": {"count": messages.count(b"\n") - 1}}
    assert (otlp_type, messages.count(b'"spanId":"')) == ("application/x-ndjson", 4)
    assert (parquet_type, file[:4], file[-4:]) == ("application/vnd.apache.parquet", b"PAR1", b"PAR1")


async def test_answer_without_a_match_has_only_its_end_or_the_line_of_names(client: Client) -> None:
    assert (await content(client, "jsonl", filter="service=absent"))[1] == b'{"end":{"count":0}}\n'
    _, table = await content(client, "csv")
    assert (await content(client, "csv", filter="service=absent"))[1] == table.partition(b"\n")[0] + b"\n"


@pytest.mark.parametrize("form", ["jsonl", "csv", "otlp", "parquet"])
async def test_failure_of_the_store_after_the_first_bytes_ends_the_answer_early(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    lines, parquet = store.lines, store.parquet

    def failing(*arguments: Any) -> Iterator[bytes]:  # noqa: ANN401 - those of the store
        yield from (parquet if form == "parquet" else lines)(*arguments)
        raise StoreTrouble("value 's3cret' cannot be read", code=241, name="MEMORY_LIMIT_EXCEEDED")

    monkeypatch.setattr(store, "parquet" if form == "parquet" else "lines", failing)

    with pytest.raises(ClientPayloadError):
        await content(client, form)


@pytest.mark.parametrize(
    ("query", "error"),
    [
        ({"format": "s3cret"}, "format: expected one of jsonl, csv, otlp, parquet"),
        ({"filter": "sevice=s3cret"}, "filter, column 1: unknown field; did you mean 'service'?"),
        ({"filter": 's3cret=~"("'}, "filter, column 1: unknown field"),
        ({"filter": 'name=~"s3cret("'}, "filter, column 7: the regular expression is not valid"),
        ({"limit": "1"}, "unknown parameter"),
    ],
)
async def test_invalid_export_is_refused_without_its_text(
    client: Client, query: dict[str, str], error: str
) -> None:
    answer = await client.get("/api/v1/export", params=query)

    body = await answer.json()
    assert answer.status == 400
    assert f"{body['detail']}; {body.get('hint', '')}".startswith(error)
    assert "s3cret" not in str(body)
