"""Data directory of a receiver that runs: its API is a handler of the test."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from urllib.parse import parse_qsl, urlsplit

from receiver.supervisor.data_dir import STATE_NAME

POLL_S = 0.01
"""How often the server checks whether the test is over."""


class ApiHandler(BaseHTTPRequestHandler):
    """Base of handlers: chunked answers of JSON lines, which lack the last chunk."""

    protocol_version = "HTTP/1.1"
    content_type = "application/x-ndjson"

    def lines_for(self, query: dict[str, str]) -> list[str]:
        """Return the lines of the answer to a query with these parameters."""
        raise NotImplementedError

    def do_GET(self) -> None:
        lines = self.lines_for(dict(parse_qsl(urlsplit(self.path).query)))
        body = "".join(f"{line}\n" for line in lines).encode()
        self.send_response(200)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        self.wfile.write(b"%x\r\n%s\r\n" % (len(body), body))
        self.close_connection = True

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


@contextmanager
def receiver_with(handler: type[BaseHTTPRequestHandler], directory: Path) -> Iterator[str]:
    """Yield the data directory of a receiver, which is this process."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    Thread(target=server.serve_forever, args=(POLL_S,), daemon=True).start()
    api = f"127.0.0.1:{server.server_address[1]}"
    texts = dict.fromkeys(("listen", "admin", "version", "started_at"), "")
    pids = {"supervisor": os.getpid(), "intake": [], "store": 0}
    state = {**texts, "api": api, "urls": {"api": f"http://{api}"}, "pids": pids}
    (directory / STATE_NAME).write_text(json.dumps(state))
    yield str(directory)
    server.shutdown()
    server.server_close()
