"""`trace-drain trace`, `spans` and the store behind them, while no receiver runs."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest
from click.testing import CliRunner, Result

from receiver.cli import main
from receiver.cli.asking import answered, running_on
from receiver.cli.table import duration_text, lines_of
from receiver.cli.trace import tree
from receiver.engine import schema
from receiver.engine.opening import claimed, open_store
from receiver.errors import OperatorError
from receiver.settings import Settings
from receiver.supervisor.data_dir import STATE_NAME
from tests.support.fake_clickhouse import schema_sources
from tests.support.segments import Segment, SegmentMaker


def run(*words: str) -> Result:
    return CliRunner().invoke(main, list(words))


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Path:
    return engine_dir.parent


@pytest.fixture(scope="module")
def stored(data_dir: Path, tmp_path_factory: pytest.TempPathFactory) -> Segment:
    """Two spans of today."""
    segment = SegmentMaker(tmp_path_factory.mktemp("segments")).make(0, 0)
    store = open_store(Settings(data_dir=str(data_dir)), disk_free_min=lambda: 1)
    schema.apply(store, schema_sources(), 30)
    store.insert(segment.path, token="cli#0", query_id="trace-drain-cli#0")
    store.close()
    return segment


def test_spans_as_json_lines_hold_every_column(data_dir: Path, stored: Segment) -> None:
    result = run("spans", "--data", str(data_dir), "--since", "30d", "--format", "jsonl")

    rows = [json.loads(line) for line in result.output.splitlines()]
    assert result.exit_code == 0, result.output
    assert {row["SegmentSeq"] for row in rows} == {stored.held.segment.seq}
    assert [sorted(row["SpanAttributes"].items()) for row in rows] == [[("k", "v1")], [("k", "v0")]]
    assert {len(row) for row in rows} == {38}


def test_spans_as_a_table_are_for_a_human(data_dir: Path, stored: Segment) -> None:
    result = run("spans", "--data", str(data_dir), "--since", "30d", "--service", "shop")

    head, line = result.output.splitlines()
    assert head.split()[:3] == ["started", "(UTC)", "project"]
    assert "prj_1" in line
    assert f"{stored.held.segment.seq:016x}" in line


@pytest.mark.parametrize("form", ["table", "jsonl"])
def test_spans_notes_on_standard_error_that_more_spans_match(
    data_dir: Path, stored: Segment, form: str
) -> None:
    words = ("spans", "--data", str(data_dir), "--since", "30d", "--format", form)

    cut, whole = run(*words, "--limit", "1"), run(*words, "--limit", "2")

    assert cut.stderr == "the newest 1 span of the last 30d; there are more: --limit N prints up to 1000000\n"
    assert len(cut.stdout.splitlines()) == len(whole.stdout.splitlines()) - 1
    assert whole.stderr == ""
    assert stored.days


def test_spans_notes_on_standard_error_that_no_span_matches(data_dir: Path, stored: Segment) -> None:
    done = run("spans", "--data", str(data_dir), "--project", "absent")

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "no span of the last 1h matches; --since AGE looks further back\n"
    assert stored.days


def test_a_trace_is_printed_as_tree_and_as_json(data_dir: Path, stored: Segment) -> None:
    trace_id = f"{stored.held.segment.seq:016x}{0:016x}"

    shown = run("trace", trace_id, "--data", str(data_dir))
    listed = run("trace", trace_id, "--data", str(data_dir), "--format", "json")

    assert shown.output.startswith(f"trace {trace_id}: 1 span of cart\n")
    assert [row["TraceId"] for row in json.loads(listed.output)] == [trace_id]


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        pytest.param(["trace", "xyz"], 2, "expected 32 hex digits", id="no trace id"),
        pytest.param(["trace", "0" * 32], 1, "no span of trace", id="no such trace"),
        pytest.param(["spans", "--since", "soon"], 2, "like 15m", id="no age"),
        pytest.param(["spans", "--limit", "many"], 2, "whole number", id="no number"),
    ],
)
def test_mistakes_are_told_in_one_line(
    data_dir: Path, stored: Segment, words: list[str], code: int, why: str
) -> None:
    result = run(*words, "--data", str(data_dir))

    assert result.exit_code == code
    assert why in result.output
    assert result.output.count("\n") == 1
    assert stored.days


def test_without_a_store_the_way_to_get_one_is_told(tmp_path: Path) -> None:
    result = run("spans", "--data", str(tmp_path))

    assert result.exit_code == 1
    assert "trace-drain serve --data" in result.output


def test_a_store_without_tables_says_how_to_make_them(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()

    done = run("spans", "--data", str(tmp_path))

    assert done.exit_code == 1
    assert done.output == "trace-drain: the store has no tables; expected `trace-drain schema apply`\n"


def test_a_store_somebody_else_has_open_says_so(data_dir: Path, stored: Segment) -> None:
    with claimed(data_dir):
        result = run("spans", "--data", str(data_dir))

    assert "in use by another process" in result.output
    assert stored.days


class Handler(BaseHTTPRequestHandler):
    """A receiver's API that knows two paths; answers in chunks have no last chunk."""

    protocol_version = "HTTP/1.1"
    chunks: ClassVar[Sequence[bytes] | None] = None

    def answer_chunked(self, chunks: Sequence[bytes]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for chunk in chunks:
            self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
        self.close_connection = True

    def do_GET(self) -> None:
        known = self.path == "/api/v1/spans?limit=1" and self.headers["Authorization"] == "Bearer t"
        if self.chunks is not None:
            self.answer_chunked(self.chunks)
            return
        body = b'{"a": 1}\n{"a": 2}\n{"end":{"count":2}}\n' if known else b'{"error": "unknown parameter"}'
        refused = 400 if self.headers["Authorization"] == "Bearer t" else 401
        self.send_response(200 if known else refused)
        self.send_header("Content-Type", "application/x-ndjson")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the standard library's name
        """Say nothing."""


@pytest.fixture
def receiver_dir(tmp_path: Path) -> Iterator[Path]:
    """The data directory of a running receiver: this process, with the API above."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Thread(target=server.serve_forever, daemon=True).start()
    api = f"127.0.0.1:{server.server_address[1]}"
    state = {
        "listen": "",
        "admin": "",
        "api": api,
        "urls": {"api": f"http://{api}"},
        "pids": {"supervisor": os.getpid(), "intake": [], "store": 0},
        "version": "",
        "started_at": "",
    }
    (tmp_path / STATE_NAME).write_text(json.dumps(state))
    yield tmp_path
    server.shutdown()
    server.server_close()


def test_a_running_receiver_is_asked_with_its_token(receiver_dir: Path) -> None:
    settings = Settings(data_dir=str(receiver_dir), api_token="t")
    state = running_on(settings)
    assert state is not None

    assert list(answered(settings, state, "/api/v1/spans", {"limit": "1"})) == [{"a": 1}, {"a": 2}]
    with pytest.raises(OperatorError, match=r"^unknown parameter") as refused:
        list(answered(settings, state, "/api/v1/spans", {"nonsense": "1"}))
    assert refused.value.exit_code == 2


@pytest.mark.parametrize(
    ("chunks", "count"),
    [
        pytest.param([], 0, id="nothing"),
        pytest.param([b'{"a":1}\n', b'{"a":2}\n'], 2, id="no last line"),
        pytest.param([b'{"a":1}\n', b'{"a":2'], 1, id="half a line"),
        pytest.param([b'{"a":1}\n', b'{"end":{"count":2}}\n', b"0\r\n\r\n"], 1, id="another count"),
    ],
)
def test_answer_that_breaks_off_ends_the_command_with_1_and_the_number_of_lines(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch, chunks: list[bytes], count: int
) -> None:
    monkeypatch.setattr(Handler, "chunks", chunks)

    done = run("spans", "--data", str(receiver_dir), "--format", "jsonl")

    assert done.exit_code == 1
    assert len(done.output.splitlines()) == count + 1
    assert f"broke off after {count} line" in done.output


def test_answer_without_a_last_chunk_is_whole_if_its_count_is_right(
    receiver_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Handler, "chunks", [b'{"a":1}\n{"end":{"count":1}}\n'])

    done = run("spans", "--data", str(receiver_dir), "--format", "jsonl")

    assert (done.exit_code, done.output) == (0, '{"a":1}\n')


@pytest.mark.parametrize(
    ("token", "found"), [("", "asks for a token"), ("other", "does not know this token")]
)
def test_a_token_that_is_missing_is_told_as_a_command_line_says_it(
    receiver_dir: Path, token: str, found: str
) -> None:
    environ = {"TRACE_DRAIN_API_TOKEN": token} if token else {}

    done = CliRunner().invoke(main, ["spans", "--data", str(receiver_dir)], env=environ)

    assert done.exit_code == 2
    assert done.output == (
        f"trace-drain: the receiver's API {found}; "
        "expected --config FILE of the receiver, or TRACE_DRAIN_API_TOKEN_FILE in the environment\n"
    )


def test_a_receiver_that_died_is_not_asked(receiver_dir: Path) -> None:
    path = receiver_dir / STATE_NAME
    path.write_text(path.read_text().replace(f'"supervisor": {os.getpid()}', '"supervisor": 4194304'))

    assert running_on(Settings(data_dir=str(receiver_dir))) is None


def span(span_id: str, parent: str, **more: Any) -> dict[str, Any]:  # noqa: ANN401 - any column
    plain = {
        "Timestamp": "2026-01-31 10:00:00.000000000",
        "TraceId": "t" * 32,
        "SpanId": span_id,
        "ParentSpanId": parent,
        "ServiceName": "shop",
        "SpanName": f"span {span_id}",
        "Duration": 1_500_000,
        "StatusCode": "Unset",
        "StatusMessage": "",
    }
    return {**plain, **more}


def test_a_tree_puts_children_under_parents_and_marks_orphans_and_errors() -> None:
    rows = [
        span("a", ""),
        span("b", "a", StatusCode="Error", StatusMessage="boom"),
        span("c", "b"),
        span("d", "gone"),
        span("e", "a"),
    ]

    lines = list(tree(rows))[1:]

    assert [line[24:] for line in lines] == [
        "shop: span a",
        "  shop: span b [error] boom",
        "    shop: span c",
        "  shop: span e",
        "shop: span d (parent not stored)",
    ]


def test_a_span_without_service_or_name_says_so() -> None:
    assert list(tree([span("a", "", ServiceName="", SpanName="")])) == [
        f"trace {'t' * 32}: 1 span of (no service)",
        "10:00:00.000    1.5 ms  (no service): (no name)",
    ]


def test_cycles_and_doubles_are_told_once_each() -> None:
    rows = [span("a", "b"), span("b", "a"), span("c", "c"), span("c", "c")]

    assert len(list(tree(rows))) == 1 + len(rows)


def test_ten_thousand_levels_are_no_deeper_than_forty() -> None:
    rows = [span(str(level), str(level - 1) if level else "") for level in range(10_000)]

    lines = list(tree(rows))

    assert len(lines) == 10_001
    assert max(map(len, lines)) < 150


def test_what_a_sender_wrote_moves_no_cursor() -> None:
    (line,) = list(tree([span("a", "", SpanName="\x1b[2J" + "x" * 100)]))[1:]

    assert "\x1b" not in line
    assert len(line) < 100


@pytest.mark.parametrize(
    ("duration_ns", "text"),
    [
        (0, "0 ns"),
        (999, "999 ns"),
        (1_500, "1.5 µs"),
        (2_000_000, "2 ms"),
        (10**9, "1 s"),
        (10**13, "10000 s"),
    ],
)
def test_durations_are_said_as_humans_do(duration_ns: int, text: str) -> None:
    assert duration_text(duration_ns) == text


def test_columns_are_as_wide_as_what_they_hold() -> None:
    assert list(lines_of(("a", "bb"), [("xxx", "y"), ("z", "")])) == ["a    bb", "xxx  y", "z"]
