"""Errors of a server that cannot be queried: they name the address, the cause, the setting and the answer."""

from __future__ import annotations

import base64
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from receiver.config.addresses import StoreUrl
from receiver.engine import clickhouse
from receiver.engine.clickhouse import ClickHouseStore
from receiver.engine.error_codes import Fault, fault_of
from receiver.errors import StoreTrouble
from tests.support.certificates import make_certificate

HOST = "127.0.0.1"
PASSWORD = "hush-hush"
BODY_TEXT = b"a-text-of-theirs"

Conversation = Callable[[socket.socket], None]


@contextmanager
def listening(conversation: Conversation) -> Iterator[int]:
    """Run a server that treats every client in this way; yields its port."""
    server = socket.create_server((HOST, 0))
    stop = threading.Event()

    def run() -> None:
        while not stop.is_set():
            with suppress(OSError):
                client, _ = server.accept()
                with client:
                    conversation(client)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        stop.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def close_without_answer(client: socket.socket) -> None:
    client.recv(65_536)


def never_answer(client: socket.socket) -> None:
    """Read until the client gives up."""
    while client.recv(65_536):
        pass


def greet_in_another_protocol(client: socket.socket) -> None:
    """Send a greeting as a server of another protocol does."""
    client.sendall(b"220 " + BODY_TEXT + b"\r\n")


def answer_with(status: str, *headers: str, body: bytes = BODY_TEXT) -> Conversation:
    def conversation(client: socket.socket) -> None:
        client.recv(65_536)
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
        client.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return conversation


def label_of(port: int, *, host: str = HOST, secure: bool = False) -> str:
    """Return the label of the error that the first query of this server raises."""
    return error_at(port, host=host, secure=secure).label


def error_at(port: int, *, host: str = HOST, secure: bool = False) -> StoreTrouble:
    url = StoreUrl(secure=secure, host=host, port=port, user="alice", password=PASSWORD, database="otel")
    store = ClickHouseStore(url, database="", password="", insert_timeout_s=1, receiver="tests")
    try:
        with pytest.raises(StoreTrouble) as caught:
            store.version()
    finally:
        store.close()
    return caught.value


def closed_port() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_refused_connection_is_reported_with_its_address() -> None:
    port = closed_port()

    assert label_of(port) == f"no answer at {HOST}:{port}: connection refused"


def test_unknown_host_name_is_reported() -> None:
    assert label_of(8123, host="nowhere.invalid") == "no answer at nowhere.invalid:8123: host name not found"


NO_ANSWER = [
    pytest.param(close_without_answer, False, "connection lost", id="closed without an answer"),
    pytest.param(never_answer, False, "timed out", id="never answered"),
    pytest.param(greet_in_another_protocol, False, "not HTTP", id="another protocol"),
    pytest.param(
        answer_with("400 Bad Request"),
        True,
        "TLS failed: the port does not speak TLS; expected http:// in store.url, or its HTTPS port, "
        "like 8443",
        id="https to a plain port",
    ),
]


