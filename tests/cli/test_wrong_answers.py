"""Commands report an answer that is not from the receiver, such as a proxy's, and exit with 1."""

from __future__ import annotations

import json
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import ClassVar

import pytest
from click.testing import CliRunner

from receiver.cli import main
from tests.support.cases import each_case
from tests.support.fake_api import receiver_with

HTML = b"<!doctype html><title>s3cret login</title>"
OTHER_JSON = json.dumps({"status": "s3cret"}).encode()
COMMANDS = [
    ["search"],
    ["spans"],
    ["services"],
    ["operations", "web"],
    ["attributes"],
    ["service-map"],
    ["red"],
    ["latency"],
    ["errors"],
    ["deployments"],
    ["compare", "dpl_1", "dpl_2"],
    ["shifts", "root"],
    ["trace", "0" * 32],
    ["ledger"],
    ["schema", "status"],
    ["rollup", "status"],
    ["dead", "ls"],
    ["dead", "replay", "x"],
    ["dead", "drop", "x", "--yes"],
    ["sql", "SELECT 1"],
    ["export", "-o", "-"],
    ["export", "-o", "-", "--format", "parquet"],
]


class OtherServer(BaseHTTPRequestHandler):
    """Server that answers every request with the same body."""

    content_type: ClassVar[str]
    body: ClassVar[bytes]

    def do_GET(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_response(200)
        self.send_header("Content-Type", self.content_type)
        self.send_header("Content-Length", str(len(self.body)))
        self.end_headers()
        self.wfile.write(self.body)

    def do_POST(self) -> None:
        self.do_GET()

    def do_DELETE(self) -> None:
        self.do_GET()

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Log nothing."""


def server_with(content_type_of_answers: str, body_of_answers: bytes) -> type[OtherServer]:
    class Handler(OtherServer):
        content_type = content_type_of_answers
        body = body_of_answers

    return Handler


@each_case(
    ("content_type", "body"),
    [
        pytest.param("text/html", HTML, id="HTML"),
        pytest.param("application/json", HTML, id="HTML declared as JSON"),
        pytest.param("application/json", OTHER_JSON, id="other JSON"),
        pytest.param("application/json", b"[]", id="a JSON list"),
        pytest.param("application/json", b"", id="nothing"),
    ],
)
@each_case("command", COMMANDS, ids=" ".join)
def test_answer_of_another_server_is_an_error(
    tmp_path: Path, command: list[str], content_type: str, body: bytes
) -> None:
    with receiver_with(server_with(content_type, body), tmp_path) as data_dir:
        result = CliRunner().invoke(main, [*command, "--data", data_dir])

    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "the answer is not from a receiver" in result.output
    assert "s3cret" not in result.output
