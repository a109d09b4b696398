"""The ClickHouse endpoint of a real receiver: its address, its token, and its spans."""

from __future__ import annotations

import urllib.error
import urllib.request
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import clickhouse_connect
import pytest

from receiver.http.parser import LINE_BYTES_MAX
from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.bodies import trace_body

CONFIG = '[api]\nclickhouse_token = "tokens-have-16-characters"\n'


def test_endpoint_is_off_by_default(receiver: ReceiverProcess) -> None:
    state = receiver.state()

    assert state["clickhouse"] == ""
    assert "clickhouse" not in state["urls"]


def test_spans_are_read_with_the_token_until_the_receiver_stops(tmp_path: Path) -> None:
    flags = ("--clickhouse-listen", "127.0.0.1:0")
    with ReceiverProcess(tmp_path, *flags, config=CONFIG) as receiver:
        assert receiver.post(trace_body(1)).status == 200
        spans = receiver.spans_once_stored(3)
        address = urlsplit(receiver.state()["urls"]["clickhouse"])
        assert receiver.state()["clickhouse"] == address.netloc
        client = clickhouse_connect.get_client(
            host=address.hostname,
            port=address.port or 0,
            password="tokens-have-16-characters",
            database="otel",
        )
        ids = client.query("SELECT SpanId FROM otel_traces ORDER BY SpanId").result_columns[0]
        client.close()

        assert list(ids) == sorted(span["SpanId"] for span in spans)
        with pytest.raises(urllib.error.HTTPError, match="401"):
            urllib.request.urlopen(f"{address.geturl()}/?query=SELECT+1", timeout=10)
        assert _status_of(address.netloc, f"/?query={'x' * LINE_BYTES_MAX}") == 414
        pid = receiver.state()["pids"]["store"]
        receiver.kill(pid)
        receiver.wait_until_ready()
        # The supervisor holds the socket, so the port stays the same.
        assert _status_of(address.netloc, "/ping") == 200

    assert "tokens-have-16-characters" not in receiver.log()


def _status_of(netloc: str, target: str) -> int:
    connection = HTTPConnection(netloc, timeout=30)
    connection.request("GET", target)
    status = connection.getresponse().status
    connection.close()
    return status
