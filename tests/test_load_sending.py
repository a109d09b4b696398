"""How the load harness sends: as OTLP clients do, and honest about what had to wait."""

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
from receiver.load.answer import Answer, NotHttp, answer_in
from receiver.load.feed import Origin, Request
from receiver.load.histogram import Histogram
from receiver.load.report import progress_line
from receiver.load.tally import Tally
from receiver.supervisor.self_signed import self_signed
from tests.doubles.liar import STALL_S, listening

SMALL = ("--spans", "10", "--connections", "1")


def load(url: str, *words: str) -> Result:
    return CliRunner().invoke(main, ["load", url, *SMALL, *words])


def loaded(url: str, *words: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(load(url, "--format", "json", *words).stdout)
    return said


@pytest.mark.parametrize("met", ["429,0", "502,0", "503,0", "504,0", "reset"])
def test_the_same_bytes_are_sent_until_they_are_answered_for(met: str) -> None:
    with listening(met, met) as server:
        said = loaded(server.url, "--requests", "2")

    assert server.bodies[0] == server.bodies[1] == server.bodies[2] != server.bodies[3]
    assert said["requests"] == 2
    assert said["retries"] == 2


def test_a_try_that_takes_too_long_is_made_again() -> None:
    with listening("stall") as server:
        said = loaded(server.url, "--requests", "1", "--timeout", str(STALL_S / 2))

    assert len(server.bodies) >= 2
    assert len(set(server.bodies)) == 1
    assert said["answers"]["time-out"] >= 1
    assert said["requests"] == 1


@pytest.mark.parametrize("status", ["400", "401", "413", "500"])
def test_what_is_refused_is_not_sent_again(status: str) -> None:
    with listening(status) as server:
        result = load(server.url, "--requests", "2", "--format", "json")

    said = json.loads(result.stdout)
    assert len(server.bodies) == 2
    assert said["answers"] == {"200": 1, status: 1}
    assert said["refused"] == 1
    assert result.exit_code == 1


def test_the_report_of_one_request_and_one_span_has_no_plurals() -> None:
    with listening("200") as server:
        result = load(server.url, "--requests", "1", "--spans", "1")

    assert "acknowledged      1 request, 1 span in " in result.stdout


def test_a_wait_beyond_its_patience_is_given_up() -> None:
    with listening("503,3600") as server:
        result = load(server.url, "--requests", "1", "--format", "json")

    assert len(server.bodies) == 1
    assert json.loads(result.stdout)["given_up"] == 1
    assert result.exit_code == 1


def test_nobody_listening_is_told() -> None:
    with listening() as server:
        url = server.url

    result = load(url, "--requests", "1", "--patience", "0.1", "--format", "json")

    assert json.loads(result.stdout)["answers"] == {"connection refused": 1}
    assert result.exit_code == 1


def test_every_try_after_the_first_of_a_request_is_a_retry_also_where_nobody_listens() -> None:
    with listening() as server:
        url = server.url

    said = loaded(url, "--requests", "1", "--patience", "3")

    tries = said["answers"]["connection refused"]
    assert tries >= 2
    assert said["retries"] == tries - 1
    assert said["given_up"] == 1


def test_a_handshake_that_never_ends_is_a_try_that_takes_too_long() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"https://127.0.0.1:{silent.getsockname()[1]}"
        said = loaded(url, "--requests", "1", "--timeout", "0.2", "--patience", "2")

    assert list(said["answers"]) == ["time-out"]
    assert said["retries"] == said["answers"]["time-out"] - 1
    assert said["given_up"] == 1


def test_where_nothing_was_answered_there_is_no_latency() -> None:
    with listening() as server:
        url = server.url
    words = ("--requests", "1", "--patience", "0.1")

    table, said = load(url, *words).stdout, loaded(url, *words)

    assert set(said["latency_ms"].values()) == {None}
    none = "\N{EN DASH}"
    assert f"p50 {none}  p90 {none}  p99 {none}  p99.9 {none}  max {none}" in table
    assert f"p50 {none}  p99 {none}" in progress_line(1.0, Tally(spans_per_request=10))


def test_the_progress_line_says_why_requests_fail_until_they_do_no_more() -> None:
    tally = Tally(spans_per_request=10)
    request = Request(0, Origin(0, 0), b"", b"")

    tally.failed("connection refused")
    failing = progress_line(1.0, tally)
    tally.next_second()
    waiting = progress_line(2.0, tally)
    tally.answered(Answer(503, b"the journal\nis full"))
    refusing = progress_line(3.0, tally)
    tally.next_second()
    tally.accepted(request, Answer(200, b""), 0.1)
    tally.next_second()
    mended = progress_line(4.0, tally)

    assert failing.endswith("latest: connection refused")
    assert waiting.endswith("latest: connection refused")
    assert refusing.endswith("latest: 503 the journal is full")
    assert "latest" not in mended


@pytest.fixture
def tls(tmp_path: Path) -> ssl.SSLContext:
    """That of a server whose certificate signs itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*self_signed(tmp_path))
    return context


def test_a_certificate_that_is_not_trusted_ends_the_run_at_once(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        result = load(
            server.url.replace("http:", "https:"), "--requests", "1", "--patience", "3", "--format", "json"
        )

    said = json.loads(result.stdout)
    assert said["answers"] == {"TLS: CERTIFICATE_VERIFY_FAILED": 1}
    assert "self-signed certificate" in said["hopeless"]
    assert "--ca" in result.stderr
    assert "--insecure" in result.stderr
    assert result.exit_code == 1
    assert server.bodies == []


def test_every_request_that_was_begun_is_in_one_category(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        table = load(server.url.replace("http:", "https:"), "--requests", "1").stdout
    with listening("503,3600", "400", tls=tls) as server:
        ended = loaded(
            server.url.replace("http:", "https:"), "--insecure", "--requests", "4", "--patience", "1"
        )

    assert "not acknowledged  0 refused, 0 given up, 1 unfinished" in table
    assert [ended[name] for name in ("requests", "refused", "given_up", "unfinished")] == [2, 1, 1, 0]


def test_any_certificate_will_do_if_asked_for(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        result = load(server.url.replace("http:", "https:"), "--requests", "2", "--insecure")

    assert len(server.bodies) == 2
    assert result.exit_code == 0


def test_tls_where_none_is_spoken_ends_the_run_at_once() -> None:
    with listening() as server:
        result = load(server.url.replace("http:", "https:"), "--requests", "1", "--patience", "3")

    assert "expected http://" in result.stderr
    assert result.exit_code == 1


def test_no_tls_where_it_is_spoken_ends_the_run_at_once(tls: ssl.SSLContext) -> None:
    with listening(tls=tls) as server:
        result = load(server.url, "--requests", "1", "--patience", "3")

    assert "expected https://" in result.stderr
    assert result.exit_code == 1


def test_an_open_loop_charges_a_stall_to_everything_that_had_to_wait() -> None:
    """100 requests a second, one client, half a second of silence: some fifty were due meanwhile."""
    with listening("stall") as server:
        said = loaded(server.url, "--requests", "60", "--rate", "1000")

    assert said["latency_ms"]["p50"] > 50
    assert said["latency_ms"]["max"] >= STALL_S * 1e3


def test_a_rejected_span_is_not_an_acknowledged_one() -> None:
    with listening(rejected=3) as server:
        said = loaded(server.url, "--requests", "2", "--encoding", "protobuf")

    assert said["rejected_spans"] == 6
    assert said["spans"] == 14


def test_headers_and_token_are_sent(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("s3cret\n")

    with listening() as server:
        load(
            server.url,
            *("--requests", "1", "--header", "X-Team: web", "--token-file", str(tmp_path / "token")),
        )

    assert server.headers[0]["x-team"] == "web"
    assert server.headers[0]["authorization"] == "Bearer s3cret"


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        pytest.param(["ftp://host"], "expected http(s)://HOST", id="scheme"),
        pytest.param(["http://"], "expected http(s)://HOST", id="no host"),
        pytest.param(["http://host:99999"], "URL cannot be read", id="port"),
        pytest.param(["http://host", "--header", "no colon"], "expected 'Name: value'", id="header"),
        pytest.param(["http://host", "--token-file", "absent"], "cannot be read", id="token file"),
        pytest.param(["https://host", "--ca", "absent"], "certificates in PEM", id="authorities"),
        pytest.param(["http://host", "--spans", "0"], "--spans", id="no spans"),
        pytest.param(["http://host", "--rate", "0"], "--rate", id="no rate"),
        pytest.param(["http://host", "--verify", "--data", "absent"], "no receiver runs", id="nobody to ask"),
    ],
)
def test_options_that_make_no_sense_are_told(words: list[str], expected: str) -> None:
    result = CliRunner().invoke(main, ["load", *words])

    assert result.exit_code == 2
    assert expected in result.output


def test_an_interrupted_run_says_what_was_measured() -> None:
    with listening() as server:
        command = [sys.executable, "-m", "receiver.cli", "load", server.url, *SMALL, "--duration", "100"]
        with subprocess.Popen(
            [*command, "--format", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            assert process.stderr
            process.stderr.readline()
            os.kill(process.pid, signal.SIGINT)
            said = json.loads(process.communicate(timeout=60)[0])

    assert said["interrupted"]
    assert said["requests"] > 0
    assert process.returncode == 130


WHOLE = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Type: application/json\r\n\r\n{}"
CHUNKED = (
    b"HTTP/1.1 503 No\r\nRetry-After: 2\r\nTransfer-Encoding: chunked\r\n\r\n"
    b"1\r\n{\r\n1;x=y\r\n}\r\n0\r\n\r\n"
)
CONTINUED = b"HTTP/1.1 100 Continue\r\n\r\n" + WHOLE


@pytest.mark.parametrize(
    ("received", "expected"),
    [
        (WHOLE, Answer(200, b"{}", "application/json")),
        (CHUNKED, Answer(503, b"{}", retry_after_s=2.0)),
        (CONTINUED, Answer(200, b"{}", "application/json")),
    ],
    ids=["length", "chunks", "continued"],
)
def test_an_answer_is_read_once_it_is_all_there(received: bytes, expected: Answer) -> None:
    assert answer_in(received + b"more") == (expected, len(received))
    assert [answer_in(received[:end]) for end in range(len(received))] == [None] * len(received)


@pytest.mark.parametrize("received", [b"hello\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n"])
def test_what_is_no_http_is_told(received: bytes) -> None:
    with pytest.raises(NotHttp):
        answer_in(received)


@given(st.lists(st.floats(1e-6, 100), min_size=1), st.sampled_from([0.5, 0.9, 0.99, 0.999]))
def test_a_quantile_is_within_a_hundredth_of_the_real_one(latencies_s: list[float], share: float) -> None:
    histogram = Histogram()
    for latency_s in latencies_s:
        histogram.add(latency_s)

    real_s = next(
        latency_s
        for place, latency_s in enumerate(sorted(latencies_s), 1)
        if place >= share * len(latencies_s)
    )
    assert histogram.quantile_s(share) == pytest.approx(real_s, rel=0.01, abs=2e-6)
    assert histogram.max_s == max(latencies_s)


@pytest.mark.parametrize(
    ("body", "content_type", "words"),
    [
        pytest.param(b"\x08\x0e\x12\x05wait!", "application/x-protobuf", "wait!", id="protobuf"),
        pytest.param(b'{"message": "wait!"}', "application/json", '{"message": "wait!"}', id="JSON"),
        pytest.param(b"\xff\xff", "application/x-protobuf", "\N{REPLACEMENT CHARACTER}" * 2, id="neither"),
    ],
)
def test_what_a_refusal_says_is_told_without_its_framing(body: bytes, content_type: str, words: str) -> None:
    assert Answer(503, body, content_type).words == words
