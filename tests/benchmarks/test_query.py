"""Tests of the query benchmarks: equal answers of both tables, a run from end to end, and the page."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.query.__main__ import main
from benchmarks.query.cases import cases
from benchmarks.query.ingest import CLIENTS
from benchmarks.query.page import page
from benchmarks.query.results import (
    CaseResult,
    Ingest,
    IngestLatency,
    IngestPlan,
    Measured,
    Results,
    SizeResult,
    Timing,
)
from benchmarks.query.values import Values
from benchmarks.store.segments import BODY_SPANS, days_before
from receiver.console.queries.questions import QUESTIONS

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
        "--part",
        "questions",
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


def test_every_question_about_spans_has_a_case_with_valid_parameters() -> None:
    listed = cases(
        Values(*days_before(datetime.now(UTC)), "prj_1", ("dpl_1", "dpl_2"), "web", "0" * 32, "value")
    )

    assert len({case.name for case in listed}) == len(listed)
    assert {case.question for case in listed} == {"trace", *QUESTIONS} - {"deployment-events"}
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


@pytest.mark.timeout(600)  # it starts a receiver, its load and its clients
def test_ingest_is_measured_without_and_with_queries(tmp_path: Path) -> None:
    options = ["--part", "ingest", "--stored", "5200", "--rate", "1000", "--seconds", "1", "--rounds", "1"]

    result = CliRunner().invoke(
        main, [*options, "--dir", str(tmp_path), "--out", str(tmp_path)], catch_exceptions=False
    )

    ingest = Results.read(tmp_path / "query.json").ingest
    assert result.exit_code == 0, result.output
    assert ingest is not None
    alone, beside = ingest.rounds
    assert (alone.clients, alone.answers) == (0, 0)
    assert beside.clients == CLIENTS
    assert beside.answers > 0
    assert beside.refused == 0
    assert alone.requests > 0
    assert 0 < beside.p50_ms <= beside.p99_ms <= beside.max_ms
    assert "## Ingest beside queries" in (tmp_path / "QUERY.md").read_text()


@pytest.mark.parametrize(
    ("p99_ms", "verdict"),
    [pytest.param(40.0, "≤ 50, met", id="met"), pytest.param(75.0, "≤ 50, missed: 1.50 times", id="missed")],
)
def test_page_shows_acknowledgements_without_and_with_queries(p99_ms: float, verdict: str) -> None:
    rounds = [
        IngestLatency(0, 100, 2.0, 9.0, 12.0, 0, 0, 3.0),
        IngestLatency(8, 100, 5.0, p99_ms + 10, 90.0, 7, 0, 4.0),
        IngestLatency(8, 100, 4.0, p99_ms, 80.0, 8, 0, 5.0),
    ]
    ingest = Ingest("a machine", 0.5, IngestPlan(2_000_000, 5_000.0, 60.0, 1), rounds)

    text = page(Results({}, ingest))

    assert f"Goal of the p99 beside queries: {verdict}." in text
    assert "| 0 | 2.0 | 9.0 | 12 | 0 | 3.0 |" in text
    shown = f"4.0 (5.0; 5.0) | {p99_ms:.1f} ({p99_ms + 10:.1f}; {p99_ms + 10:.1f})"
    assert f"| 8 | {shown} | 90 | 15 | 4.0 (5.0; 5.0) |" in text
