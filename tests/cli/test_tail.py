"""`trace-drain tail` prints every span once, whatever their order, and continues after a restart."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import pytest

from receiver.cli.console import tail
from receiver.cli.console.tail import CUT_NOTE, Arrivals, follow
from receiver.cli.shell.text_width import text_width
from receiver.console.queries.arrivals import OVERLAP_MS
from receiver.errors import CommandFailed
from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import ApiHandler, receiver_with

Row = dict[str, Any]
START_MS = 1_800_000_000_000


class Finished(Exception):  # noqa: N818 - ends `follow`
    """The simulated time is over."""


def arrival(number: int, received_ms: int) -> Row:
    return {
        "received_ms": received_ms,
        "start": "2026-01-31T10:00:00.123456789Z",
        "project": "prj_1",
        "service": "支付" if number % 2 else "web\x1b[2J",
        "name": "GET /",
        "kind": "Server",
        "duration_ms": 1.5,
        "status": "Error" if number % 2 else "Ok",
        "status_message": "",
        "trace_id": f"{number:032x}",
        "span_id": f"{number:016x}",
        "segment": "a-1",
    }


@each_case("seed", range(20))
def test_every_span_is_printed_once_whatever_the_order(seed: int) -> None:
    rng = random.Random(seed)
    polls = 200
    readable: list[tuple[int, Row]] = []
    for number in range(300):
        received_ms = START_MS + rng.randrange(150_000)
        poll_number = (received_ms - START_MS + rng.randrange(OVERLAP_MS)) // 1_000
        readable.append((poll_number, arrival(number, received_ms)))
    printed: list[Row] = []
    asked: list[int] = []

    def poll(after_ms: int) -> tuple[list[Row], bool]:
        asked.append(after_ms)
        if len(asked) > 1 and rng.random() < 0.2:
            raise CommandFailed("the receiver restarts")
        found = [row for at, row in readable if at < len(asked) and row["received_ms"] >= after_ms]
        return sorted(found, key=lambda row: -row["received_ms"]), False

    def sleep(_seconds: float) -> None:
        if len(asked) > polls + 50:
            raise Finished

    with pytest.raises(Finished):
        follow(poll, Arrivals(START_MS), printed.extend, sleep=sleep)

    assert sorted(row["span_id"] for row in printed) == [row["span_id"] for _, row in readable]
    assert asked == sorted(asked)
    assert asked[-1] > START_MS


def test_first_failure_ends_the_command_and_later_ones_are_noted_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    failures = ["down", "", "down", "down", "", "down"]

    def poll(_after_ms: int) -> tuple[list[Row], bool]:
        if failure := failures.pop(0):
            raise CommandFailed(failure)
        return [], False

    def sleep(_seconds: float) -> None:
        if not failures:
            raise Finished

    with pytest.raises(CommandFailed):
        follow(poll, Arrivals(0), lambda _rows: None, sleep=sleep)
    with pytest.raises(Finished):
        follow(poll, Arrivals(0), lambda _rows: None, sleep=sleep)
    assert capsys.readouterr().err == "down; waiting\n" * 2


def test_cut_answer_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    def sleep(_seconds: float) -> None:
        raise Finished

    with pytest.raises(Finished):
        follow(lambda _after_ms: ([], True), Arrivals(0), lambda _rows: None, sleep=sleep)

    assert capsys.readouterr().err == f"{CUT_NOTE}\n"


class Handler(ApiHandler):
    """API that has a new span for each request."""

    queries: ClassVar[list[dict[str, str]]] = []

    def lines_for(self, query: dict[str, str]) -> list[str]:
        self.queries.append(query)
        rows = [arrival(number, START_MS + number) for number in reversed(range(len(self.queries)))]
        end = {"end": {"count": len(rows), "cut": False}}
        return [json.dumps(line) for line in [*rows, end]]


@pytest.mark.parametrize("form", ["table", "json"])
def test_tail_prints_new_spans_until_ctrl_c(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    monkeypatch.setattr(Handler, "queries", [])
    with receiver_with(Handler, tmp_path) as directory:
        command = [sys.executable, "-m", "receiver.cli", "tail", "service=web", "--data", directory]
        process = subprocess.Popen([*command, "--format", form], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        lines = [process.stdout.readline() for _ in range(3)]
        process.send_signal(signal.SIGINT)
        rest = process.communicate()[0].splitlines()

    assert process.returncode == 130
    assert Handler.queries[0]["filter"] == "service=web"
    for number, line in enumerate([*lines, *rest]):
        assert f"{number:032x}" in line
        assert "\x1b" not in line
    if form == "json":
        assert json.loads(lines[0]) == arrival(0, START_MS)
    else:
        assert lines[0].split()[:4] == ["10:00:00.123", "1.5", "ms", "Ok"]
        assert len({text_width(line.partition("0000")[0]) for line in lines}) == 1


def test_tail_without_a_receiver_does_not_open_the_store(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()

    result = run("tail", "--data", str(tmp_path))

    assert result.exit_code == 1
    assert "no receiver runs; `trace-drain serve --data" in result.stderr
    assert not any((tmp_path / "store").iterdir())


def test_error_in_the_filter_is_shown_before_anything_is_asked(tmp_path: Path) -> None:
    result = run("tail", "sevice=web", "--data", str(tmp_path))

    assert result.exit_code == 2
    assert "did you mean 'service'?" in result.stderr


@each_case("columns", [80, 100])
def test_line_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], columns: int
) -> None:
    monkeypatch.setattr(tail, "columns_max", lambda: columns)
    row = {**arrival(0, START_MS), "name": "GET /api/projects/{project}/deployments/{deployment}"}

    tail._print([row], "table", has_colors=False)  # noqa: SLF001 - the terminal of a process is hard to fake

    line = capsys.readouterr().out.rstrip("\n")
    assert "GET /api/projects/" in line
    assert text_width(line) <= columns