@pytest.mark.parametrize(("conversation", "secure", "cause"), NO_ANSWER)
def test_cause_of_a_missing_answer_is_reported(
    conversation: Conversation, cause: str, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    monkeypatch.setattr(clickhouse, "QUERY_TIMEOUT_S", 1)
    with listening(conversation) as port:
        label = label_of(port, secure=secure)

    assert label == f"no answer at {HOST}:{port}: {cause}"


NOT_CLICKHOUSE = "this is not ClickHouse's answer; expected its HTTP interface in store.url"
QUOTED = f'{NOT_CLICKHOUSE}; the server answered: "a-text-of-theirs"'
LOGIN = "user 'alice' is refused; expected the user in store.url and its password in store.password"
REFUSAL = (
    b"Code: 516. DB::Exception: alice: Authentication failed: password is incorrect, or there is no user "
    b"with such name.\n\nIf you have installed ClickHouse and forgot password you can reset it. "
    b"(AUTHENTICATION_FAILED) (version 25.3.2.39 (official build))\n"
)
DENIAL = (
    b"Code: 497. DB::Exception: alice: Not enough privileges. To execute this query, it's necessary to "
    b"have the grant SELECT(name) ON system.settings. (ACCESS_DENIED) (version 25.3.2.39 (official build))"
)
VIOLATION = b"Code: 469. DB::Exception: Constraint violated: secret-row. (VIOLATED_CONSTRAINT) (version 25.3)"
NATIVE = b"Port 9000 is for clickhouse-client program\r\nYou must use port 8123 for HTTP.\r\n"


@pytest.mark.parametrize(
    ("conversation", "expected"),
    [
        pytest.param(
            answer_with("307 Moved", "Location: https://elsewhere.invalid/", body=b""),
            f"HTTP 307 at PLACE: {NOT_CLICKHOUSE}",
            id="redirect",
        ),
        pytest.param(answer_with("404 Not Found"), f"HTTP 404 at PLACE: {QUOTED}", id="another server"),
        pytest.param(
            answer_with("200 OK"),
            f'NOT_CLICKHOUSE at PLACE: {NOT_CLICKHOUSE}; the server answered: "a-text-of-their"',
            id="200 of another server",
        ),
        pytest.param(
            answer_with("404 Not Found", body=b"<html><h1>Not\r\n Found</h1>\x1b[2J" + b"x" * 10_000),
            f'HTTP 404 at PLACE: {NOT_CLICKHOUSE}; the server answered: "Not Found \\x1b[2J{"x" * 186}…"',
            id="a long page",
        ),
        pytest.param(
            answer_with("400 Bad Request", body=NATIVE),
            "HTTP 400 at PLACE: this is ClickHouse's native port; expected its HTTP port in store.url: "
            '8123 or 8443; the server answered: "Port 9000 is for clickhouse-client program You must use '
            'port 8123 for HTTP."',
            id="native port",
        ),
        pytest.param(
            answer_with("403 Forbidden", "X-ClickHouse-Exception-Code: 516", body=REFUSAL),
            f"AUTHENTICATION_FAILED (516): {LOGIN}; the server answered: "
            '"alice: Authentication failed: password is incorrect, or there is no user with such name."',
            id="wrong password",
        ),
        pytest.param(
            answer_with("500 Error", "X-ClickHouse-Exception-Code: 497", body=DENIAL),
            "ACCESS_DENIED (497): user 'alice' (store.url) lacks a right; the server answered: \"alice: Not "
            "enough privileges. To execute this query, it's necessary to have the grant SELECT(name) ON "
            'system.settings."',
            id="missing right",
        ),
        pytest.param(
            answer_with("502 Bad Gateway"), "HTTP 502 at PLACE", id="proxy that cannot reach the server"
        ),
        pytest.param(
            answer_with("500 Error", "X-ClickHouse-Exception-Code: 469", body=VIOLATION),
            "VIOLATED_CONSTRAINT (469)",
            id="values of rows are not quoted",
        ),
        *(
            pytest.param(
                answer_with("404 Not Found", body=f"you sent {echoed}".encode()),
                f"HTTP 404 at PLACE: {NOT_CLICKHOUSE}",
                id=f"{form} is not quoted",
            )
            for form, echoed in {
                "password": PASSWORD,
                "encoded password": base64.b64encode(f"alice:{PASSWORD}".encode()).decode(),
            }.items()
        ),
    ],
)
def test_wrong_setting_is_named_and_the_answer_quoted(conversation: Conversation, expected: str) -> None:
    with listening(conversation) as port:
        assert label_of(port) == expected.replace("PLACE", f"{HOST}:{port}")


def test_answer_that_is_not_from_clickhouse_needs_an_operator() -> None:
    with listening(answer_with("200 OK")) as port:
        assert fault_of(error_at(port)) is Fault.HOLD


def test_untrusted_certificate_is_explained_with_the_message_of_openssl(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(tmp_path, now - timedelta(days=1), now + timedelta(days=1)))

    def handshake(client: socket.socket) -> None:
        context.wrap_socket(client, server_side=True).close()

    with listening(handshake) as port:
        assert label_of(port, secure=True) == (
            f"CERTIFICATE_REFUSED at {HOST}:{port}: self-signed certificate; "
            "expected a certificate of a known authority for the host in store.url"
        )


def test_first_query_does_not_follow_a_redirect() -> None:
    received: list[bytes] = []

    def record_request(client: socket.socket) -> None:
        received.append(client.recv(65_536))

    with (
        listening(record_request) as other,
        listening(answer_with("307 Moved", f"Location: http://{HOST}:{other}/")) as port,
    ):
        assert label_of(port).startswith(f"HTTP 307 at {HOST}:{port}")

    assert not received
