"""Random requests in protobuf and JSON: every field is read back from the store and compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from tests.e2e.expected import rows_of
from tests.e2e.random_requests import Requests, otlp_json
from tests.e2e.receiver_process import ReceiverProcess, Row

SEED = 20_261_121
REQUESTS = 120

Key = tuple[str, str]


@dataclass(frozen=True)
class Compared:
    """Expected rows according to the oracle, and the stored rows."""

    expected: dict[Key, dict[str, Any]]
    stored: list[Row]


def key_of(row: dict[str, Any]) -> Key:
    return row["TraceId"], row["SpanId"]


@pytest.fixture(scope="module", params=["protobuf", "json"])
def compared(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Compared]:
    requests = Requests(SEED)
    with ReceiverProcess(tmp_path_factory.mktemp(f"oracle-{request.param}")) as running:
        expected: dict[Key, dict[str, Any]] = {}
        for sent in itertools.islice(iter(requests.request, None), REQUESTS):
            body = sent.SerializeToString() if request.param == "protobuf" else otlp_json(sent)
            content_type = "application/x-protobuf" if request.param == "protobuf" else "application/json"
            reply = running.post(body, content_type)
            assert reply.status == 200, reply.body
            expected |= {key_of(row): row for row in rows_of(sent)}
        yield Compared(expected, running.spans_once_stored(len(expected)))


def test_every_span_is_stored_once(compared: Compared) -> None:
    assert sorted(map(key_of, compared.stored)) == sorted(compared.expected)


def test_every_field_is_stored_as_sent(compared: Compared) -> None:
    for row in compared.stored:
        expected = compared.expected[key_of(row)]
        assert {column: row[column] for column in expected} == expected
