"""Tests of `trace-drain trace` and `spans`, with and without a running receiver."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

from receiver.cli.shell.api_client import query_receiver
from receiver.engine import schema
from receiver.engine.opening import claimed, open_store
from receiver.errors import OperatorError
from receiver.settings import Settings
from receiver.supervisor.state import STATE_NAME, running_receiver
from tests.support.commands import run
from tests.support.fake_api import ApiHandler, receiver_with
from tests.support.fake_clickhouse import ROOT, schema_sources
from tests.support.segments import Segment, SegmentMaker


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Path:
    return engine_dir.parent


@pytest.fixture(scope="module")
def stored(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Segment:
    """Store two spans of today."""
    segment = SegmentMaker(tmp_path_factory.mktemp("segments")).make(0, 0)
    store = open_store(Settings(data_dir=str(data_dir)), disk_free_min=lambda: 1)
    schema.apply(store, schema_sources(), 30)
    store.insert(segment.path, token="cli#0", query_id="trace-drain-cli#0")
    store.close()
    return segment


def test_spans_as_json_lines_have_every_column(data_dir: Path, stored: Segment) -> None:
    result = run("spans", "--data", str(data_dir), "--since", "30d", "--format", "jsonl")

    rows = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0, result.output
    assert {row["SegmentSeq"] for row in rows} == {stored.location.segment.seq}
    assert [sorted(row["SpanAttributes"].items()) for row in rows] == [[("k", "v1")], [("k", "v0")]]
    assert {len(row) for row in rows} == {38}


def test_spans_table_has_a_header_and_a_line_per_span(data_dir: Path, stored: Segment) -> None:
    result = run("spans", "--data", str(data_dir), "--since", "30d", "--service", "shop")

    head, line = result.output.splitlines()
    assert head.split()[:3] == ["started", "(UTC)", "project"]
    assert "prj_1" in line
    assert f"{stored.location.segment.seq:016x}" in line


def test_trace_is_printed_as_a_tree_and_as_json(data_dir: Path, stored: Segment) -> None:
    trace_id = f"{stored.location.segment.seq:016x}{0:016x}"

    shown = run("trace", trace_id, "--data", str(data_dir))
    listed = run("trace", trace_id, "--data", str(data_dir), "--format", "json")

    assert shown.output.startswith(f"trace {trace_id}: 1 span of cart; project prj_0\n")
    assert [row["TraceId"] for row in json.loads(listed.output)] == [trace_id]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        pytest.param(["trace", "xyz"], 2, "expected 32 hex digits", id="invalid trace id"),
        pytest.param(["trace", "0" * 32], 1, "no span of trace", id="unknown trace"),
        pytest.param(["spans", "--since", "soon"], 2, "like 15m", id="invalid age"),
        pytest.param(["spans", "--limit", "many"], 2, "whole number", id="invalid number"),
    ],
)
@pytest.mark.usefixtures("stored")
def test_invalid_arguments_are_refused_in_a_single_line(
    data_dir: Path, arguments: list[str], code: int, message: str
) -> None:
    result = run(*arguments, "--data", str(data_dir))

    assert result.exit_code == code
    assert message in result.output
    assert result.output.count("\n") == 1


def test_missing_store_and_missing_tables_are_reported_with_the_command_that_creates_them(
    tmp_path: Path,
) -> None:
    missing = run("spans", "--data", str(tmp_path))
    (tmp_path / "store").mkdir()
    # In a process of its own: other tests of this process may have another store open.
    command = [sys.executable, "-m", "receiver.cli", "spans", "--data", str(tmp_path)]
    empty = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)

    assert (missing.exit_code, empty.returncode) == (1, 1)
    assert "trace-drain serve --data" in missing.output
    assert empty.stderr == "trace-drain: the store has no tables; run `trace-drain schema apply`\n"


def test_store_opened_by_another_process_is_reported(data_dir: Path, stored: Segment) -> None:
    with claimed(data_dir):
        result = run("spans", "--data", str(data_dir))

    assert "in use by another process" in result.output
    assert stored.days


HOSTILE = "a\x1b[2J\x07\x9b\x7f\u202e\u2028\r"


class Handler(ApiHandler):
    """Fake API: answers to one query with one token, or with the chunks of a test."""

    chunks: ClassVar[list[bytes] | None] = None
    error: ClassVar[str] = "unknown parameter"
    refusals: ClassVar[list[int]]
    """Statuses of the first answers."""

    def do_GET(self) -> None:  # noqa: N802 - the standard library's name
        has_token = self.headers["Authorization"] == "Bearer t"
        if self.refusals:
            self.send_whole(self.refusals.pop(), b"", self.content_type)
        elif self.chunks is not None:
            self.send_chunks(self.chunks)
        elif has_token and self.path == "/api/v1/spans?limit=1":
            self.send_whole(200, b'{"a": 1}\n{"a": 2}\n{"end":{"count":2}}\n', self.content_type)
        else:
            body = json.dumps({"detail": self.error}).encode()
            self.send_whole(400 if has_token else 401, body, self.content_type)


@pytest.fixture
def receiver_dir(tmp_path: Path) -> Iterator[Path]:
    """Return the data directory of a running receiver with the fake API."""
    Handler.refusals = []
    with receiver_with(Handler, tmp_path):
        yield tmp_path


def test_running_receiver_is_queried_with_the_token(receiver_dir: Path) -> None:
    settings = Settings(data_dir=str(receiver_dir), api_token="t")
    state = running_receiver(settings)
    assert state is not None

    assert list(query_receiver(settings, state, "/api/v1/spans", {"limit": "1"})) == [{"a": 1}, {"a": 2}]
    with pytest.raises(OperatorError, match=r"^unknown parameter") as refused:
        list(query_receiver(settings, state, "/api/v1/spans", {"nonsense": "1"}))
    assert refused.value.exit_code == 2


def test_error_of_the_receiver_about_a_filter_is_shown_with_a_caret(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "error", "filter, column 7: the regular expression is not valid")

    result = run("search", 'name=~"("', "--data", str(receiver_dir), TRACE_DRAIN_API_TOKEN="t")

    assert result.exit_code == 2
    assert result.stderr.splitlines()[1:] == ['  name=~"("', "        ^"]


def test_value_like_a_time_is_printed_as_it_is(receiver_dir: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = b'{"value":"2026-11-24T10:00:00Z","spans":1}\n{"value":"never","spans":1}\n'
    monkeypatch.setattr(Handler, "chunks", [rows, b'{"end":{"count":2}}\n'])

    result = run("attributes", "deployed.at", "--data", str(receiver_dir))

    assert result.stdout.split() == ["value", "spans", "2026-11-24T10:00:00Z", "1", "never", "1"]


@pytest.mark.parametrize(
    ("chunks", "count"),
    [
        pytest.param([], 0, id="no line"),
        pytest.param([b'{"a":1}\n', b'{"a":2}\n'], 2, id="no last line"),
        pytest.param([b'{"a":1}\n', b'{"a":2'], 1, id="half a line"),
        pytest.param([b'{"a":1}\n', b'{"end":{"count":2}}\n', b"0\r\n\r\n"], 1, id="wrong count"),
        pytest.param([b"[1]\n", b'{"end":{"count":1}}\n', b"0\r\n\r\n"], 0, id="not an object"),
    ],
)
def test_incomplete_answer_exits_with_1_and_reports_the_number_of_lines(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch, chunks: list[bytes], count: int
) -> None:
    monkeypatch.setattr(Handler, "chunks", chunks)

    result = run("spans", "--data", str(receiver_dir), "--format", "jsonl")

    assert result.exit_code == 1
    assert len(result.output.splitlines()) == count + 1
    assert f"ended after {count} line" in result.output


@pytest.mark.parametrize(
    "arguments",
    [("trace", "a" * 32, "--format", "json"), ("trace", "a" * 32, "--format", "jsonl")]
    + [(name, "--format", form) for name in ("spans", "services") for form in ("table", "csv", "jsonl")],
)
def test_every_format_escapes_control_and_direction_characters(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    names = ("ProjectId", "ServiceName", "SpanName", "TraceId", "StatusCode", "DeploymentId")
    columns = dict.fromkeys(names, HOSTILE)
    row = {**columns, "Timestamp": "2026-01-31 10:00:00.000000000", "Duration": 1}
    line = json.dumps(row).encode() + b"\n"
    monkeypatch.setattr(Handler, "chunks", [line, b'{"end":{"count":1}}\n', b"0\r\n\r\n"])

    result = run(*arguments, "--data", str(receiver_dir))

    assert result.exit_code == 0, result.output
    assert "x1b" in result.output or "u001b" in result.output
    assert result.output.replace("\n", "").isprintable()


def test_answer_without_a_last_chunk_is_complete_if_its_count_is_right(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "chunks", [b'{"a":1}\n{"end":{"count":1}}\n'])

    result = run("spans", "--data", str(receiver_dir), "--format", "jsonl")

    assert (result.exit_code, result.output) == (0, '{"a":1}\n')


def test_trace_waits_for_a_receiver_that_is_still_creating_its_tables(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "refusals", [503, 503])
    monkeypatch.setattr(Handler, "chunks", [b'{"a":1}\n{"end":{"count":1}}\n'])

    result = run("trace", "a" * 32, "--data", str(receiver_dir), "--format", "jsonl")

    assert (result.exit_code, result.output) == (0, '{"a":1}\n')


def test_trace_does_not_wait_after_an_error_that_remains(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "refusals", [503, 500])

    result = run("trace", "a" * 32, "--data", str(receiver_dir))

    assert result.exit_code == 1
    assert Handler.refusals == [503]


@pytest.mark.parametrize(("token", "problem"), [("", "requires a token"), ("other", "rejects this token")])
def test_missing_or_wrong_token_message_names_the_option_that_sets_it(
    receiver_dir: Path, token: str, problem: str
) -> None:
    environ = {"TRACE_DRAIN_API_TOKEN": token} if token else {}

    result = run("spans", "--data", str(receiver_dir), **environ)

    assert result.exit_code == 2
    assert result.output == (
        f"trace-drain: the receiver's API {problem}; "
        "expected --config FILE of the receiver, or TRACE_DRAIN_API_TOKEN_FILE in the environment\n"
    )


def test_dead_receiver_is_not_queried(receiver_dir: Path) -> None:
    path = receiver_dir / STATE_NAME
    path.write_text(path.read_text().replace(f'"supervisor": {os.getpid()}', '"supervisor": 4194304'))

    assert running_receiver(Settings(data_dir=str(receiver_dir))) is None
