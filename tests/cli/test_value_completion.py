"""Tests of the completion of services, attributes and deployments that a receiver has stored."""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from click.testing import CliRunner

from receiver.cli import main, value_completion
from receiver.supervisor.data_dir import STATE_NAME

ANSWERS = {
    "services": [{"service": name} for name in ("web", "worker", "cart", "", "we\x1b[2J")],
    "attributes": [
        {"scope": "span", "key": "http.route"},
        {"scope": "resource", "key": "host"},
        {"scope": "span", "key": "host"},
    ],
    "deployments": [{"deployment": name} for name in ("dpl_2", "dpl_1", "dpl_2", "", "next")],
}


class Handler(BaseHTTPRequestHandler):
    """Fake API of a receiver, which needs no token."""

    def do_GET(self) -> None:
        rows = ANSWERS[self.path.partition("?")[0].rpartition("/")[2]]
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.end_headers()
        for row in [*rows, {"end": {"count": len(rows), "cut": False}}]:
            self.wfile.write(json.dumps(row).encode() + b"\n")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


def write_state(data_dir: Path, port: int) -> None:
    """Write the state file of a running receiver, which is this process."""
    state = {
        "listen": "",
        "admin": "",
        "api": "",
        "urls": {"api": f"http://127.0.0.1:{port}"},
        "pids": {"supervisor": os.getpid(), "intake": [], "store": 0},
        "version": "",
        "started_at": "",
    }
    (data_dir / STATE_NAME).write_text(json.dumps(state))


@pytest.fixture
def receiver_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(value_completion, "ANSWER_S", 60)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    write_state(tmp_path, server.server_address[1])
    yield tmp_path
    server.shutdown()
    server.server_close()


def completions(typed: str, incomplete: str) -> list[str]:
    """Return what bash shows for a command line; `incomplete` is its last word, which may be empty."""
    environ = {
        "_TRACE_DRAIN_COMPLETE": "bash_complete",
        "COMP_WORDS": f"{typed} {incomplete}",
        "COMP_CWORD": str(len(typed.split())),
    }
    result = CliRunner().invoke(main, [], env=environ, prog_name="trace-drain")
    assert result.stderr == ""
    return [line.partition(",")[2] for line in result.stdout.splitlines() if line]


@pytest.mark.parametrize(
    ("typed", "incomplete", "expected"),
    [
        ("operations", "w", ["web", "worker"]),
        ("operations", "", ["web", "worker", "cart"]),
        ("spans --service", "c", ["cart"]),
        ("attributes", "h", ["host", "http.route"]),
        ("red --by", "ht", ["http.route"]),
        ("red --by", "s", ["service", "status", "span.host"]),
        ("red --by", "re", ["resource.host"]),
        ("red --spans", "r", []),
        ("compare", "d", ["dpl_2", "dpl_1"]),
        ("compare dpl_1", "", ["dpl_2", "dpl_1", "next"]),
    ],
)
def test_names_are_completed(receiver_dir: Path, typed: str, incomplete: str, expected: list[str]) -> None:
    command, *rest = typed.split()
    line = " ".join(["trace-drain", command, "--data", str(receiver_dir), *rest])

    assert completions(line, incomplete) == expected


def test_completion_is_empty_if_the_receiver_does_not_answer_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_completion, "ANSWER_S", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        write_state(tmp_path, silent.getsockname()[1])

        assert completions(f"trace-drain operations --data {tmp_path}", "") == []


@pytest.mark.parametrize("state", [None, "{", "refused"])
def test_completion_is_empty_without_an_error_if_no_receiver_answers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str | None
) -> None:
    monkeypatch.setattr(value_completion, "ANSWER_S", 60)
    if state == "refused":
        with socket.create_server(("127.0.0.1", 0)) as closed:
            write_state(tmp_path, closed.getsockname()[1])
    elif state is not None:
        (tmp_path / STATE_NAME).write_text(state)

    assert completions(f"trace-drain operations --data {tmp_path}", "") == []
    assert completions(f"trace-drain red --data {tmp_path} --by", "servi") == ["service"]
    assert completions("trace-drain operations --config absent.toml", "") == []
