"""Data directory of a receiver that runs: its API is a handler of the test."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from socket import socket
from ssl import SSLContext
from threading import Thread
from urllib.parse import parse_qsl, urlsplit

from receiver.supervisor.state import STATE_NAME

POLL_S = 0.01  # how often the server checks whether the test is over


class QuietHandler(BaseHTTPRequestHandler):
    """Base of handlers, which logs nothing."""

    def send_whole(self, status: int, body: bytes, content_type: str) -> None:
        """Send a response whose length is known."""
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


class ApiHandler(QuietHandler):
    """Base of handlers: chunked answers of JSON lines, which lack the last chunk."""

    protocol_version = "HTTP/1.1"
    content_type = "application/x-ndjson"

    def lines_for(self, query: dict[str, str]) -> list[str]:
        """Return the lines of the answer to a query with these parameters."""
        raise NotImplementedError

    def do_GET(self) -> None:
        lines = self.lines_for(dict(parse_qsl(urlsplit(self.path).query)))
        self.send_chunks(["".join(f"{line}\n" for line in lines).encode()])

    def send_chunks(self, chunks: list[bytes]) -> None:
        """Send a response without its last chunk."""
        self.send_response(200)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.close_connection = True


class QuietServer(ThreadingHTTPServer):
    """Server whose clients may close the connection in the middle of an answer."""

    def handle_error(self, request: socket | tuple[bytes, socket], client_address: object) -> None:
        """Print an error, which appears in the output of a command, unless the client caused it."""
        if not isinstance(sys.exception(), OSError):
            super().handle_error(request, client_address)


@contextmanager
def serving(handler: type[BaseHTTPRequestHandler], tls: SSLContext | None = None) -> Iterator[str]:
    """Yield the URL of a server with this handler; its scheme is http with TLS, too."""
    server = QuietServer(("127.0.0.1", 0), handler)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def write_state(directory: Path, api_url: str, admin_url: str = "") -> None:
    """Write the state file of a receiver that runs on a data directory: it is this process."""
    texts = dict.fromkeys(("listen", "admin", "version", "started_at"), "")
    pids = {"supervisor": os.getpid(), "intake": [], "store": 0}
    urls = {"api": api_url, "admin": admin_url}
    state = {**texts, "api": api_url.removeprefix("http://"), "urls": urls, "pids": pids}
    (directory / STATE_NAME).write_text(json.dumps(state))


@contextmanager
def receiver_with(handler: type[BaseHTTPRequestHandler], directory: Path) -> Iterator[str]:
    """Yield the data directory of a receiver, which is this process."""
    with serving(handler) as url:
        write_state(directory, url)
        yield str(directory)
