"""`trace-drain forget` against an API whose deletions take time, fail, or leave spans."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest
from click.testing import Result

from receiver.cli.receiver import forget
from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import QuietHandler, receiver_with

REPORTS: list[dict[str, object]] = []
"""Answers of the API, the next one first; the last one is repeated."""
DELETED: list[dict[str, str]] = []


class Api(QuietHandler):
    def do_GET(self) -> None:  # noqa: N802 - the standard library's name
        report = REPORTS.pop(0) if len(REPORTS) > 1 else REPORTS[0]
        self.send_whole(200, json.dumps(report).encode(), "application/json")

    def do_POST(self) -> None:  # noqa: N802 - the standard library's name
        self.rfile.read(int(self.headers["Content-Length"]))
        DELETED.append(dict(parse_qsl(urlsplit(self.path).query)))
        self.send_whole(200, b'{"spans": 3}', "application/json")


def report(days: dict[str, int], deleting: str = "", trouble: str = "") -> dict[str, object]:
    return {"days": days, "deleting": deleting, "trouble": trouble}


def run_with(directory: Path, reports: list[dict[str, object]], *options: str) -> Result:
    REPORTS[:], DELETED[:] = reports, []
    with receiver_with(Api, directory):
        return run("forget", *options, "--data", str(directory))


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forget, "POLL_S", 0.0)


def test_spans_are_counted_and_not_deleted_without_yes(tmp_path: Path) -> None:
    result = run_with(tmp_path, [report({"20260130": 1, "20260131": 2_000})], "--project", "a")

    assert result.stdout.splitlines() == [
        "2026-01-30  1 span",
        "2026-01-31  2,000 spans",
        "2,001 spans of 2 days would be deleted; --yes deletes them",
    ]
    assert (result.exit_code, DELETED) == (0, [])


def test_each_day_is_deleted_after_the_one_before(tmp_path: Path) -> None:
    days = {"20260130": 1, "20260131": 2}
    running = report(days, "20260130", "no space")
    reports = [report(days), report(days), running, running, report({"20260131": 2}), report({})]

    result = run_with(tmp_path, reports, "--trace", "5a", "--yes")

    assert (result.exit_code, result.stdout) == (0, "6 spans of 2 days are deleted\n")
    assert result.stderr.count("2026-01-30  waits: no space") == 1
    assert DELETED == [{"trace": "5a", "day": "20260130"}, {"trace": "5a", "day": "20260131"}]


def test_spans_that_are_left_make_the_command_fail(tmp_path: Path) -> None:
    result = run_with(tmp_path, [report({"20260131": 2})], "--project", "a", "--yes")

    assert result.exit_code == 1
    assert "2 spans of 1 day are left: their segments are in the journal" in result.stderr


@each_case("options", [(), ("--project", "a", "--trace", "b")])
def test_exactly_one_of_project_and_trace_is_expected(tmp_path: Path, options: tuple[str, ...]) -> None:
    result = run("forget", *options, "--data", str(tmp_path))

    assert (result.exit_code, "expected either --project ID or --trace ID" in result.stderr) == (2, True)


def test_command_needs_a_running_receiver(tmp_path: Path) -> None:
    result = run("forget", "--project", "a", "--data", str(tmp_path))

    assert (result.exit_code, "no receiver runs on" in result.stderr) == (1, True)
