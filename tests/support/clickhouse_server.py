"""ClickHouse stand-in for tests: part of the HTTP protocol on chDB, in its own process, with injected faults.

    python tests/support/clickhouse_server.py DIRECTORY   print the port, serve until standard input is closed
    POST /_fault   {"kind": "error", "code": 241, "times": 1}

| fault  | effect on an INSERT                                                               |
|--------|-----------------------------------------------------------------------------------|
| reset  | not applied; the connection is reset                                              |
| slow   | applied after `seconds`, even if the client has disconnected                      |
| error  | not applied; answered with the error `code`                                       |
| body   | not applied; answered with a 200 whose body ends in an exception                  |
| lost   | applied; the connection is reset before the answer                                |
| hang   | not applied; no answer until it is killed                                         |
"""

from __future__ import annotations

import json
import re
import socket
import struct
import sys
import tempfile
import threading
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import chdb

NOT_SETTINGS = {
    *("query", "query_id", "database", "default_format", "wait_end_of_query", "compress", "decompress"),
    *("session_id", "client_protocol_version", "user", "password", "role", "quota_key", "buffer_size"),
    *("enable_http_compression", "send_progress_in_http_headers", "http_headers_progress_interval_ms"),
    "cancel_http_readonly_queries_on_client_close",
}
STATUS_OF = {60: 404, 81: 404, 62: 400, 516: 403, 497: 403, 241: 500, 202: 503}
SUFFIX_OF = {"lz4": ".native.lz4", "zstd": ".native.zst", None: ".native"}
COMPRESSION_OF = {"lz4": "COMPRESSION 'lz4'", "zstd": "COMPRESSION 'zstd'", None: "COMPRESSION 'none'"}

_FORMAT = re.compile(r"\bFORMAT\s+(\w+)\s*$", re.IGNORECASE)
_CODE = re.compile(r"Code: (\d+)")


@dataclass
class Fault:
    """Fault that is injected into the next INSERTs."""

    kind: str = ""
    code: int = 0
    text: str = "injected"
    seconds: float = 0.0
    times: int = 1


@dataclass
class Engine:
    """The embedded engine and its running queries."""

    directory: Path
    running: dict[str, threading.Event] = field(default_factory=dict)
    """Query id → event that is set when the query is killed."""
    fault: Fault = field(default_factory=Fault)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.anchor = chdb.connect(str(self.directory))  # type: ignore[no-untyped-call]  # no types
        self.anchor.query("CREATE DATABASE IF NOT EXISTS otel")

    def take_fault(self) -> Fault:
        """Return the fault for the next INSERT and decrement its count."""
        with self.lock:
            if not self.fault.times:
                return Fault()
            self.fault.times -= 1
            return self.fault

    def ask(self, sql: str, query: Query) -> Any:  # noqa: ANN401 - chDB's result has no public type
        """Run one statement on its own connection."""
        connection = chdb.connect(str(self.directory))  # type: ignore[no-untyped-call]  # no types
        try:
            connection.query(f"USE `{query.database}`")
            if query.settings:
                connection.query("SET " + ", ".join(map(setting, query.settings.items())))
            return connection.query(sql, query.default_format, params=query.parameters)
        finally:
            connection.close()


@dataclass
class Query:
    """A parsed request."""

    sql: str
    body: bytes
    encoding: str | None
    database: str
    query_id: str
    default_format: str
    settings: dict[str, str]
    parameters: dict[str, str]

    @property
    def is_insert_of_body(self) -> bool:
        """Whether the body is the data of an INSERT."""
        return bool(self.body) and self.sql.lstrip().upper().startswith("INSERT")


def setting(named: tuple[str, str]) -> str:
    """Format a setting for a `SET` statement."""
    name, value = named
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name} = '{quoted}'"


def parse_form(body: bytes, content_type: str) -> dict[str, str]:
    """Parse the fields of a multipart form, in which drivers send a query with long parameters."""
    boundary = content_type.partition("boundary=")[2].strip('"').encode()
    parts = [part.partition(b"\r\n\r\n") for part in body.split(b"--" + boundary)[1:-1]]
    return {
        head.partition(b'name="')[2].partition(b'"')[0].decode(): value.removesuffix(b"\r\n").decode()
        for head, _, value in parts
    }


def parse_request(target: str, body: bytes, encoding: str | None, content_type: str = "") -> Query:
    """Parse a request as the server does: unknown URL parameters are settings."""
    url = dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
    if content_type.startswith("multipart/form-data"):
        url |= parse_form(body, content_type)
        body = b""
    sql = url.get("query", "")
    if not sql:
        sql, body = body.decode(), b""
    return Query(
        sql=sql,
        body=body,
        encoding=encoding,
        database=url.get("database", "default"),
        query_id=url.get("query_id", ""),
        default_format=url.get("default_format", "TabSeparated"),
        settings={k: v for k, v in url.items() if k not in NOT_SETTINGS and not k.startswith("param_")},
        parameters={k.removeprefix("param_"): v for k, v in url.items() if k.startswith("param_")},
    )


