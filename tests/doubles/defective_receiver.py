"""Fake receiver for tests of the load command: stores what it receives, optionally with a defect.

| defect   | effect on a delivery that is answered with 200            |
|----------|-----------------------------------------------------------|
| forgets  | stores nothing                                            |
| drops    | omits the last span                                       |
| doubles  | stores the first span twice                               |
| renames  | changes the name of every span                            |
| late     | none; but the first query for each trace has no spans     |

`script` lists what the first requests get instead of a 200: a status, with Retry-After after a comma, `reset`
or `stall`.
"""

from __future__ import annotations

import gzip
import json
import ssl
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from tests.e2e.expected import rows_of

Row = dict[str, Any]
STALL_S = 0.5


class DefectiveReceiver(ThreadingHTTPServer):
    """HTTP server with the OTLP endpoint and the query API."""

    daemon_threads = True

    def __init__(self, defect: str = "", script: tuple[str, ...] = (), rejected: int = 0) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.defect = defect
        self.script = list(script)
        self.rejected = rejected
        self.bodies: list[bytes] = []
        """All request bodies, including those that were refused."""
        self.headers: list[dict[str, str]] = []
        self.rows: list[Row] = []
        self.queried: set[str] = set()
        """Traces that were queried."""
        self.lock = threading.Lock()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def record(self, body: bytes, headers: dict[str, str]) -> str:
        """Record a request and return its scripted outcome; empty: answer with 200."""
        with self.lock:
            self.bodies.append(body)
            self.headers.append(headers)
            scripted = self.script.pop(0) if self.script else ""
            if not scripted or scripted == "stall":
                plain = gzip.decompress(body) if headers.get("content-encoding") == "gzip" else body
                rows = rows_of(ExportTraceServiceRequest.FromString(plain))
                self.rows += with_defect(rows, self.defect)
        return scripted


@contextmanager
def listening(
    *script: str, defect: str = "", rejected: int = 0, tls: ssl.SSLContext | None = None
) -> Iterator[DefectiveReceiver]:
    """Run a fake receiver during a `with` block."""
    server = DefectiveReceiver(defect, script, rejected)
    if tls is not None:
        server.socket = tls.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class Handler(BaseHTTPRequestHandler):
    """Handler of one connection."""

    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: DefectiveReceiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["content-length"]))
        scripted = self.server.record(body, {name.lower(): value for name, value in self.headers.items()})
        if scripted == "reset":
            self.close_connection = True
            return
        if scripted == "stall":
            time.sleep(STALL_S)
        status, _, retry_after = scripted.partition(",") if scripted[:1].isdigit() else ("200", "", "")
        partial = {"partialSuccess": {"rejectedSpans": str(self.server.rejected)}}
        answer = json.dumps(partial if self.server.rejected else {}).encode()
        self._send(int(status), answer, {"Retry-After": retry_after} if retry_after else {})

    def do_GET(self) -> None:
        parts = urlsplit(self.path)
        if parts.path == "/api/v1/counts":
            query = parse_qs(parts.query)
            self._lines(count_spans(self.server.rows, query["trace_id"][0], int(query["digits"][0])))
        else:
            trace_id = parts.path.rpartition("/")[2]
            is_late = self.server.defect == "late" and trace_id not in self.server.queried
            self.server.queried.add(trace_id)
            self._lines([row for row in self.server.rows if row["TraceId"] == trace_id and not is_late])

    def _lines(self, rows: list[Row]) -> None:
        lines = [*rows, {"end": {"count": len(rows)}}]
        body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
        self._send(200, body, {"Content-Type": "application/x-ndjson"})

    def _send(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


def count_spans(rows: list[Row], prefix: str, digits: int) -> list[Row]:
    """Count spans and distinct span ids per prefix, as the query API does."""
    groups: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row["TraceId"].startswith(prefix):
            groups[row["TraceId"][:digits]].append(row)
    return [
        {"Prefix": start, "Spans": len(group), "Distinct": len({row["SpanId"] for row in group})}
        for start, group in groups.items()
    ]


def with_defect(rows: list[Row], defect: str) -> list[Row]:
    """Return the rows to store, changed by the defect."""
    match defect:
        case "forgets":
            return []
        case "drops":
            return rows[:-1]
        case "doubles":
            return [*rows, rows[0]]
        case "renames":
            return [{**row, "SpanName": "another"} for row in rows]
        case _:
            return rows
