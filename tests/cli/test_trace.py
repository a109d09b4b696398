"""Tests of the options of `trace-drain trace` with a receiver that does not run."""

from __future__ import annotations

import json
import os
import pty
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from receiver.cli.console.trace import COLUMNS_DEFAULT, terminal_view
from tests.support.cases import each_case
from tests.support.commands import run, stored_spans

FIRST, SECOND = "7a" * 16, "7b" * 16


@pytest.fixture(scope="module")
def data_dir(engine_dir: Path) -> Iterator[str]:
    """Yield a data directory with two traces: a root and its children, one of which was stored twice."""
    now_s = int(time.time())
    rows = [
        {
            "Timestamp": now_s,
            "TraceId": trace_id,
            "SpanId": f"{number:016x}",
            "ParentSpanId": f"{1:016x}" if number > 1 else "",
            "ServiceName": "traced",
            "SpanName": f"\x1b[2Jspan {number}",
            "StatusCode": "Error" if number == 3 else "Unset",
            "Duration": 10**6 * number * len(trace_id.rstrip("b")),
        }
        for trace_id, numbers in ((FIRST, (1, 2, 2, 3)), (SECOND, (1, 2)))
        for number in numbers
    ]
    with stored_spans(engine_dir, rows) as directory:
        yield directory


def test_errors_and_depth_select_spans(data_dir: str) -> None:
    errors = run("trace", FIRST, "--data", data_dir, "--errors")
    levels = run("trace", FIRST, "--data", data_dir, "--depth", "1")

    assert errors.stdout.splitlines()[-1] == "2 of 3 spans shown"
    assert "[error]" in errors.stdout
    assert levels.stdout.splitlines()[-2].endswith("span 1 (+2 spans below)")
    assert "\x1b" not in errors.stdout


def test_json_lines_have_every_stored_row_and_otlp_each_span_once(data_dir: str) -> None:
    lines = run("trace", FIRST, "--data", data_dir, "--format", "jsonl")
    result = run("trace", FIRST, "--data", data_dir, "--format", "otlp")

    assert len(lines.stdout.splitlines()) == 4
    (group,) = json.loads(result.stdout)["resourceSpans"]
    (part,) = group["scopeSpans"]
    assert [span["spanId"] for span in part["spans"]] == [f"{number:016x}" for number in (1, 2, 3)]


def test_traces_are_compared_as_a_table_and_as_lines(data_dir: str) -> None:
    table = run("trace", FIRST, "--against", SECOND, "--data", data_dir)
    lines = run("trace", FIRST, "--against", SECOND, "--data", data_dir, "--format", "jsonl")

    assert table.stdout.splitlines() == [
        f"A: trace {FIRST}",
        f"B: trace {SECOND}",
        "2 spans in both, 1 only in A, 0 only in B",
        "       A        B     B - A",
        "   32 ms    31 ms     -1 ms traced: \\x1b[2Jspan 1",
        "   64 ms    62 ms     -2 ms   traced: \\x1b[2Jspan 2",
        "   96 ms        - only in A   traced: \\x1b[2Jspan 3 [error]",
    ]
    assert [json.loads(line)["change"] for line in lines.stdout.splitlines()] == ["none", "none", "removed"]


@each_case(
    ("arguments", "code", "message"),
    [
        (["--against", "0" * 32], 1, f"no span of trace {FIRST} or of trace {'0' * 32} is stored"),
        (["--against", "xyz"], 2, "expected 32 hex digits"),
        (["--against", SECOND, "--format", "otlp"], 2, "expected --format table, json or jsonl"),
        (["--against", SECOND, "--errors"], 2, "shorten the waterfall"),
        (["--format", "json", "--depth", "2"], 2, "shorten the waterfall"),
        (["--depth", "0"], 2, "range"),
    ],
)
def test_options_that_cannot_be_combined_or_found_are_errors(
    data_dir: str, arguments: list[str], code: int, message: str
) -> None:
    result = run("trace", FIRST, "--data", data_dir, *arguments)

    assert (result.exit_code, result.stdout) == (code, "")
    assert message in result.stderr


def test_terminal_gets_colors_and_lines_of_its_width(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, device = pty.openpty()
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.delenv("NO_COLOR", raising=False)
    with os.fdopen(device, "w") as terminal, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", terminal)
        view = terminal_view(None, errors_only=False)
        patch.setenv("NO_COLOR", "1")
        plain = terminal_view(None, errors_only=False)
    os.close(controller)

    assert (view.columns, view.is_cut, view.has_colors) == (140, True, True)
    assert plain == view._replace(has_colors=False)


def test_file_gets_no_colors_and_whole_lines(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with (tmp_path / "output").open("w") as output, monkeypatch.context() as patch:
        patch.setattr(sys, "stdout", output)
        view = terminal_view(None, errors_only=False)

    assert (view.columns, view.is_cut, view.has_colors) == (COLUMNS_DEFAULT, False, False)
