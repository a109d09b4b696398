"""What is told of a server that cannot be asked: where it was looked for and why not, nothing it said."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from receiver.config.addresses import StoreUrl
from receiver.errors import StoreTrouble
from receiver.storage import clickhouse
from receiver.storage.clickhouse import ClickHouseStore

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


def answers(status: str, *headers: str) -> Talk:
    def talk(client: socket.socket) -> None:
        client.recv(65_536)
        head = [f"HTTP/1.1 {status}", f"Content-Length: {len(PAGE)}", "Connection: close", *headers]
        client.sendall("\r\n".join(head).encode() + b"\r\n\r\n" + PAGE)

    return talk


def label_of(port: int, *, host: str = HOST, secure: bool = False) -> str:
    """What is told of the first question to a server there."""
    url = StoreUrl(secure=secure, host=host, port=port, user="someone", password=PASSWORD, database="otel")
    store = ClickHouseStore(url, database="", password="", insert_timeout_s=1, receiver="tests")
    try:
        with pytest.raises(StoreTrouble) as caught:
            store.version()
    finally:
        store.close()
    return caught.value.label


def port_of_nobody() -> int:
    with socket.create_server((HOST, 0)) as server:
        return int(server.getsockname()[1])


def test_that_nothing_listens_is_told_with_its_place() -> None:
    port = port_of_nobody()

    assert label_of(port) == f"no answer at {HOST}:{port}: connection refused"


def test_a_name_that_nobody_knows_is_told() -> None:
    assert label_of(8123, host="nowhere.invalid") == "no answer at nowhere.invalid:8123: host name not found"


WRONG = [
    pytest.param(closes, False, "connection broken off", id="closed without a word"),
    pytest.param(hangs, False, "timed out", id="never answered"),
    pytest.param(greets, False, "not HTTP", id="another protocol"),
    pytest.param(answers("400 Bad Request"), True, "TLS failed", id="https to a plain port"),
]


@pytest.mark.parametrize(("talk", "secure", "cause"), WRONG)
def test_why_there_is_no_answer_is_told(
    talk: Talk, cause: str, monkeypatch: pytest.MonkeyPatch, *, secure: bool
) -> None:
    monkeypatch.setattr(clickhouse, "QUERY_TIMEOUT_S", 1)
    with listening(talk) as port:
        label = label_of(port, secure=secure)

    assert label == f"no answer at {HOST}:{port}: {cause}"


@pytest.mark.parametrize("status", ["307 Temporary Redirect", "502 Bad Gateway"])
def test_an_answer_that_is_none_of_clickhouses_is_told_by_its_status(status: str) -> None:
    with listening(answers(status, "Location: https://elsewhere.invalid/")) as port:
        assert label_of(port) == f"HTTP {status[:3]} at {HOST}:{port}"


def test_not_even_the_first_question_follows_a_redirect() -> None:
    came: list[bytes] = []

    def notes(client: socket.socket) -> None:
        came.append(client.recv(65_536))

    with (
        listening(notes) as other,
        listening(answers("307 Moved", f"Location: http://{HOST}:{other}/")) as port,
    ):
        assert label_of(port) == f"HTTP 307 at {HOST}:{port}"

    assert not came
