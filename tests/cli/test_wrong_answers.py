"""Commands report an answer that is not from the receiver, such as a proxy's, and exit with 1."""

from __future__ import annotations

import json
from pathlib import Path
from typing import ClassVar

import pytest

from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import QuietHandler, receiver_with

HTML = b"<!doctype html><title>s3cret login</title>"
OTHER_JSON = json.dumps({"status": "s3cret"}).encode()
COMMANDS = (
    *(
        "search",
        "spans",
        "services",
        "operations web",
        "attributes",
        "service-map",
        "red",
        "chart",
        "latency",
        "errors",
    ),
    *("deployments", "compare dpl_1 dpl_2", "shifts root", f"trace {'0' * 32}", "ledger", "schema status"),
    *("rollup status", "dead ls", "dead replay x", "dead drop x --yes", "sql SELECT", "export -o -"),
    "export -o - --format parquet",
)


class OtherServer(QuietHandler):
    """Server that answers every request with the same body."""

    content_type: ClassVar[str]
    body: ClassVar[bytes]

    def do_GET(self) -> None:  # noqa: N802 - the standard library's name
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.send_whole(200, self.body, self.content_type)

    do_POST = do_DELETE = do_GET  # noqa: N815 - as above


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
@each_case("command", COMMANDS)
def test_answer_of_another_server_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, content_type: str, body: bytes
) -> None:
    monkeypatch.setattr(OtherServer, "content_type", content_type, raising=False)
    monkeypatch.setattr(OtherServer, "body", body, raising=False)
    with receiver_with(OtherServer, tmp_path) as data_dir:
        result = run(*command.split(), "--data", data_dir)

    assert result.exit_code == 1, result.output
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "the answer is not from a receiver" in result.output
    assert "s3cret" not in result.output
