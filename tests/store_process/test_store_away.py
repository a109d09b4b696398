"""Claims about a server that cannot be asked: its place, the cause, the setting at fault, what it said."""

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
PAGE = b"a-text-of-theirs"

Talk = Callable[[socket.socket], None]


@contextmanager
def listening(talk: Talk) -> Iterator[int]:
    """A server that does this with everybody who comes, at the port it yields."""
    server = socket.create_server((HOST, 0))
    ending = threading.Event()

    def run() -> None:
        while not ending.is_set():
            with suppress(OSError):
                client, _ = server.accept()
                with client:
                    talk(client)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield int(server.getsockname()[1])
    finally:
        ending.set()
        server.shutdown(socket.SHUT_RDWR)
        server.close()
        thread.join()


def closes(client: socket.socket) -> None:
    client.recv(65_536)


def hangs(client: socket.socket) -> None:
    """Until the client has enough."""
    while client.recv(65_536):
        pass


def greets(client: socket.socket) -> None:
    """As a server of another protocol does."""
    client.sendall(b"220 " + PAGE + b"\r\n")


def answers(status: str, *headers: str, body: bytes = PAGE) -> Talk:
    def talk(client: socket.socket) -> None:
        client.recv(65_536)
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", "Connection: close", *headers]
        client.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + body)

    return talk


def label_of(port: int, *, host: str = HOST, secure: bool = False) -> str:
    """The label of what the first question to a server there raises."""
    return trouble_at(port, host=host, secure=secure).label


def trouble_at(port: int, *, host: str = HOST, secure: bool = False) -> StoreTrouble:
    url = StoreUrl(secure=secure, host=host, port=port, user="someone", password=PASSWORD, database="otel")
    store = ClickHouseStore(url, database="", password="", insert_timeout_s=1, receiver="tests")
    try:
        with pytest.raises(StoreTrouble) as caught:
            store.version()
    finally:
        store.close()
    return caught.value


def port_of_nobody() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_that_nothing_listens_is_told_with_its_place() -> None:
    port = port_of_nobody()

    assert label_of(port) == f"no answer at {HOST}:{port}: connection refused"


def test_a_name_that_nobody_knows_is_told() -> None:
    assert label_of(8123, host="nowhere.invalid") == "no answer at nowhere.invalid:8123: host name not found"


WRONG = [
    pytest.param(closes, False, "connection lost", id="closed without a word"),
    pytest.param(hangs, False, "timed out", id="never answered"),
    pytest.param(greets, False, "not HTTP", id="another protocol"),
    pytest.param(
        answers("400 Bad Request"),
        True,
        "TLS failed: the port does not speak TLS; expected http:// in store.url, or the HTTPS port, as 8443",
        id="https to a plain port",
    ),
]


