"""The API answers the reads of a move as the store itself does, and refuses other bodies."""

from __future__ import annotations

import json
from typing import Any

import msgspec

from receiver.console.api.lines import ARROW
from receiver.engine.copying import HOURS_MAX, Read
from receiver.engine.store import Store
from receiver.move.ends import lines_of
from tests.support.api import client_of
from tests.support.cases import each_case
from tests.support.fake_clickhouse import MemoryStore
from tests.support.moves import EPOCH, HOUR, add

PATH = "/api/v1/store/read"


async def test_reads_have_the_answers_of_the_store(source: Store) -> None:
    add(source, 1)
    add(source, 2)
    segments, spans = Read("segments", HOUR), Read("spans", HOUR, EPOCH, (2,))

    async with client_of(source) as client:
        lines = await client.post(PATH, json=msgspec.to_builtins(segments))
        *rows, end = map(json.loads, (await lines.text()).splitlines())
        arrow = await client.post(PATH, json=msgspec.to_builtins(spans))
        content = await arrow.read()

    assert rows == lines_of(source, segments)
    assert [row["epoch"] for row in rows] == [EPOCH, EPOCH]
    assert end == {"end": {"count": 2}}
    assert arrow.content_type == ARROW
    assert content == b"".join(spans.run(source))


@each_case(
    "body",
    [
        {},
        [],
        {"what": "users"},
        {"what": "spans", "table": "otel_traces"},
        {"what": "spans", "hour": -1},
        {"what": "spans", "hour": HOURS_MAX + 1},
        {"what": "spans", "seqs": ["1"]},
    ],
)
async def test_other_bodies_are_refused_without_a_statement(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with client_of(MemoryStore()) as client:
        answer = await client.post(PATH, json=body)
        text = await answer.text()

    assert (answer.status, "expected a JSON object with what, hour, epoch and seqs" in text) == (400, True)
