"""`trace-drain ledger --receiver`: one ledger over several receivers."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from click.testing import Result

from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import QuietHandler, serving

LINE = {"drain": "d", "project": "p", "hour": "2026-01-31T10:00Z", "journal": 0, "difference": 0}
OUTCOMES = ("received", "stored", "sampled_out", "rejected", "duplicate", "dead", "deleted")


def line(stored: int, hour: str = "2026-01-31T10:00Z", **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a line
    counts = dict.fromkeys(OUTCOMES, 0) | {"received": stored, "stored": stored}
    return {**LINE, **counts, "hour": hour, "table": None, "verdict": "", "problem": "", **more}


def report(*lines: dict[str, Any], **more: Any) -> dict[str, Any]:  # noqa: ANN401 - fields of a report
    empty = {
        "taken_at": "2026-01-31T11:00Z",
        "since": "2026-01-30T11:00Z",
        "complete_from": "",
        "trouble": "",
    }
    return {**empty, "unknown": [], **more, "lines": list(lines)}


def unknown(epoch: str) -> dict[str, Any]:
    hour = "2026-01-31T10:00Z"
    return {"epoch": epoch, "rows": 1, "first": hour, "last": hour, "is_lost": False}


def run_over(reports: list[dict[str, Any]], data: Path, *options: str) -> Result:
    """Run the command over a receiver for each report."""
    with ExitStack() as servers:
        arguments = [f"--data={data}", *options]
        for each in reports:

            class Api(QuietHandler):
                content = json.dumps(each).encode()

                def do_GET(self) -> None:  # noqa: N802 - the standard library's name
                    self.send_whole(200, self.content, "application/json")

            arguments += ["--receiver", servers.enter_context(serving(Api))]
        return run("ledger", *arguments)


def test_counts_of_all_receivers_are_added_by_hour_drain_and_project(tmp_path: Path) -> None:
    early = "2026-01-31T09:00Z"
    first = report(line(3, table=3, verdict="same"), line(1, early, table=1, verdict="same"))
    second = report(line(4, table=4, verdict="same"), complete_from=early)

    result = run_over([first, second], tmp_path, "--format", "json", "--verify")

    document = json.loads(result.stdout)
    counts = [
        (each["hour"][11:13], each["received"], each["stored"], each["table"]) for each in document["lines"]
    ]
    assert counts == [("09", 1, 1, 1), ("10", 7, 7, 7)]
    assert (result.exit_code, document["complete_from"]) == (0, early)


@each_case(
    "bad",
    [
        report(line(4, difference=1)),
        report(line(4, table=3, verdict="different", problem="1 row is missing")),
        report(line(4), trouble="ledger is missing or damaged"),
    ],
)
def test_defect_of_one_receiver_makes_the_command_fail(tmp_path: Path, bad: dict[str, Any]) -> None:
    good = report(line(3, table=3, verdict="same"))

    for reports in ([good, bad], [bad, good]):
        result = run_over(reports, tmp_path, "--verify")

        assert result.exit_code == 1
        assert all(each["problem"] in result.stdout for each in bad["lines"])
        assert bad["trouble"] in result.stdout


def test_rows_of_another_receiver_are_known_and_those_of_none_are_reported(tmp_path: Path) -> None:
    reports = [report(unknown=[unknown("aa"), unknown("cc")]), report(unknown=[unknown("bb"), unknown("cc")])]

    result = run_over(reports, tmp_path, "--format", "json")

    assert [each["epoch"] for each in json.loads(result.stdout)["unknown"]] == ["cc"]


def test_receiver_that_does_not_answer_makes_the_command_fail(tmp_path: Path) -> None:
    result = run("ledger", "--data", str(tmp_path), "--receiver", "http://127.0.0.1:1")

    assert (result.exit_code, "http://127.0.0.1:1/api/v1/ledger" in result.stderr) == (1, True)
