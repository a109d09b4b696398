"""A ClickHouse server for tests: enough of its HTTP protocol over chDB, in a process of its own, with faults.

    python tests/support/clickhouse_server.py DIRECTORY   print the port, serve until standard input ends
    POST /_fault   {"kind": "error", "code": 241, "times": 1}

| fault  | what an INSERT meets                                                       |
|--------|----------------------------------------------------------------------------|
| reset  | the connection is reset, nothing was applied                               |
| slow   | `seconds` pass, then it is applied, whether the client is still there or not |
| error  | the error `code`, nothing was applied                                      |
| body   | a 200 whose body ends in an exception, nothing was applied                 |
| lost   | it is applied, and the connection is reset before the answer               |
| hang   | no answer until it is killed; nothing was applied                          |
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
    """What the next INSERTs meet."""

    kind: str = ""
    code: int = 0
    text: str = "injected"
    seconds: float = 0.0
    times: int = 1


@dataclass
class Engine:
    """The embedded engine, and who is asking it."""

    directory: Path
    running: dict[str, threading.Event] = field(default_factory=dict)
    """Query id → set when it was killed."""
    fault: Fault = field(default_factory=Fault)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self.anchor = chdb.connect(str(self.directory))  # type: ignore[no-untyped-call]  # no types
        self.anchor.query("CREATE DATABASE IF NOT EXISTS otel")

    def take_fault(self) -> Fault:
        """Give the fault that is due, once less."""
        with self.lock:
            if not self.fault.times:
                return Fault()
            self.fault.times -= 1
            return self.fault

    def ask(self, sql: str, asked: Asked) -> Any:  # noqa: ANN401 - chDB's result has no public type
        """Run one statement on a handle of its own."""
        handle = chdb.connect(str(self.directory))  # type: ignore[no-untyped-call]  # no types
        try:
            handle.query(f"USE `{asked.database}`")
            if asked.settings:
                handle.query("SET " + ", ".join(map(setting, asked.settings.items())))
            return handle.query(sql, asked.default_format, params=asked.parameters)
        finally:
            handle.close()


@dataclass
class Asked:
    """One request, taken apart."""

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
        """The body is the data."""
        return bool(self.body) and self.sql.lstrip().upper().startswith("INSERT")


def setting(named: tuple[str, str]) -> str:
    """Spell one setting as `SET` wants it."""
    name, value = named
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name} = '{quoted}'"


def taken_apart(target: str, body: bytes, encoding: str | None) -> Asked:
    """Read a request as the server does: unknown URL parameters are settings."""
    url = dict(parse_qsl(urlsplit(target).query, keep_blank_values=True))
    sql = url.get("query", "")
    if not sql:
        sql, body = body.decode(), b""
    return Asked(
        sql=sql,
        body=body,
        encoding=encoding,
        database=url.get("database", "default"),
        query_id=url.get("query_id", ""),
        default_format=url.get("default_format", "TabSeparated"),
        settings={k: v for k, v in url.items() if k not in NOT_SETTINGS and not k.startswith("param_")},
        parameters={k.removeprefix("param_"): v for k, v in url.items() if k.startswith("param_")},
    )


class Reset(Exception):  # noqa: N818 - an order, not an error
    """Reset the connection instead of answering."""


class Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    engine: Engine

    def do_GET(self) -> None:
        """Answer a ping or a question."""
        if self.path == "/ping":
            self.answer(200, b"Ok.\n", {})
        else:
            self.handle_statement(b"")

    def do_POST(self) -> None:
        """Answer a statement, or take a fault."""
        body = self.rfile.read(int(self.headers.get("Content-Length", "0")))
        if self.path == "/_fault":
            self.engine.fault = Fault(**json.loads(body))
            self.answer(200, b"", {})
        else:
            self.handle_statement(body)

    def handle_statement(self, body: bytes) -> None:
        """Run it, and answer as a server would."""
        asked = taken_apart(self.path, body, self.headers.get("Content-Encoding"))
        killed = threading.Event()
        if asked.query_id and self.engine.running.setdefault(asked.query_id, killed) is not killed:
            self.answer_error("Code: 216. DB::Exception: Query with id is already running. (QUERY_ID)")
            return
        try:
            self.answer_statement(asked, killed)
        except Reset:
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.close_connection = True
        except RuntimeError as error:
            self.answer_error(str(error))
        finally:
            self.engine.running.pop(asked.query_id, None)

    def answer_statement(self, asked: Asked, killed: threading.Event) -> None:
        """Run it under the fault that is due."""
        if asked.is_insert_of_body:
            self.answer_insert(asked, killed)
            return
        result = self.engine.ask(self.rewritten(asked), asked)
        found = _FORMAT.search(asked.sql)
        headers = {"X-ClickHouse-Format": found[1] if found else asked.default_format}
        self.answer(200, result.bytes() or b"", headers | summary_of(result))

    def answer_insert(self, asked: Asked, killed: threading.Event) -> None:
        """Insert the body, or do what the fault says."""
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
        result = self.insert(asked)
        if fault.kind == "lost":
            raise Reset
        self.answer(200, b"", summary_of(result))

    def insert(self, asked: Asked) -> Any:  # noqa: ANN401 - chDB's result has no public type
        """Let the engine unpack the body: that is what a server does with it."""
        with tempfile.NamedTemporaryFile(suffix=SUFFIX_OF[asked.encoding]) as file:
            file.write(asked.body)
            file.flush()
            source = f"FROM INFILE '{file.name}' {COMPRESSION_OF[asked.encoding]} FORMAT"
            return self.engine.ask(re.sub(r"\bFORMAT\b", source, asked.sql, count=1), asked)

    def rewritten(self, asked: Asked) -> str:
        """Let the process list be the requests in flight."""
        if asked.sql.startswith("KILL QUERY"):
            prefix = asked.parameters["prefix"]
            for query_id, killed in list(self.engine.running.items()):
                if query_id.startswith(prefix):
                    killed.set()
            return "SELECT 'waiting' AS kill_status WHERE 0 FORMAT Native"
        ids = ", ".join(f"'{query_id}'" for query_id in self.engine.running if query_id != asked.query_id)
        listed = f"(SELECT arrayJoin(CAST([{ids}], 'Array(String)')) AS query_id)"
        return asked.sql.replace("system.processes", listed)

    def answer_error(self, text: str) -> None:
        """Say an exception as a server does."""
        text = text[max(text.find("Code: "), 0) :].rstrip()
        text += "" if text.endswith(")") and "(version " in text else " (version 26.9.2.1)"
        found = _CODE.search(text)
        code = int(found[1]) if found else 1001
        self.answer(STATUS_OF.get(code, 500), text.encode(), {"X-ClickHouse-Exception-Code": str(code)})

    def answer(self, status: int, body: bytes, headers: dict[str, str]) -> None:
        """Send one whole answer."""
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


def summary_of(result: Any) -> dict[str, str]:  # noqa: ANN401 - chDB's result has no public type
    """Tell what was read, in the header where clients look for it."""
    return {"X-ClickHouse-Summary": json.dumps({"read_rows": str(result.rows_read())})}


def main() -> None:
    """Serve until standard input ends."""
    Handler.engine = Engine(Path(sys.argv[1]))
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    print(server.server_address[1], flush=True)  # noqa: T201 - how the port is told
    threading.Thread(target=server.serve_forever, daemon=True).start()
    sys.stdin.read()


if __name__ == "__main__":
    main()
