"""Charts agree with plain Python over the stored spans, on both engines."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from typing import Any

import pytest

from receiver.console.queries.aggregates.chart import MEASURES
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from tests.console.queries.test_red import grouped, is_request, selected, utc, value_of, whole
from tests.support.answers import Row, answer_of
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, NUMBER, Span, random_span
from tests.support.random_trees import random_filter

HOUR_S = 3_600
KEYS = (
    "service",
    "operation",
    "project",
    "deployment",
    "kind",
    "status",
    "http.route",
    "span.k",
    "resource.n.x",
)
ALL_MEASURES = (*MEASURES, "sum:span.k", "avg:n.x", "avg:scope.k")
CASES = 60


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(17)
    return [random_span(rng, number) for number in range(700)]


def number_of(span: Span, key: str) -> float | None:
    text = value_of(span, key) or ""
    return float(text) if NUMBER.fullmatch(text) else None


def expected_value(measure: str, group: Sequence[Span], seconds: float) -> float | None:
    """Return the measure of these spans."""
    errors = sum(span["StatusCode"] == "Error" for span in group)
    function, _, key = measure.partition(":")
    if key:
        numbers = [number for span in group if (number := number_of(span, key)) is not None]
        return sum(numbers) / (len(numbers) if function == "avg" else 1) if numbers else None
    if measure[1:].isdigit():
        durations = sorted(span["Duration"] for span in group)
        return float(durations[int(len(group) * int(measure[1:]) / 100)]) / 1e6
    values: dict[str, float] = {
        "spans": len(group),
        "rate": len(group) / seconds,
        "errors": errors,
        "error_rate": errors / len(group),
        "max": max(span["Duration"] for span in group) / 1e6,
    }
    return values[measure]


def size_of(measure: str, group: Sequence[Span]) -> float:
    if measure == "errors" or measure.startswith("sum:"):
        value = expected_value(measure, group, 1)
        return -math.inf if value is None else value
    return len(group)


def expected_lines(  # noqa: PLR0913, PLR0917 - parameters of the query
    spans: Sequence[Span], keys: Sequence[str], measure: str, top: int, every_s: int, begin_s: float
) -> list[Row]:
    """Return the lines of a chart of these spans."""
    groups = grouped(
        [span for span in spans if all(value_of(span, key) is not None for key in keys)],
        lambda span: tuple(value_of(span, key) for key in keys),
    )
    ordered = sorted(groups, key=lambda key: (-size_of(measure, groups[key]), -len(groups[key]), key))
    shown = [(key, False, groups[key]) for key in ordered[: top if keys else None]]
    if rest := [span for key in ordered[top:] for span in groups[key]]:
        shown.append((("",) * len(keys), True, rest))
    totals, intervals = [], []
    for key, is_rest, members in shown:
        line = {"group": key[0] if key else "", "is_rest": is_rest}
        line |= {"second_group": key[1]} if len(key) > 1 else {}
        of_range = {"start": None, "complete": None, "spans": len(members)}
        totals.append(line | of_range | {"value": expected_value(measure, members, NOW_S - begin_s)})
        if not every_s:
            continue
        for start_s, part in sorted(
            grouped(members, lambda s: s["start_ns"] // 10**9 // every_s * every_s).items()
        ):
            seconds = min(start_s + every_s, NOW_S) - max(start_s, begin_s)
            of_interval = {
                "start": utc(start_s * 10**9, has_fraction=False),
                "complete": seconds == every_s,
                "spans": len(part),
                "value": expected_value(measure, part, seconds),
            }
            intervals.append(line | of_interval)
    return totals + intervals


def approximately(lines: Sequence[Row], tolerance: float = 1e-9) -> list[dict[str, Any]]:
    return [
        line | {"value": value if value is None else pytest.approx(value, rel=tolerance, abs=1e-9)}
        for line in lines
        for value in (line["value"],)
    ]


def test_random_charts_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(73)
    for number in range(CASES):
        text, matches = random_filter(rng)
        keys = rng.sample(KEYS, rng.choice([0, 1, 1, 2, 2]))
        measure = ALL_MEASURES[number % len(ALL_MEASURES)]
        top, counted = rng.choice([1, 2, 5, 50]), rng.choice(["requests", "all"])
        every, every_s = rng.choice([("", 0), ("7m", 420), ("30m", 1_800)])
        own = {"by": ",".join(keys), "measure": measure, "top": str(top), "spans": counted}

        lines = whole(store, "chart", filter=text, **own, **({"every": every} if every else {}))

        counted_spans = [span for span in selected(spans, matches) if counted == "all" or is_request(span)]
        expected = expected_lines(counted_spans, keys, measure, top, every_s, NOW_S - HOUR_S)
        assert lines == approximately(expected), (text, own, every)


def test_percentile_of_the_rest_is_of_its_spans(store: Store, spans: Sequence[Span]) -> None:
    *shown, rest = whole(store, "chart", by="service", measure="p50", top="2", spans="all")

    assert [line["is_rest"] for line in shown] == [False, False]
    assert rest["is_rest"]
    names = {line["group"] for line in shown}
    of_rest = [s for s in selected(spans, lambda _span: True) if s["ServiceName"] not in names]
    assert rest["spans"] == len(of_rest)
    assert rest["value"] == expected_value("p50", of_rest, 1)


def test_chart_has_the_numbers_of_red(store: Store) -> None:
    red = whole(store, "red", by="service", every="10m")
    for measure, column in (("rate", "rate_per_s"), ("error_rate", "error_rate"), ("p95", "p95_ms")):
        lines = whole(store, "chart", by="service", every="10m", measure=measure, top="50")

        values = {(line["group"], line["start"]): line["value"] for line in lines if line["start"]}
        assert values == {(row["group"], row["start"]): row[column] for row in red}


def test_cut_chart_says_so(store: Store) -> None:
    answer = answer_of(store, "chart", {"by": "service", "limit": "2"})

    assert len(b"".join(answer.pieces()).splitlines()) == 2
    assert answer.is_cut


def test_similar_keys_are_suggested_for_a_key_that_no_span_has(store: Store) -> None:
    answer = answer_of(store, "chart", {"by": "service,http.rout"})

    assert b"".join(answer.pieces()) == b""
    assert "span.http.route" in answer.close_keys


@each_case(
    ("parameters", "message"),
    [
        ({"by": "service,kind,status"}, "by: expected at most two"),
        ({"by": "service,service"}, "by: expected at most two different"),
        ({"by": "service,s3cret"}, "by: expected service"),
        ({"by": ","}, "by: expected at most two"),
        ({"measure": "p42"}, "measure: expected one of spans, rate"),
        ({"measure": "sum"}, "measure: expected an attribute"),
        ({"measure": "sum:duration"}, "measure: expected an attribute"),
        ({"measure": "s3cret:span.k"}, "measure: expected one of"),
        ({"top": "0"}, "top: expected a whole number from 1 to 50"),
        ({"top": "51"}, "top: expected a whole number from 1 to 50"),
        ({"every": "1s", "since": "1d"}, "every: expected a number"),
    ],
)
def test_invalid_parameter_is_refused_without_repeating_it(parameters: dict[str, str], message: str) -> None:
    with pytest.raises(MalformedBody) as refused:
        QUESTIONS["chart"].parse(parameters)

    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)
