"""Answers over closed hours, late spans and open hours agree with plain Python.

Percentiles agree within half a bucket of the rollup.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from receiver.console.queries.rollup.derivation import derive
from receiver.console.queries.rollup.tables import TABLES
from receiver.engine.store import Parameters, Store
from tests.console.queries.test_chart import approximately, expected_lines
from tests.console.queries.test_red import (
    COLUMNS,
    by_operation,
    by_service,
    expected_operations,
    expected_red,
    expected_services,
    grouped,
    is_request,
    utc,
    whole,
)
from tests.support.answers import ask
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Matches, Span
from tests.support.rollups import CLOSING, DAY_S, HOUR_S, MIDNIGHT_S, derive_all, random_spans, span_at

SINCE_S = MIDNIGHT_S - DAY_S + 1_800
SINCE = utc(SINCE_S * 10**9, has_fraction=False)
HALF_BUCKET = 2 ** (1 / 32) - 1
"""Largest relative error of a percentile that is the middle of a bucket."""
PERCENTILES = ("p50_ms", "p95_ms", "p99_ms")


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    """Return spans that arrive in time, then late spans."""
    rng = random.Random(51)
    late = [span_at(rng, 5_000 + n, MIDNIGHT_S + n * 4_000, NOW_S) for n in range(20)]
    return [
        span | {"SampleWeight": rng.choice([1.0, 2.5]) if span["ProjectId"] == "prj_1" else None}
        for span in [*random_spans(rng), *late]
    ]


@pytest.fixture(scope="module")
def derived(store: Store) -> Store:
    """Return the store with its closed hours derived, one of them again since the days were added up."""
    # A query reads the rollup a second time if a merge deletes the superseded rows meanwhile.
    for table in TABLES:
        store.command(f"SYSTEM STOP MERGES {table}")
    derive_all(store)
    derive(store, [(MIDNIGHT_S - DAY_S + 8 * HOUR_S) // HOUR_S], CLOSING)
    return store


@pytest.fixture
def statements(derived: Store, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list to which the statements of answers are added."""
    found: list[str] = []
    lines = derived.lines

    def recorded(statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        found.append(statement)
        return lines(statement, parameters)

    monkeypatch.setattr(derived, "lines", recorded)
    return found


def approximate(expected: dict[str, float | None]) -> dict[str, Any]:
    """Return the line with a tolerance of half a bucket for percentiles."""
    return {
        name: value and pytest.approx(value, rel=HALF_BUCKET + 1e-9 if name in PERCENTILES else 1e-9)
        for name, value in expected.items()
    }


def within(spans: Sequence[Span], counted: str, is_wanted: Matches) -> list[Span]:
    return [
        span
        for span in spans
        if span["start_ns"] >= SINCE_S * 10**9 and (counted == "all" or is_request(span)) and is_wanted(span)
    ]


@each_case("counted", ["requests", "all"])
@each_case("by", ["service", "operation", "kind", "project", "deployment"])
@each_case(
    ("text", "is_wanted"),
    [
        pytest.param("", lambda _span: True, id="no filter"),
        pytest.param(
            "project=prj_1 -service=web",
            lambda span: span["ProjectId"] == "prj_1" and span["ServiceName"] != "web",
            id="project and service",
        ),
        pytest.param(
            "kind=server OR name=cart",
            lambda span: span["SpanKind"] == "Server" or span["SpanName"] == "cart",
            id="kind or name",
        ),
    ],
)
def test_red_of_a_rollup_agrees_with_plain_python(  # noqa: PLR0913, PLR0917 - fixtures and parameters
    derived: Store,
    spans: Sequence[Span],
    statements: list[str],
    counted: str,
    by: str,
    text: str,
    is_wanted: Matches,
) -> None:
    statements.clear()

    rows = whole(derived, "red", by=by, filter=text, spans=counted, since=SINCE)

    groups = grouped(within(spans, counted, is_wanted), lambda span: span[COLUMNS[by]])
    expected = {
        group: approximate(expected_red(members, NOW_S - SINCE_S)) for group, members in groups.items()
    }
    assert {row.pop("group"): row for row in rows} == expected
    has_deployment, has_operation = by == "deployment", by == "operation" or "name" in text
    is_raw = has_deployment and (has_operation or counted == "all")
    assert ["FROM otel_red" in statement for statement in statements] == [not is_raw]


@each_case("measure", ["errors", "rate", "p95", "max"])
@each_case("by", [[], ["service"], ["project", "kind"], ["deployment", "operation"]])
def test_chart_of_a_rollup_agrees_with_plain_python(
    derived: Store, spans: Sequence[Span], statements: list[str], by: list[str], measure: str
) -> None:
    statements.clear()
    own = {"by": ",".join(by), "measure": measure, "top": "3", "every": "6h"}

    lines = whole(derived, "chart", **own, since=SINCE)

    counted = within(spans, "requests", lambda _span: True)
    expected = expected_lines(counted, by, measure, 3, 6 * HOUR_S, SINCE_S)
    tolerance = HALF_BUCKET if measure == "p95" else 1e-9
    assert lines == approximately(expected, tolerance + 1e-9)
    assert ["FROM otel_red" in statement for statement in statements] == ["operation" not in by]


@each_case(
    ("every", "every_s", "table"),
    [
        ("1h", HOUR_S, "otel_red_deployment WHERE"),
        ("6h", 6 * HOUR_S, "otel_red_deployment WHERE"),
        ("1d", DAY_S, "otel_red_deployment_day WHERE"),
        ("90m", 5_400, "otel_traces"),
    ],
)
def test_red_of_a_rollup_over_time_agrees_with_plain_python(  # noqa: PLR0913, PLR0917 - as above
    derived: Store, spans: Sequence[Span], statements: list[str], every: str, every_s: int, table: str
) -> None:
    statements.clear()

    rows = whole(derived, "red", by="service", every=every, since=SINCE)

    groups = grouped(
        within(spans, "requests", lambda _span: True),
        lambda span: (span["ServiceName"], span["start_ns"] // 10**9 // every_s * every_s),
    )
    expected = {}
    for (service, start_s), members in groups.items():
        seconds = min(start_s + every_s, NOW_S) - max(start_s, SINCE_S)
        expected[service, utc(start_s * 10**9, has_fraction=False)] = approximate(
            {**expected_red(members, seconds), "complete": seconds == every_s}
        )
    assert {(row.pop("group"), row.pop("start")): row for row in rows} == expected
    assert table in statements[0]
    assert ("FROM otel_red" in statements[0]) == (table != "otel_traces")


@each_case("parameters", [{"by": "status"}, {"by": "n.x"}, {"filter": "status=error"}])
def test_red_of_what_a_rollup_lacks_reads_the_spans(
    derived: Store, statements: list[str], parameters: dict[str, str]
) -> None:
    whole(derived, "red", since=SINCE, **parameters)

    assert all("otel_red" not in statement for statement in statements)


def test_operations_of_a_rollup_agree_with_plain_python(
    derived: Store, spans: Sequence[Span], statements: list[str]
) -> None:
    rows = whole(derived, "operations", service="web", since=SINCE)

    expected = expected_operations(within(spans, "all", lambda _span: True))
    assert by_operation(rows) == {operation: approximate(line) for operation, line in expected.items()}
    assert "FROM otel_red_day" in statements[0]


def test_services_of_a_rollup_agree_with_plain_python(
    derived: Store, spans: Sequence[Span], statements: list[str]
) -> None:
    rows = whole(derived, "services", since=SINCE)

    assert by_service(rows) == expected_services(within(spans, "all", lambda _span: True))
    assert "FROM otel_red_day" in statements[0]


def test_short_range_reads_the_spans(derived: Store, statements: list[str]) -> None:
    whole(derived, "red", since="3h")
    whole(derived, "services", since="3h")

    assert all("otel_red" not in statement for statement in statements)


def test_rollup_that_changes_at_every_attempt_is_not_used(
    derived: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = whole(derived, "services", since=SINCE)
    statements, lines = list[str](), derived.lines

    def changing(statement: str, parameters: Parameters | None = None) -> Iterator[bytes]:
        pieces = list(lines(statement, parameters))
        statements.append(statement)
        if "FROM otel_red" in statement:
            derive(derived, [MIDNIGHT_S // HOUR_S], CLOSING)
        return iter(pieces)

    monkeypatch.setattr(derived, "lines", changing)

    assert ask(derived, "services", since=SINCE) == expected
    assert ["FROM otel_red" in statement for statement in statements] == [True, True, False]
    monkeypatch.undo()
    # The other tests expect the rows by day.
    derive_all(derived)
