"""Tests of the load harness: sending, retries, and its report."""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from receiver.cli import main
from receiver.supervisor.self_signed import self_signed
from tests.doubles.defective_receiver import STALL_S, DefectiveReceiver, listening
from tests.support.cases import each_case
from trace_drain_testing.load.answer import NotHttp, ParsedAnswer, answer_in
from trace_drain_testing.load.histogram import Histogram
from trace_drain_testing.load.report import progress_line
from trace_drain_testing.load.requests import LoadRequest, Origin
from trace_drain_testing.load.tally import Tally

SMALL = ("--spans", "10", "--connections", "1")


def load(url: str, *options: str) -> Result:
    return CliRunner().invoke(main, ["load", url, *SMALL, *options])


def load_report(url: str, *options: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(load(url, "--format", "json", *options).stdout)
    return report


def https(server: DefectiveReceiver) -> str:
    return server.url.replace("http:", "https:")


@pytest.mark.parametrize("failure", ["429,0", "502,0", "503,0", "504,0", "reset"])
def test_failed_request_is_retried_with_the_same_bytes(failure: str) -> None:
    with listening(failure, failure) as server:
        report = load_report(server.url, "--requests", "2")

    assert server.bodies[0] == server.bodies[1] == server.bodies[2] != server.bodies[3]
    assert report["requests"] == 2
    assert report["retries"] == 2


def test_request_is_retried_after_a_timeout() -> None:
    with listening("stall") as server:
        report = load_report(server.url, "--requests", "1", "--timeout", str(STALL_S / 2))

    assert len(server.bodies) >= 2
    assert len(set(server.bodies)) == 1
    assert report["answers"]["time-out"] >= 1
    assert report["requests"] == 1


@pytest.mark.parametrize("status", ["400", "401", "413", "500"])
def test_refused_request_is_not_retried(status: str) -> None:
    with listening(status) as server:
        result = load(server.url, "--requests", "2", "--format", "json")

    report = json.loads(result.stdout)
    assert len(server.bodies) == 2
    assert report["answers"] == {"200": 1, status: 1}
    assert report["refused"] == 1
    assert result.exit_code == 1


def test_report_uses_the_singular_for_a_count_of_1() -> None:
    with listening("200") as server:
        result = load(server.url, "--requests", "1", "--spans", "1")

    assert "acknowledged      1 request, 1 span in " in result.stdout


def test_request_is_given_up_if_retry_after_exceeds_the_patience() -> None:
    with listening("503,3600") as server:
        result = load(server.url, "--requests", "1", "--format", "json")

    assert len(server.bodies) == 1
    assert json.loads(result.stdout)["given_up"] == 1
    assert result.exit_code == 1


def test_every_attempt_after_the_first_counts_as_a_retry() -> None:
    with listening() as server:
        url = server.url

    report = load_report(url, "--requests", "1", "--patience", "3")

    tries = report["answers"]["connection refused"]
    assert tries >= 2
    assert report["retries"] == tries - 1
    assert report["given_up"] == 1


def test_tls_handshake_that_hangs_times_out() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        report = load_report(url, "--requests", "1", "--timeout", "0.2", "--patience", "2")

    assert list(report["answers"]) == ["time-out"]
    assert report["retries"] == report["answers"]["time-out"] - 1
    assert report["given_up"] == 1


def test_refused_connection_is_reported_and_latency_is_a_dash() -> None:
    with listening() as server:
        url = server.url
    options = ("--requests", "1", "--patience", "0.1")

    result, report = load(url, *options), load_report(url, *options)

    assert result.exit_code == 1
    assert report["answers"] == {"connection refused": 1}
    assert set(report["latency_ms"].values()) == {None}
    dash = "\N{EN DASH}"
    assert f"p50 {dash}  p90 {dash}  p99 {dash}  p99.9 {dash}  max {dash}" in result.stdout
    assert f"p50 {dash}  p99 {dash}" in progress_line(1.0, Tally(spans_per_request=10))


def test_progress_line_shows_the_latest_error_until_requests_succeed_again() -> None:
    tally = Tally(spans_per_request=10)
    request = LoadRequest(0, Origin(0, 0), b"", b"")

    tally.failed("connection refused")
    failing = progress_line(1.0, tally)
    tally.next_second()
    waiting = progress_line(2.0, tally)
    tally.answered(ParsedAnswer(503, b"the journal\nis full"))
    refusing = progress_line(3.0, tally)
    tally.next_second()
    tally.accepted(request, ParsedAnswer(200, b""), 0.1)
    tally.next_second()
    recovered = progress_line(4.0, tally)

    assert failing.endswith("latest: connection refused")
    assert waiting.endswith("latest: connection refused")
    assert refusing.endswith("latest: 503 the journal is full")
    assert "latest" not in recovered


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """Return the TLS context of a server with a self-signed certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path_factory.mktemp("tls")))
    return context


def test_untrusted_certificate_ends_the_run_at_once(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        result = load(https(server), "--requests", "1", "--patience", "3", "--format", "json")

    report = json.loads(result.stdout)
    assert report["answers"] == {"TLS: CERTIFICATE_VERIFY_FAILED": 1}
    assert "self-signed certificate" in report["hopeless"]
    assert "--ca" in result.stderr
    assert "--insecure" in result.stderr
    assert result.exit_code == 1
    assert server.bodies == []


def test_every_started_request_is_counted_in_exactly_one_category(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        table = load(https(server), "--requests", "1").stdout
    with listening("503,3600", "400", tls=tls) as server:
        report = load_report(https(server), "--insecure", "--requests", "4", "--patience", "1")

    assert "not acknowledged  0 refused, 0 given up, 1 unfinished" in table
    assert [report[name] for name in ("requests", "refused", "given_up", "unfinished")] == [2, 1, 1, 0]


def test_insecure_option_accepts_any_certificate(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        result = load(https(server), "--requests", "2", "--insecure")

    assert len(server.bodies) == 2
    assert result.exit_code == 0


@pytest.mark.parametrize("has_tls", [False, True])
def test_url_with_the_wrong_scheme_ends_the_run_at_once(tls: ssl.SSLContext, *, has_tls: bool) -> None:
    with listening(tls=tls if has_tls else None) as server:
        url = server.url if has_tls else https(server)
        result = load(url, "--requests", "1", "--patience", "3")

    assert f"expected {'https' if has_tls else 'http'}://" in result.stderr
    assert result.exit_code == 1


def test_open_loop_counts_a_stall_in_the_latency_of_all_delayed_requests() -> None:
    """A single client at 1,000 requests per second: most requests become due during the stall."""
    with listening("stall") as server:
        report = load_report(server.url, "--requests", "60", "--rate", "1000")

    assert report["latency_ms"]["p50"] > 50
    assert report["latency_ms"]["max"] >= STALL_S * 1e3


def test_rejected_spans_are_not_counted_as_acknowledged() -> None:
    with listening(rejected=3) as server:
        report = load_report(server.url, "--requests", "2", "--encoding", "protobuf")

    assert report["rejected_spans"] == 6
    assert report["spans"] == 14


def test_configured_header_and_token_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")

    with listening() as server:
        load(
            server.url,
            *("--requests", "1", "--header", "X-Team: web", "--token-file", str(tmp_path / "token")),
        )

    assert server.headers[0]["x-team"] == "web"
    assert server.headers[0]["authorization"] == "Bearer s3cret"


@each_case(
    ("options", "expected"),
    [
        pytest.param(["ftp://host"], "expected http(s)://HOST", id="scheme"),
        pytest.param(["http://"], "expected http(s)://HOST", id="no host"),
        pytest.param(["http://host:99999"], "URL is malformed", id="port"),
        pytest.param(["http://host", "--header", "no colon"], "expected 'Name: value'", id="header"),
        pytest.param(["http://host", "--token-file", "absent"], "cannot be read", id="token file"),
        pytest.param(["https://host", "--ca", "absent"], "certificates in PEM", id="authorities"),
        pytest.param(["http://host", "--spans", "0"], "--spans", id="no spans"),
        pytest.param(["http://host", "--rate", "0"], "--rate", id="no rate"),
        pytest.param(
            ["http://host", "--verify", "--data", "absent"], "no receiver runs", id="no API to query"
        ),
    ],
)
def test_invalid_option_is_refused_with_the_expected_value(options: list[str], expected: str) -> None:
    result = CliRunner().invoke(main, ["load", *options])

    assert result.exit_code == 2
    assert expected in result.output


def test_interrupted_run_prints_its_report() -> None:
    with listening() as server:
        command = [sys.executable, "-m", "receiver.cli", "load", server.url, *SMALL, "--duration", "100"]
        with subprocess.Popen(
            [*command, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr
            process.stderr.readline()
            os.kill(process.pid, signal.SIGINT)
            report = json.loads(process.communicate(timeout=60)[0])

    assert report["interrupted"]
    assert report["requests"] > 0
    assert process.returncode == 130


WITH_LENGTH = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 503 No\r\nRetry-After: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + WITH_LENGTH


@each_case(
    ("received", "expected"),
    [
        (WITH_LENGTH, ParsedAnswer(200, b"{}", "application/json")),
        (CHUNKED, ParsedAnswer(503, b"{}", retry_after_s=2.0)),
        (CONTINUED, ParsedAnswer(200, b"{}", "application/json")),
    ],
    ids=["length", "chunks", "continued"],
)
def test_answer_is_parsed_only_when_it_is_complete(received: bytes, expected: ParsedAnswer) -> None:
    assert answer_in(received + b"more") == (expected, len(received))
    assert [answer_in(received[:end]) for end in range(len(received))] == [None] * len(received)


@each_case("received", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_bytes_that_are_not_http_are_refused(received: bytes) -> None:
    with pytest.raises(NotHttp):
        answer_in(received)


@given(st.lists(st.floats(1e-6, 100), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_quantile_is_within_one_percent_of_the_exact_value(latencies_s: list[float], share: float) -> None:
    histogram = Histogram()
    for latency_s in latencies_s:
        histogram.add(latency_s)

    exact_s = next(
        latency_s for rank, latency_s in enumerate(sorted(latencies_s), 1) if rank >= share * len(latencies_s)
    )
    assert histogram.quantile_s(share) == pytest.approx(exact_s, rel=0.01, abs=2e-6)
    assert histogram.max_s == max(latencies_s)


@each_case(
    ("body", "content_type", "message"),
    [
        pytest.param(b"\x08\x0e\x12\x05wait!", "application/x-protobuf", "wait!", id="protobuf"),
        pytest.param(b'{"message": "wait!"}', "application/json", '{"message": "wait!"}', id="JSON"),
        pytest.param(b"\xff\xff", "application/x-protobuf", "\N{REPLACEMENT CHARACTER}" * 2, id="neither"),
    ],
)
def test_message_of_a_refusal_is_decoded(body: bytes, content_type: str, message: str) -> None:
    assert ParsedAnswer(503, body, content_type).message == message
