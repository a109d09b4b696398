"""Attribute shifts agree with plain Python, in the embedded engine and on a server."""

from __future__ import annotations

import math
import random
from collections import Counter
from collections.abc import Sequence

import pytest

from receiver.console.queries.comparison.shifts import (
    COUNT_MIN,
    SHIFTS_MAX,
    Z_MIN,
    Sides,
    sample_text,
    shift_rows,
)
from receiver.console.queries.filters.filter import Attribute, terms
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.engine.sql_text import Sql
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange
from tests.support.answers import Row, ask
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Matches, Span, random_span
from tests.support.random_trees import random_filter

SPANS = 1_200
Item = tuple[str, str, str]
FIELDS = {
    "service": "ServiceName",
    "operation": "SpanName",
    "kind": "SpanKind",
    "status": "StatusCode",
    "project": "ProjectId",
    "deployment": "DeploymentId",
}


def correlated_span(rng: random.Random, number: int) -> Span:
    """Return a span of the last hour whose attributes depend on its status and on its service."""
    span = random_span(rng, number)
    span["start_ns"] = (NOW_S - rng.randrange(1, 3_500)) * 10**9
    span["SpanAttributes"]["unique"] = str(number)
    if span["StatusCode"] == "Error" and rng.random() < 0.7:
        span["SpanAttributes"]["region"] = "eu\n1"
    if span["ServiceName"] == "web":
        span["ResourceAttributes"]["region"] = rng.choice(["eu\n1", "us"])
    return span


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(21)
    return [correlated_span(rng, number) for number in range(SPANS)]


def shifts_of(store: Store, **query: str) -> list[Row]:
    return ask(store, "shifts", **{"limit": str(SHIFTS_MAX), **query})


def items_of(span: Span) -> set[Item]:
    found = {("intrinsic", name, span[column]) for name, column in FIELDS.items()}
    found |= {("span", key, value) for key, value in span["SpanAttributes"].items()}
    return found | {("resource", key, value) for key, value in span["ResourceAttributes"].items()}


def expected_shifts(selection: Sequence[Span], rest: Sequence[Span]) -> dict[Item, tuple[int, int]]:
    """Return the counts of every value whose shares differ enough."""
    selected = Counter(item for span in selection for item in items_of(span))
    others = Counter(item for span in rest for item in items_of(span))
    return {
        item: (selected[item], others[item])
        for item in selected | others
        if selected[item] + others[item] >= COUNT_MIN
        and abs(z_of(selected[item], len(selection), others[item], len(rest))) >= Z_MIN
    }


def z_of(selection: int, selection_spans: int, rest: int, rest_spans: int) -> float:
    pooled = (selection + rest) / (selection_spans + rest_spans)
    variance = pooled * (1 - pooled) * (1 / selection_spans + 1 / rest_spans)
    return (selection / selection_spans - rest / rest_spans) / math.sqrt(variance) if variance else 0.0


def found_shifts(rows: Sequence[Row]) -> dict[Item, tuple[int, int]]:
    return {(row["scope"], row["key"], row["value"]): (row["selection"], row["rest"]) for row in rows}