@pytest.mark.parametrize(("talk", "secure", "cause"), WRONG)
def test_why_there_is_no_answer_is_told(
    talk: Talk, cause: str, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    monkeypatch.setattr(clickhouse, "QUERY_TIMEOUT_S", 1)
    with listening(talk) as port:
        label = label_of(port, secure=secure)

    assert label == f"no answer at {HOST}:{port}: {cause}"


def test_a_proxy_that_cannot_reach_the_server_is_reported_by_its_status_alone() -> None:
    with listening(answers("502 Bad Gateway")) as port:
        assert label_of(port) == f"HTTP 502 at {HOST}:{port}"


NOT_CLICKHOUSE = "this is not ClickHouse's answer; expected its HTTP interface in store.url"
WORDS = f'{NOT_CLICKHOUSE}; the server says: "a-text-of-theirs"'
LOGIN = "user 'someone' is refused; expected the user in store.url and its password in store.password"
REFUSAL = (
    b"Code: 516. DB::Exception: someone: Authentication failed: password is incorrect, or there is no user "
    b"with such name.\n\nIf you have installed ClickHouse and forgot password you can reset it. "
    b"(AUTHENTICATION_FAILED) (version 25.3.2.39 (official build))\n"
)
DENIAL = (
    b"Code: 497. DB::Exception: someone: Not enough privileges. To execute this query, it's necessary to "
    b"have the grant SELECT(name) ON system.settings. (ACCESS_DENIED) (version 25.3.2.39 (official build))"
)
NATIVE = b"Port 9000 is for clickhouse-client program\r\nYou must use port 8123 for HTTP.\r\n"


@pytest.mark.parametrize(
    ("talk", "expected"),
    [
        pytest.param(
            answers("307 Moved", "Location: https://elsewhere.invalid/", body=b""),
            f"HTTP 307 at PLACE: {NOT_CLICKHOUSE}",
            id="redirect",
        ),
        pytest.param(answers("404 Not Found"), f"HTTP 404 at PLACE: {WORDS}", id="another server"),
        pytest.param(
            answers("200 OK"),
            f'NOT_CLICKHOUSE at PLACE: {NOT_CLICKHOUSE}; the server says: "a-text-of-their"',
            id="200 of another server",
        ),
        pytest.param(
            answers("404 Not Found", body=b"<html><h1>Not\r\n Found</h1>\x1b[2J" + b"x" * 10_000),
            f'HTTP 404 at PLACE: {NOT_CLICKHOUSE}; the server says: "Not Found \\x1b[2J{"x" * 186}…"',
            id="a long page",
        ),
        pytest.param(
            answers("400 Bad Request", body=NATIVE),
            "HTTP 400 at PLACE: this is ClickHouse's native port; expected its HTTP port in store.url, as "
            '8123 or 8443; the server says: "Port 9000 is for clickhouse-client program You must use '
            'port 8123 for HTTP."',
            id="native port",
        ),
        pytest.param(
            answers("403 Forbidden", "X-ClickHouse-Exception-Code: 516", body=REFUSAL),
            f"AUTHENTICATION_FAILED (516): {LOGIN}; the server says: "
            '"someone: Authentication failed: password is incorrect, or there is no user with such name."',
            id="wrong password",
        ),
        pytest.param(
            answers("500 Error", "X-ClickHouse-Exception-Code: 497", body=DENIAL),
            "ACCESS_DENIED (497): user 'someone' (store.url) lacks a right; the server says: \"someone: Not "
            "enough privileges. To execute this query, it's necessary to have the grant SELECT(name) ON "
            'system.settings."',
            id="missing right",
        ),
    ],
)
def test_a_wrong_setting_is_named_with_the_words_of_the_server(talk: Talk, expected: str) -> None:
    with listening(talk) as port:
        assert label_of(port) == expected.replace("PLACE", f"{HOST}:{port}")


@pytest.mark.parametrize("echoed", [PASSWORD, base64.b64encode(f"someone:{PASSWORD}".encode()).decode()])
def test_a_server_that_repeats_the_password_is_not_quoted(echoed: str) -> None:
    with listening(answers("404 Not Found", body=f"you sent {echoed}".encode())) as port:
        assert label_of(port) == f"HTTP 404 at {HOST}:{port}: {NOT_CLICKHOUSE}"


def test_what_is_not_clickhouse_needs_an_operator_and_is_not_retried_at_once() -> None:
    with listening(answers("200 OK")) as port:
        assert fault_of(trouble_at(port)) is Fault.HOLD


def test_a_certificate_that_is_not_trusted_is_explained_in_the_words_of_openssl(tmp_path: Path) -> None:
    now = datetime.now(UTC)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*make_certificate(tmp_path, now - timedelta(days=1), now + timedelta(days=1)))

    def shakes_hands(client: socket.socket) -> None:
        context.wrap_socket(client, server_side=True).close()

    with listening(shakes_hands) as port:
        assert label_of(port, secure=True) == (
            f"CERTIFICATE_REFUSED at {HOST}:{port}: self-signed certificate; "
            "expected a certificate of a known authority for the host in store.url"
        )


def test_values_of_rows_are_not_quoted() -> None:
    refusal = (
        b"Code: 469. DB::Exception: Constraint violated: secret-row. (VIOLATED_CONSTRAINT) (version 25.3)"
    )
    with listening(answers("500 Error", "X-ClickHouse-Exception-Code: 469", body=refusal)) as port:
        assert label_of(port) == "VIOLATED_CONSTRAINT (469)"


def test_not_even_the_first_question_follows_a_redirect() -> None:
    came: list[bytes] = []

    def notes(client: socket.socket) -> None:
        came.append(client.recv(65_536))

    with (
        listening(notes) as other,
        listening(answers("307 Moved", f"Location: http://{HOST}:{other}/")) as port,
    ):
        assert label_of(port).startswith(f"HTTP 307 at {HOST}:{port}")

    assert not came
