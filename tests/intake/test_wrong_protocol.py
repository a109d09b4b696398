"""Tests of peers that use another protocol: each causes a single warning that names the protocol."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trustme
from structlog.testing import capture_logs

from receiver.intake.connections import wrong_protocol
from receiver.intake.connections.wrong_protocol import handshake_cause
from receiver.settings import Limits
from tests.support.intake import Intake, on_uvloop, request, running, until
from tests.support.tls import certificates_in, client_context, client_hello

H2_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"


@pytest.mark.parametrize(
    ("sent", "key", "text", "status"),
    [
        pytest.param(H2_PREFACE, "grpc", "gRPC", 505, id="gRPC"),
        pytest.param(client_hello(), "tls_on_plain_port", "speaks TLS", 400, id="TLS"),
        pytest.param(b"\0\1secret\r\n\r\n", "not_http", "does not speak HTTP", 400, id="binary"),
        pytest.param(b"POST / HTTP/1.1\r\nsecret\r\n\r\n", "http_400", "well-formed", 400, id="bad header"),
    ],
)
@on_uvloop
async def test_plain_port_logs_the_protocol_of_the_peer(
    sent: bytes, key: str, text: str, status: int
) -> None:
    with capture_logs() as logs:
        async with running() as intake:
            answers = [await intake.exchange(sent) for _ in range(3)]

    assert [answer.status for answer in answers] == [status] * 3
    (line,) = logs
    assert (line["log_level"], line["cause"], line["peer"]) == ("warning", key, "127.0.0.1")
    assert text in line["error"]
    assert "secret" not in str(line)


def send_unencrypted(sent: bytes) -> Callable[[int], None]:
    """Return a client that sends these bytes to the TLS port and waits for the end."""

    def run(port: int) -> None:
        with socket.create_connection(("127.0.0.1", port)) as sock:
            sock.sendall(sent)
            sock.shutdown(socket.SHUT_WR)
            sock.recv(1)

    return run


def wait_without_sending(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port)) as sock:
        sock.recv(1)


def attempt_handshake(make: Callable[[], ssl.SSLContext], name: str = "localhost") -> Callable[[int], None]:
    """Return a client with this context; it blocks, because only then OpenSSL sends its alerts."""

    def run(port: int) -> None:
        with (
            socket.create_connection(("127.0.0.1", port)) as sock,
            make().wrap_socket(sock, server_hostname=name) as secured,
        ):
            secured.sendall(request())
            secured.recv(1)

    return run


def unknown_client_context() -> ssl.SSLContext:
    context = client_context()
    trustme.CA().issue_cert("sender").configure_cert(context)
    return context


def limited_to(ciphers: str, version: ssl.TLSVersion) -> ssl.SSLContext:
    context = client_context()
    context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
    context.minimum_version = context.maximum_version = version
    return context


def only_h2() -> ssl.SSLContext:
    context = client_context()
    context.set_alpn_protocols(["h2"])
    return context


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion.TLSv1_1:DeprecationWarning")
@pytest.mark.parametrize(
    ("client_ca", "client", "key", "text"),
    [
        pytest.param(
            False, send_unencrypted(request()), "plain_http_on_tls_port", "speaks plain HTTP", id="plain HTTP"
        ),
        pytest.param(False, send_unencrypted(H2_PREFACE), "not_tls", "plain-text gRPC", id="plain-text gRPC"),
        pytest.param(False, send_unencrypted(b""), "handshake_closed", "client closed", id="closed"),
        pytest.param(False, wait_without_sending, "handshake_timeout", "not complete within", id="timed out"),
        pytest.param(False, attempt_handshake(only_h2), "grpc", "gRPC", id="only h2 by ALPN"),
        pytest.param(
            False,
            attempt_handshake(ssl.create_default_context),
            "certificate_not_trusted",
            "does not trust the authority",
            id="unknown CA",
        ),
        pytest.param(
            False,
            attempt_handshake(client_context, "elsewhere"),
            "certificate_rejected",
            "rejects the receiver's certificate",
            id="wrong host name",
        ),
        pytest.param(
            False,
            attempt_handshake(lambda: limited_to("ALL", ssl.TLSVersion.TLSv1_1)),
            "tls_version",
            "no shared TLS version",
            id="TLS 1.1",
        ),
        pytest.param(
            False,
            attempt_handshake(lambda: limited_to("AES128-SHA", ssl.TLSVersion.TLSv1_2)),
            "tls_cipher",
            "no shared cipher",
            id="no shared cipher",
        ),
        pytest.param(
            True,
            attempt_handshake(client_context),
            "client_certificate_missing",
            "sent no certificate",
            id="no client certificate",
        ),
        pytest.param(
            True,
            attempt_handshake(unknown_client_context),
            "client_certificate_invalid",
            "local issuer",
            id="client certificate of an unknown CA",
        ),
    ],
)
@on_uvloop
async def test_tls_port_names_why_the_connection_failed(
    tmp_path: Path,
    client_ca: bool,  # noqa: FBT001 - pytest passes it by name
    client: Callable[[int], None],
    key: str,
    text: str,
) -> None:
    limits = Limits(tls_handshake_timeout_s=0.3 if client is wait_without_sending else 600)
    with capture_logs() as logs:
        async with running(
            tls=(certificates_in(tmp_path, client_ca=client_ca).context, client_context()), limits=limits
        ) as intake:
            await run_client(intake, client)
            await until(lambda: logs)
            # A client that offers only HTTP/2 completes its handshake.
            assert intake.counted("refusals", "tls_handshake") == (key != "grpc")

    line: Any = logs[0]
    assert (line["log_level"], line["cause"], line["peer"]) == ("warning", key, "127.0.0.1")
    assert text in line["error"]
    assert "_ssl.c" not in str(line)
    assert line["action"]


async def run_client(intake: Intake, client: Callable[[int], None]) -> None:
    """Run a blocking client, and ignore its network errors."""
    try:
        await asyncio.to_thread(client, intake.port)
    except OSError:
        return


def test_unknown_tls_error_is_named_without_the_text_of_the_library() -> None:
    error = ssl.SSLError(1, "[SSL: SOME_NEW_REASON] some new reason (_ssl.c:1006)")
    error.reason = "SOME_NEW_REASON"

    assert handshake_cause(error).error == "TLS error: some new reason"
    assert handshake_cause(error).key == "tls:SOME_NEW_REASON"


def test_keys_of_causes_are_distinct() -> None:
    causes = [value for value in vars(wrong_protocol).values() if isinstance(value, wrong_protocol.Cause)]

    assert len({cause.key for cause in causes}) == len(causes)
