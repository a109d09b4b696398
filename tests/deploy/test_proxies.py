"""Configurations of proxies: their programs accept them, and pass deliveries and answers on unchanged."""

from __future__ import annotations

import gzip
import hashlib
import hmac
import http.client
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final, NamedTuple

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from receiver.settings import KIB, MIB, Limits
from tests.e2e.receiver_process import ReceiverProcess
from tests.faults.bodies import trace_body
from tests.support.cases import each_case
from tests.support.tls import client_context, write_certificates

PROXY: Final = Path(__file__).parents[2] / "deploy/proxy"
TOKEN, SECRET = "token of the sender", b"secret of the sender"
SENDERS_IDLE_S: Final = 90
"""Time for which senders keep idle connections: docs/decisions/0023-idle-connections.md."""
IDLE_S: Final = 2
"""Idle timeout of connections to the receiver in these tests."""
SMALL_BYTES_MAX: Final = 64 * KIB
"""Body limit of a drain. The client can send a larger body without waiting for the proxy to read it."""
CONFIG: Final = f"""
behind_proxy = true
[[drain]]
name = "web"
token_file = "token"
signature_header = "x-signature"
signature_secret_file = "secret"
[[drain]]
name = "store"
path = "/store"
token_file = "token"
acknowledge = "store"
body_bytes_max = {SMALL_BYTES_MAX}
"""


class Program(NamedTuple):
    """How to check and run a proxy, and what its configuration becomes for a test."""

    file: str
    check: tuple[str, ...]
    run: tuple[str, ...]
    edits: tuple[tuple[str, str], ...]
    """Texts of the configuration, each exactly once, and their replacements."""
    main: str = "{}"
    """File that the program is started with, around the configuration."""


PROGRAMS: Final = {
    "nginx": Program(
        "nginx.conf",
        ("-e", "stderr", "-t", "-c"),
        ("-e", "stderr", "-g", "daemon off;", "-c"),
        (
            ("    listen [::]:443 ssl http2;\n", ""),
            ("listen 443", "listen 127.0.0.1:PORT"),
            ("/etc/nginx/traces.crt", "DIRECTORY/tls.crt"),
            ("/etc/nginx/traces.key", "DIRECTORY/tls.key"),
            ("keepalive_timeout 60s", f"keepalive_timeout {IDLE_S}s"),
        ),
        "pid DIRECTORY/pid;\nerror_log stderr;\nevents {{}}\nhttp {{\naccess_log off;\n{}"
        # The default directories belong to root.
        + "".join(
            f"{kind}_temp_path DIRECTORY;\n" for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
        )
        + "}}\n",
    ),
    "caddy": Program(
        "Caddyfile",
        ("validate", "--adapter", "caddyfile", "--config"),
        ("run", "--adapter", "caddyfile", "--config"),
        (
            ("\n{\n", "\n{\n\tadmin off\n\tauto_https disable_redirects\n"),
            ("traces.example.com {", "localhost:PORT {\n\ttls DIRECTORY/tls.crt DIRECTORY/tls.key"),
            ("keepalive 60s", f"keepalive {IDLE_S}s"),
        ),
    ),
    "haproxy": Program(
        "haproxy.cfg",
        ("-c", "-f"),
        ("-db", "-f"),
        (
            ("bind :443", "bind 127.0.0.1:PORT"),
            ("/etc/haproxy/traces.pem", "DIRECTORY/tls.pem"),
            ("pool-purge-delay 5s", f"pool-purge-delay {IDLE_S}s"),
        ),
    ),
}
EACH_PROGRAM: Final = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"apt-get install {name}"))
    for name in PROGRAMS
]


def configuration(name: str, directory: Path, port: int, receiver_port: int = 4318) -> Path:
    """Write a configuration with the addresses, files and idle timeout of a test."""
    program = PROGRAMS[name]
    text = (PROXY / program.file).read_text()
    for old, new in (*program.edits, ("127.0.0.1:4318", f"127.0.0.1:{receiver_port}")):
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    tls = write_certificates(directory)
    (directory / "tls.pem").write_text(Path(tls.cert_file).read_text() + Path(tls.key_file).read_text())
    text = program.main.format(text).replace("DIRECTORY", str(directory)).replace("PORT", str(port))
    (directory / program.file).write_text(text)
    return directory / program.file


def environment(directory: Path) -> dict[str, str]:
    """Return an environment in which Caddy writes nothing to the home directory."""
    return {**os.environ, "XDG_DATA_HOME": str(directory), "XDG_CONFIG_HOME": str(directory)}


class Proxy(NamedTuple):
    """A running proxy with a receiver behind it."""

    receiver: ReceiverProcess
    port: int
    ca_file: Path

    def connect(self) -> closing[http.client.HTTPSConnection]:
        return closing(
            http.client.HTTPSConnection("localhost", self.port, timeout=60, context=client_context())
        )

    def connections(self) -> int:
        """Return the number of open connections of the drain endpoint."""
        local = f":{self.receiver.address[1]:04X}"
        rows = [line.split() for line in Path("/proc/net/tcp").read_text().splitlines()]
        return sum(row[1].endswith(local) and row[3] == "01" for row in rows)

    def wait_until_idle(self) -> None:
        # The receiver closes idle connections after 120 s, which is longer than this waits.
        self.receiver.wait_until(
            lambda: not self.connections(), "the proxy does not close its idle connections"
        )


