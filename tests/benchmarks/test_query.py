"""Tests of the query benchmarks: equal answers of both tables, a run from end to end, and the page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.query.__main__ import main
from benchmarks.query.cases import cases
from benchmarks.query.page import page
from benchmarks.query.results import CaseResult, Measured, Results, SizeResult, Timing
from benchmarks.query.values import Values
from benchmarks.store.segments import BODY_SPANS, days_before
from receiver.query.questions import QUESTIONS

SPANS = 100 * BODY_SPANS


def run(out: Path, *options: str) -> Results:
    directory = str(out / "work")
    arguments = [
        "--spans",
        str(SPANS),
        "--projects",
        "2",
        "--runs",
        "1",
        "--dir",
        directory,
        "--out",
        str(out),
    ]
    result = CliRunner().invoke(main, [*arguments, *options], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return Results.read(out / "query.json")


def test_both_tables_give_answers_with_the_same_number_of_lines(tmp_path: Path) -> None:
    (size,) = run(tmp_path).sizes.values()

    assert (size.spans, size.projects) == (SPANS, 2)
    lines = {
        case.name: (case.tables["ours"].lines, case.tables["otel"].lines)
        for case in size.cases.values()
        if "otel" in case.tables
    }
    assert len(lines) >= 10
    assert {name: ours for name, (ours, otel) in lines.items() if ours == 0 or ours != otel} == {}
    assert all(len(case.tables["ours"].warm) == 1 for case in size.cases.values())
    assert "| trace by id | 10 |" in (tmp_path / "QUERY.md").read_text()


def test_run_of_one_question_keeps_the_results_of_others(tmp_path: Path) -> None:
    measured = Measured(7, Timing(5.0, 6.0), [Timing(1.0, 2.0)])
    earlier = CaseResult("spans, newest", None, {"ours": measured})
    size = SizeResult(SPANS, 2, "a machine", "26.9", 0.5, {earlier.name: earlier})
    Results({f"{SPANS}/2": size}).write(tmp_path / "query.json")

    (measured_size,) = run(tmp_path, "--questions", "services").sizes.values()

    assert list(measured_size.cases) == ["spans, newest", "services, 10 d"]
    assert measured_size.cases["spans, newest"] == earlier


def test_unknown_question_is_refused(tmp_path: Path) -> None:
    result = CliRunner().invoke(main, ["--questions", "trace,guess", "--out", str(tmp_path)])

    assert result.exit_code == 2
    assert "guess: expected names of trace, search" in result.output


def test_every_question_has_a_case_with_valid_parameters() -> None:
    listed = cases(
        Values(*days_before(datetime.now(UTC)), "prj_1", ("dpl_1", "dpl_2"), "web", "0" * 32, "value")
    )

    assert len({case.name for case in listed}) == len(listed)
    assert {case.question for case in listed} == {"trace", *QUESTIONS}
    for case in listed:
        if case.question in QUESTIONS:
            QUESTIONS[case.question].parse(case.parameters)


@pytest.mark.parametrize(
    ("spans", "cpu_ms", "goal"),
    [
        pytest.param(10_000_000, 40.0, "≤ 40, met", id="met"),
        pytest.param(10_000_000, 60.0, "≤ 40, missed: 1.50 times", id="missed"),
        pytest.param(50_000_000, 60.0, "", id="larger than the goal's table"),
    ],
)
def test_page_shows_goals_beside_results(spans: int, cpu_ms: float, goal: str) -> None:
    ours = Measured(10, Timing(90.0, 95.0), [Timing(cpu_ms + 5, 70.0), Timing(cpu_ms, 80.0)])
    otel = Measured(10, Timing(70.0, 75.0), [Timing(2 * cpu_ms, 90.0)])
    both = CaseResult("trace by id", 40, {"ours": ours, "otel": otel})
    single = CaseResult("shifts", None, {"ours": ours})
    size = SizeResult(spans, 20, "a machine", "26.9", 1.25, {case.name: case for case in (both, single)})

    text = page(Results({"": size}))

    shown = f"{cpu_ms:.0f} ({cpu_ms + 5:.0f}; {cpu_ms + 5:.0f}) | 70 | 95 |"
    assert f"| trace by id | 10 | {goal} | {shown} {2 * cpu_ms:.0f} | 75 | 2.0 |" in text
    assert f"| shifts | 10 |  | {shown}  |  |  |" in text
    assert f"## {spans:,} spans in 20 projects\n\nMachine: a machine, load average 1.2." in text
