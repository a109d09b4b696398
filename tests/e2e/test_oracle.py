"""Random requests in protobuf and JSON: every field is read back from the store and compared."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.e2e.expected import rows_of
from tests.e2e.random_requests import Requests, otlp_json
from tests.e2e.receiver_process import ReceiverProcess

SEED = 20_261_121
REQUESTS = 240
"""Requests, of which every other one is sent as JSON."""

Key = tuple[str, str]


def key_of(row: dict[str, Any]) -> Key:
    return row["TraceId"], row["SpanId"]


def test_every_field_is_stored_as_sent(tmp_path: Path) -> None:
    requests = Requests(SEED)
    expected: dict[Key, dict[str, Any]] = {}
    with ReceiverProcess(tmp_path) as running:
        for number in range(REQUESTS):
            sent = requests.request()
            if number % 2:
                reply = running.post(otlp_json(sent), "application/json")
            else:
                reply = running.post(sent.SerializeToString(), "application/x-protobuf")
            assert reply.status == 200, reply.body
            expected |= {key_of(row): row for row in rows_of(sent)}
        stored = running.spans_once_stored(len(expected))

    assert sorted(map(key_of, stored)) == sorted(expected)
    for row in stored:
        columns = expected[key_of(row)]
        assert {column: row[column] for column in columns} == columns