class Reset(Exception):  # noqa: N818 - control flow, not an error
    """Raised to reset the connection instead of answering."""


class Handler(BaseHTTPRequestHandler):
    """Handler of one connection."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        """Answer a ping or a query."""
        if self.path == "/ping":
            self.answer(200, b"Ok.\n", {})
        else:
            self.handle_statement(b"")

    def do_POST(self) -> None:
        """Answer a statement, or set the fault for the next INSERTs."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/_fault":
            self.engine.fault = Fault(**json.loads(body))
            self.answer(200, b"", {})
        else:
            self.handle_statement(body)

    def handle_statement(self, body: bytes) -> None:
        """Run a statement and answer as a server would."""
        query = parse_request(
            self.path, body, self.headers.get("Content-Encoding"), self.headers.get("Content-Type", "")
        )
        killed = threading.Event()
        if query.query_id and self.engine.running.setdefault(query.query_id, killed) is not killed:
            self.answer_error("Code: 216. DB::Exception: Query with id is already running. (QUERY_ID)")
            return
        try:
            self.answer_statement(query, killed)
        # The client may have closed the connection meanwhile.
        except (Reset, ConnectionError):
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        except RuntimeError as error:
            self.answer_error(str(error))
        finally:
            self.engine.running.pop(query.query_id, None)

    def answer_statement(self, query: Query, killed: threading.Event) -> None:
        """Run a statement, with the fault to be injected."""
        if query.is_insert_of_body:
            self.answer_insert(query, killed)
            return
        result = self.engine.ask(self.rewrite(query), query)
        match = _FORMAT.search(query.sql)
        headers = {"X-ClickHouse-Format": match[1] if match else query.default_format}
        self.answer(200, result.bytes() or b"", headers | summary_of(result))

    def answer_insert(self, query: Query, killed: threading.Event) -> None:
        """Insert the body, with the fault to be injected."""
        fault = self.engine.take_fault()
        if fault.kind == "reset":
            raise Reset
        if fault.kind == "hang":
            killed.wait()
            raise Reset
        if fault.kind == "slow" and killed.wait(fault.seconds):
            raise RuntimeError("Code: 394. DB::Exception: Query was cancelled. (QUERY_WAS_CANCELLED)")
        text = f"Code: {fault.code}. DB::Exception: {fault.text}. (INJECTED)"
        if fault.kind == "error":
            raise RuntimeError(text)
        if fault.kind == "body":
            self.answer(200, b"some output\n" + text.encode(), {})
            return
        result = self.insert(query)
        if fault.kind == "answer_lost":
            raise Reset
        self.answer(200, b"", summary_of(result))

    def insert(self, query: Query) -> Any:  # noqa: ANN401 - chDB's result has no public type
        """Insert the body from a file, so that the engine decompresses it."""
        with tempfile.NamedTemporaryFile(suffix=SUFFIX_OF[query.encoding]) as file:
            file.write(query.body)
            file.flush()
            source = f"FROM INFILE '{file.name}' {COMPRESSION_OF[query.encoding]} FORMAT"
            return self.engine.ask(re.sub(r"\bFORMAT\b", source, query.sql, count=1), query)

    def rewrite(self, query: Query) -> str:
        """Rewrite a statement so that `system.processes` lists the requests in flight."""
        if query.sql.startswith("KILL QUERY"):
            prefix = query.parameters["prefix"]
            for query_id, killed in list(self.engine.running.items()):
                if query_id.startswith(prefix):
                    killed.set()
            return "SELECT 'waiting' AS kill_status WHERE 0 FORMAT Native"
        ids = ", ".join(f"'{query_id}'" for query_id in self.engine.running if query_id != query.query_id)
        processes = (
            f"(SELECT arrayJoin(CAST([{ids}], 'Array(String)')) AS query_id, query_id AS initial_query_id)"
        )
        return query.sql.replace("system.processes", processes)

    def answer_error(self, text: str) -> None:
        """Answer with an exception as a server does."""
        text = text[max(text.find("Code: "), 0) :].rstrip()
        text += "" if text.endswith(")") and "(version " in text else " (version 26.9.2.1)"
        match = _CODE.search(text)
        code = int(match[1]) if match else 1001
        self.answer(STATUS_OF.get(code, 500), text.encode(), {"X-ClickHouse-Exception-Code": str(code)})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send a complete answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


def summary_of(result: Any) -> dict[str, str]:  # noqa: ANN401 - chDB's result has no public type
    """Return the header that tells clients how many rows were read."""
    return {"X-ClickHouse-Summary": json.dumps({"read_rows": str(result.rows_read())})}


def main() -> None:
    """Serve until standard input is closed."""
    Handler.engine = Engine(Path(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)  # noqa: T201 - the parent process reads the port
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
