"""Every field of random requests, sent as protobuf and as JSON, is read back from the store and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.expected import rows_of
from tests.e2e.requests_at_random import Requests, otlp_json
from tests.e2e.running import Row, Running

SEED = 20_261_121
REQUESTS = 120

Key = tuple[str, str]


@dataclass(frozen=True)
class Compared:
    """What was sent, as the oracle reads it, and what was kept."""

    expected: dict[Key, dict[str, Any]]
    stored: list[Row]


def key_of(row: dict[str, Any]) -> Key:
    return row["TraceId"], row["SpanId"]


@pytest.fixture(scope="module", params=["protobuf", "json"])
def compared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    requests = Requests(SEED)
    with Running(tmp_path_factory.mktemp(f"oracle-{request.param}")) as running:
        expected: dict[Key, dict[str, Any]] = {}
        for sent in itertools.islice(iter(requests.request, None), REQUESTS):
            body = sent.SerializeToString() if request.param == "protobuf" else otlp_json(sent)
            kind = "application/x-protobuf" if request.param == "protobuf" else "application/json"
            reply = running.post(body, kind)
            assert reply.status == 200, reply.body
            expected |= {key_of(row): row for row in rows_of(sent)}
        yield Compared(expected, running.spans_once_stored(len(expected)))


def test_every_span_is_stored_once(compared: Compared) -> None:
    assert sorted(map(key_of, compared.stored)) == sorted(compared.expected)


def test_every_field_is_stored_as_sent(compared: Compared) -> None:
    for row in compared.stored:
        wanted = compared.expected[key_of(row)]
        assert {column: row[column] for column in wanted} == wanted