@each_case(
    ("query", "is_selected", "is_compared", "keys"),
    [
        pytest.param(
            {"filter": "status=error"},
            lambda span: span["StatusCode"] == "Error",
            lambda _span: True,
            ["status"],
            id="against all others",
        ),
        pytest.param(
            {"filter": "status=error", "against": "service=web status=ok"},
            lambda span: span["StatusCode"] == "Error",
            lambda span: span["ServiceName"] == "web" and span["StatusCode"] == "Ok",
            ["status", "service"],
            id="against a filter",
        ),
        pytest.param(
            {"filter": "-(service=web OR span.k exists)"},
            lambda span: span["ServiceName"] != "web" and "k" not in span["SpanAttributes"],
            lambda _span: True,
            ["service", "k"],
            id="negated filter",
        ),
    ],
)
def test_shifts_agree_with_plain_python(  # noqa: PLR0913, PLR0917 - fixtures and a case
    store: Store,
    spans: Sequence[Span],
    query: dict[str, str],
    is_selected: Matches,
    is_compared: Matches,
    keys: Sequence[str],
) -> None:
    """The keys are those that the filters compare."""
    selection = [span for span in spans if is_selected(span)]
    rest = [span for span in spans if not is_selected(span) and is_compared(span)]

    rows = shifts_of(store, **query)

    shifts = expected_shifts(selection, rest)
    expected = {item: counts for item, counts in shifts.items() if item[1] not in keys}
    assert expected
    assert found_shifts(rows) == expected
    for row in rows:
        z = z_of(row["selection"], row["selection_spans"], row["rest"], row["rest_spans"])
        assert (row["selection_spans"], row["rest_spans"]) == (len(selection), len(rest))
        assert row["z"] == pytest.approx(z)
        assert row["difference"] == pytest.approx(row["selection_share"] - row["rest_share"])
    evidence = [round(abs(row["z"]), 6) for row in rows]
    assert evidence == sorted(evidence, reverse=True)


def test_shifts_of_random_selections_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(22)
    tried = 0
    while tried < 8:
        text, matches = random_filter(rng)
        selection = [span for span in spans if matches(span)]
        rest = [span for span in spans if not matches(span)]
        if not selection or not rest:
            continue
        tried += 1

        found = found_shifts(shifts_of(store, filter=text))

        expected = expected_shifts(selection, rest)
        # The keys that the filter compares are left out.
        fields = [term.field for term in terms(parse_filter(text))]
        compared = {field.key if isinstance(field, Attribute) else field.name for field in fields}
        assert found.items() <= expected.items(), text
        assert compared.isdisjoint(item[1] for item in found if item[0] != "intrinsic"), text
        assert {item[1] for item in expected.keys() - found.keys()} <= compared, text


@each_case(
    ("selection_every", "rest_every", "text"),
    [
        (1, 1, ""),
        (1, 3, "Compared by a random sample of 7,935 of the other spans."),
        (2, 1, "Compared by a random sample of 5,012 of the failed spans."),
        (2, 3, "Compared by a random sample of 5,012 of the failed spans and 7,935 of the other spans."),
    ],
)
def test_sides_that_are_samples_are_named(selection_every: int, rest_every: int, text: str) -> None:
    counts = {"selection_spans": 5_012, "rest_spans": 7_935}
    every = {"selection_every": selection_every, "rest_every": rest_every}

    assert sample_text({**counts, **every}, "failed spans", "other spans") == text


def test_sample_bounds_the_spans_and_keeps_the_shares(store: Store, spans: Sequence[Span]) -> None:
    selection = [span for span in spans if span["StatusCode"] == "Error"]
    sides = Sides(
        Sql("StatusCode = 'Error'"),
        Sql("1"),
        TimeRange().parameters(NOW_S),
        len(selection),
        len(spans) - len(selection),
    )

    rows = list(shift_rows(store, sides, SHIFTS_MAX, sample_spans=150))

    (region,) = [row for row in rows if (row["scope"], row["key"]) == ("span", "region")]
    assert 75 < region["selection_spans"] < 200
    assert 75 < region["rest_spans"] < 200
    assert region["selection_share"] == pytest.approx(0.7, abs=0.12)
    assert region["rest_share"] == 0
    assert region["selection_every"] == math.ceil(sides.selection_count / 150)
    assert region["rest_every"] == math.ceil(sides.rest_count / 150)


@each_case(
    ("query", "message"),
    [
        ({}, "filter is missing"),
        ({"filter": "service=absent"}, "no span in the time range matches the filter"),
        ({"filter": "trace!=absent"}, "no other span in the time range"),
        ({"filter": "root", "against": "sevice=s3cret"}, "against, column 1: unknown field"),
        ({"filter": "root", "against": 'name=~"s3cret("'}, "against, column 7: .* not valid"),
    ],
)
def test_impossible_question_is_a_clear_error(store: Store, query: dict[str, str], message: str) -> None:
    with pytest.raises(MalformedBody, match=message) as error:
        shifts_of(store, **query)

    assert "s3cret" not in str(error.value)
