"""Exports over HTTP: their content types, how their end is recognized, and errors without the input."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from aiohttp import ClientPayloadError

from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from tests.support.api import Client
from tests.support.cases import each_case


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


@each_case("form", ["jsonl", "csv", "otlp", "parquet"])
async def test_failure_of_the_store_after_the_first_bytes_ends_the_answer_early(
    client: Client, store: Store, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    method = "parquet" if form == "parquet" else "lines"
    whole = getattr(store, method)

    def failing(*arguments: Any) -> Iterator[bytes]:  # noqa: ANN401 - those of the store
        yield from whole(*arguments)
        raise StoreTrouble("value 's3cret' cannot be read", code=241, name="MEMORY_LIMIT_EXCEEDED")

    with monkeypatch.context() as patched:
        patched.setattr(store, method, failing)
        with pytest.raises(ClientPayloadError):
            await content(client, form)


@each_case(
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