@pytest.fixture(scope="module")
def receiver(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ReceiverProcess]:
    data = tmp_path_factory.mktemp("receiver")
    (data / "token").write_text(TOKEN)
    (data / "secret").write_bytes(SECRET)
    with ReceiverProcess(data, config=CONFIG) as started:
        yield started


@pytest.fixture(scope="module", params=EACH_PROGRAM)
def proxy(
    request: pytest.FixtureRequest, receiver: ReceiverProcess, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Proxy]:
    directory = tmp_path_factory.mktemp(request.param)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    config = configuration(request.param, directory, port, receiver.address[1])
    command = [request.param, *PROGRAMS[request.param].run, str(config)]
    with (directory / "log").open("wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, env=environment(directory))

    def is_open() -> bool:
        assert process.poll() is None, (directory / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    try:
        receiver.wait_until(is_open, f"{request.param} accepts no connection")
        yield Proxy(receiver, port, directory / "ca.crt")
    finally:
        process.terminate()
        process.wait(60)


class Answer(NamedTuple):
    """A response, without the headers that a proxy may add."""

    status: int
    content_type: str | None
    retry_after: str | None
    body: bytes


def send(
    connection: http.client.HTTPConnection,
    body: bytes | Iterator[bytes],
    path: str = "/v1/traces",
    **headers: str,
) -> Answer:
    """Send a delivery, in chunks if the body is an iterator."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    usual = {"content-type": "application/json", "authorization": f"Bearer {TOKEN}"}
    connection.request("POST", path, body, {**usual, **named})
    answer = connection.getresponse()
    content_type, retry_after = answer.getheader("content-type"), answer.getheader("retry-after")
    return Answer(answer.status, content_type, retry_after, answer.read())


def signature(body: bytes) -> str:
    return hmac.new(SECRET, body, hashlib.sha1).hexdigest()


def protobuf_body(trace: int) -> bytes:
    request = ExportTraceServiceRequest()
    span = request.resource_spans.add().scope_spans.add().spans.add()
    span.trace_id, span.span_id = trace.to_bytes(16), (1).to_bytes(8)
    span.start_time_unix_nano = time.time_ns()
    return request.SerializeToString()


@pytest.mark.parametrize("name", EACH_PROGRAM)
def test_program_accepts_its_configuration(name: str, tmp_path: Path) -> None:
    config = configuration(name, tmp_path, 4443)

    command = [name, *PROGRAMS[name].check, str(config)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment(tmp_path))

    assert done.returncode == 0, done.stderr
    assert "[WARNING]" not in done.stderr


LIMITS: Final = Limits()
TO_RECEIVER: Final = (1, LIMITS.keepalive_timeout_s - 1)
TO_SENDER: Final = (SENDERS_IDLE_S + 1, 3_600)
ANSWER: Final = (LIMITS.answer_deadline_s + 1, 3_600)
BODY: Final = (LIMITS.body_timeout_s + 1, 3_600)


@each_case(
    ("file", "pattern", "allowed"),
    [
        ("nginx.conf", r"keepalive 64;\n +keepalive_timeout (\d+)s", TO_RECEIVER),
        ("nginx.conf", r"first\.\n +keepalive_timeout (\d+)s", TO_SENDER),
        ("nginx.conf", r"proxy_read_timeout (\d+)s", ANSWER),
        ("nginx.conf", r"client_body_timeout (\d+)s", BODY),
        ("Caddyfile", r"keepalive (\d+)s", TO_RECEIVER),
        ("Caddyfile", r"idle (\d+)s", TO_SENDER),
        ("Caddyfile", r"read_body (\d+)s", BODY),
        ("Caddyfile", r"response_header_timeout (\d+)s", ANSWER),
        # Halved in each interval, 4,096 connections need 12 intervals, after the first 10 s.
        ("haproxy.cfg", r"pool-purge-delay (\d+)s", (1, (TO_RECEIVER[1] - 10) // 12)),
        ("haproxy.cfg", r"timeout http-keep-alive (\d+)s", TO_SENDER),
        ("haproxy.cfg", r"timeout server (\d+)s", BODY),
        ("haproxy.cfg", r"timeout client (\d+)s", BODY),
        ("envoy.yaml", r"an hour\.\n +common_http_protocol_options: {idle_timeout: (\d+)s", TO_RECEIVER),
        ("envoy.yaml", r"first\.\n +common_http_protocol_options: {idle_timeout: (\d+)s", TO_SENDER),
        ("envoy.yaml", r"cluster: trace_drain, timeout: (\d+)s", ANSWER),
        ("envoy.yaml", r"stream_idle_timeout: (\d+)s", BODY),
    ],
)
def test_timeouts_fit_the_limits_of_the_receiver(
    file: str, pattern: str, allowed: tuple[float, float]
) -> None:
    (seconds,) = re.findall(pattern, (PROXY / file).read_text())

    assert allowed[0] <= int(seconds) <= allowed[1]


@pytest.mark.fault_tier
def test_delivery_arrives_unchanged_in_every_encoding(proxy: Proxy) -> None:
    first = proxy.port * 10  # traces of other proxies have other ids
    packed, plain = gzip.compress(protobuf_body(first)), trace_body(first + 1)
    large = trace_body(first + 2, spans=1, text=random.Random(0).randbytes(MIB).hex())
    protobuf = {"content_type": "application/x-protobuf", "content_encoding": "gzip"}

    with proxy.connect() as connection:
        accepted = [
            send(connection, packed, x_signature=signature(packed), **protobuf),
            send(connection, iter([plain[:100], plain[100:]]), x_signature=signature(plain)),
            send(connection, large, x_signature=signature(large)),
        ]

    json = Answer(200, "application/json", None, b"{}\n")
    assert accepted == [Answer(200, "application/x-protobuf", None, b""), json, json]
    for trace in range(first, first + 3):
        proxy.receiver.wait_until_readable(trace)


@pytest.mark.fault_tier
@pytest.mark.skipif(shutil.which("curl") is None, reason="apt-get install curl")
def test_delivery_over_http_2_is_accepted(proxy: Proxy) -> None:
    body = trace_body(proxy.port * 10 + 3)
    headers = {"Authorization": f"Bearer {TOKEN}", "Content-Type": "application/json"}
    headers["X-Signature"] = signature(body)
    command = [
        *("curl", "--http2", "--silent", "--cacert", str(proxy.ca_file), "--request", "POST"),
        *(option for name, value in headers.items() for option in ("--header", f"{name}: {value}")),
        # Of standard input curl does not know the length, so the proxy sends it on in chunks.
        *("--upload-file", "-", "--write-out", "%{http_version} %{http_code}"),
        f"https://localhost:{proxy.port}/v1/traces",
    ]

    sent = subprocess.run(command, input=body, capture_output=True, check=False)

    assert sent.stdout == b"{}\n2 200"


@pytest.mark.fault_tier
def test_body_is_passed_on_as_it_arrives(proxy: Proxy) -> None:
    body = trace_body(proxy.port * 10 + 4)

    def halves() -> Iterator[bytes]:
        yield body[:100]
        proxy.receiver.wait_until(
            proxy.connections, "the proxy waits for the rest of the body", patience_s=30
        )
        yield body[100:]

    proxy.wait_until_idle()
    with proxy.connect() as connection:
        assert send(connection, halves(), x_signature=signature(body)).status == 200


@pytest.mark.fault_tier
@each_case(
    ("status", "body", "path", "headers"),
    [
        (400, b"{", "/v1/traces", {"x_signature": signature(b"{")}),
        (401, b"{}", "/v1/traces", {"authorization": "Bearer of another receiver"}),
        (403, b"{}", "/v1/traces", {"x_signature": signature(b"{} ")}),
        (404, b"{}", "/v1/metrics", {}),
        (413, bytes(SMALL_BYTES_MAX + 1), "/store", {}),
        (415, b"{}", "/store", {"content_type": "text/plain"}),
    ],
    ids=lambda value: repr(value)[:40],
)
def test_refusal_is_the_answer_of_the_receiver(
    proxy: Proxy, status: int, body: bytes, path: str, headers: dict[str, str]
) -> None:
    with proxy.connect() as connection:
        passed_on = send(connection, body, path, **headers)

    with closing(http.client.HTTPConnection(*proxy.receiver.address)) as connection:
        answer_of_the_receiver = send(connection, body, path, **headers)

    assert passed_on.status == status
    assert passed_on == answer_of_the_receiver


@pytest.mark.fault_tier
def test_503_keeps_its_retry_after(proxy: Proxy) -> None:
    store = int(proxy.receiver.state()["pids"]["store"])
    os.kill(store, signal.SIGSTOP)
    try:
        with proxy.connect() as connection:
            refused = send(connection, trace_body(proxy.port * 10 + 5), "/store")
    finally:
        os.kill(store, signal.SIGCONT)

    assert (refused.status, refused.retry_after) == (503, "2")
    assert b"were not stored in time" in refused.body


@pytest.mark.fault_tier
def test_proxy_closes_an_idle_connection_first_and_accepts_the_next_delivery(proxy: Proxy) -> None:
    body = trace_body(proxy.port * 10 + 6)

    proxy.wait_until_idle()
    with proxy.connect() as connection:
        first = send(connection, body, x_signature=signature(body))
        connections = proxy.connections()
        proxy.wait_until_idle()
        second = send(connection, body, x_signature=signature(body))

    assert (first.status, connections, second.status) == (200, 1, 200)
