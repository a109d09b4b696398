"""Reverse proxy in front of a receiver that makes one mistake."""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tests.support.fake_api import QuietHandler, serving

Headers = list[tuple[str, str]]


@dataclass
class Message:
    """A request on its way to the receiver."""

    method: str
    path: str
    headers: Headers
    body: bytes

    def without(self, name: str) -> Headers:
        return [(key, value) for key, value in self.headers if key.lower() != name.lower()]

    def value(self, name: str) -> str:
        return {key.lower(): value for key, value in self.headers}.get(name.lower(), "")


@dataclass
class Page:
    """An answer of the proxy itself."""

    status: int
    headers: Headers
    body: bytes = b"<html>"


Change = Callable[[Message], Message | Page]
AnswerChange = Callable[[Headers], Headers]


def unchanged(message: Message) -> Message:
    return message


@contextmanager
def proxy(
    port: int,
    change: Change = unchanged,
    change_answer: AnswerChange = list,
    tls: ssl.SSLContext | None = None,
) -> Iterator[int]:
    """Forward requests to a port of this machine. Yields the port of the proxy."""

    class Handler(QuietHandler):
        protocol_version = "HTTP/1.1"

        def forward(self) -> None:
            length = int(self.headers.get("Content-Length", "0"))
            body = self.rfile.read(length)
            result = change(Message(self.command, self.path, list(self.headers.items()), body))
            if isinstance(result, Message):
                result = sent(port, result)
            self.send_response_only(result.status)
            for name, value in change_answer(result.headers):
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(result.body)))
            self.send_header("Connection", "close")
            self.end_headers()
            self.wfile.write(result.body)
            self.close_connection = True

        do_GET = do_POST = forward  # noqa: N815 - http.server's names

    with serving(Handler, tls) as url:
        yield int(url.rpartition(":")[2])


def sent(port: int, message: Message) -> Page:
    """Send a request to the receiver and return its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
    connection.putrequest(message.method, message.path, skip_accept_encoding=True)
    for name, value in message.headers:
        if name.lower() not in {"host", "accept-encoding", "content-length", "connection"}:
            connection.putheader(name, value)
    connection.putheader("Content-Length", str(len(message.body)))
    connection.endheaders(message.body)
    answer = connection.getresponse()
    kept = [item for item in answer.getheaders() if item[0].lower() not in {"content-length", "connection"}]
    page = Page(answer.status, kept, answer.read())
    connection.close()
    return page
