"""Rates, errors and durations of groups, and error groups, agree with plain Python on both engines."""

from __future__ import annotations

import bisect
import math
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any

import pytest

from receiver.console.queries.aggregates.latency import BOUNDS_NS, BUCKETS_PER_OCTAVE
from receiver.console.queries.aggregates.time_buckets import BUCKETS_MAX, automatic_every_s
from receiver.console.queries.error_groups import INTERVALS, NAMES_PER_GROUP
from receiver.console.queries.questions import QUESTIONS
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.time_range import TimeRange
from tests.support.answers import Row, answer_of, ask, rows_of
from tests.support.cases import each_case
from tests.support.random_filters import NOW_S, Matches, Span, has_error, random_span
from tests.support.random_trees import random_filter

SPANS = 800
HOUR_S = 3_600
COLUMNS = {
    "service": "ServiceName",
    "operation": "SpanName",
    "name": "SpanName",
    "project": "ProjectId",
    "deployment": "DeploymentId",
    "kind": "SpanKind",
    "status": "StatusCode",
}
MESSAGES = ("no user 17", "no user 18", "cannot open '/etc/a b'", 'cannot open "x"', "é 0xff", "")


def span_with_message(rng: random.Random, number: int) -> Span:
    """Return a random span, sometimes with a weight and with attributes of an exception."""
    span = random_span(rng, number)
    for event in span["Events.Attributes"]:
        event |= {"exception.type": rng.choice(["E", "F", ""]), "exception.message": rng.choice(MESSAGES)}
    if rng.random() < 0.5:
        span["SpanAttributes"]["error.type"] = rng.choice(["timeout", "500"])
    # Each deployment has errors that no other deployment has.
    deployment, message = rng.choice((("dpl_1", "only in one"), ("dpl_2", "only in two"), ("", "in none")))
    span["DeploymentId"] = deployment
    span["StatusMessage"] = rng.choice((*MESSAGES, message))
    span["SampleWeight"] = rng.choice([1.0, 4.0, 99.5]) if span["ProjectId"] == "prj_1" else None
    return span


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(11)
    return [span_with_message(rng, number) for number in range(SPANS)]


def whole(store: Store, name: str, **query: str) -> list[Row]:
    """Return all rows of a query."""
    return ask(store, name, limit="100000", **query)


def is_request(span: Span) -> bool:
    return span["SpanKind"] in ("Server", "Consumer") or not span["ParentSpanId"]


def value_of(span: Span, by: str) -> str | None:
    """Return the value of a field or an attribute; none if the span lacks it."""
    if by in COLUMNS:
        return str(span[COLUMNS[by]])
    scope, _, key = by.partition(".")
    if scope in ("span", "resource", "scope"):
        found: str | None = span[f"{scope.title()}Attributes"].get(key)
        return found
    return {**span["ResourceAttributes"], **span["SpanAttributes"]}.get(by)


def selected(spans: Sequence[Span], matches: Matches, since_s: int = HOUR_S) -> list[Span]:
    return [span for span in spans if span["start_ns"] >= (NOW_S - since_s) * 10**9 and matches(span)]


def utc(start_ns: int, *, has_fraction: bool = True) -> str:
    seconds, nanoseconds = divmod(start_ns, 10**9)
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{text}.{nanoseconds:09d}Z" if has_fraction else f"{text}Z"


def estimates(group: Sequence[Span]) -> dict[str, float | None]:
    weights = [span["SampleWeight"] for span in group]
    if None in weights:
        return dict.fromkeys(("estimated_spans", "estimated_errors", "estimated_spans_margin"))
    return {
        "estimated_spans": sum(weights),
        "estimated_errors": sum(span["SampleWeight"] for span in group if span["StatusCode"] == "Error"),
        "estimated_spans_margin": 1.96 * math.sqrt(sum(weight * (weight - 1) for weight in weights)),
    }


def expected_red(group: Sequence[Span], seconds: float) -> dict[str, float | None]:
    durations = sorted(span["Duration"] for span in group)
    errors = sum(span["StatusCode"] == "Error" for span in group)
    return {
        "spans": len(group),
        "errors": errors,
        "error_rate": errors / len(group),
        "rate_per_s": len(group) / seconds,
        "p50_ms": durations[int(len(group) * 0.5)] / 1e6,
        "p95_ms": durations[int(len(group) * 0.95)] / 1e6,
        "p99_ms": durations[int(len(group) * 0.99)] / 1e6,
        "max_ms": durations[-1] / 1e6,
        **estimates(group),
    }


def grouped(spans: Sequence[Span], key_of: Callable[[Span], Any]) -> dict[Any, list[Span]]:
    groups = defaultdict(list)
    for span in spans:
        groups[key_of(span)].append(span)
    return groups


@each_case(
    "by", [*COLUMNS, "http.route", "n.x", "span.k", "resource.http.route", "scope.k", "span.odd key'\"\\"]
)
def test_red_of_groups_agrees_with_plain_python(store: Store, spans: Sequence[Span], by: str) -> None:
    rng = random.Random(by)
    for counted in ("requests", "all"):
        text, matches = random_filter(rng)
        rows = whole(store, "red", by=by, filter=text, spans=counted)

        found = [span for span in selected(spans, matches) if counted == "all" or is_request(span)]
        groups = grouped(
            [span for span in found if value_of(span, by) is not None], lambda s: value_of(s, by)
        )
        assert {row.pop("group"): row for row in rows} == {
            group: pytest.approx(expected_red(members, HOUR_S)) for group, members in groups.items()
        }
        assert [row["spans"] for row in rows] == sorted((row["spans"] for row in rows), reverse=True)


@each_case(("every", "every_s"), [("7m", 420), ("30m", 1_800), ("40d", 40 * 86_400)])
def test_red_over_time_has_a_line_for_each_bucket_with_spans(
    store: Store, spans: Sequence[Span], every: str, every_s: int
) -> None:
    rows = whole(store, "red", every=every)

    expected = {}
    groups = grouped(
        selected(spans, is_request),
        lambda span: (span["ServiceName"], span["start_ns"] // 10**9 // every_s * every_s),
    )
    for (service, start_s), members in groups.items():
        seconds = min(start_s + every_s, NOW_S) - max(start_s, NOW_S - HOUR_S)
        start = utc(start_s * 10**9, has_fraction=False)
        red = {**expected_red(members, seconds), "complete": seconds == every_s}
        expected[service, start] = pytest.approx(red)
    assert {(row.pop("group"), row.pop("start")): row for row in rows} == expected


@each_case(("until_s", "end_s"), [(600, 600), (-600, 0)])
def test_rate_between_instants_ends_at_the_later_instant_or_now(
    store: Store, until_s: int, end_s: int
) -> None:
    since = utc((NOW_S - HOUR_S) * 10**9 + 5 * 10**8)
    until = utc((NOW_S - until_s) * 10**9)

    rows = whole(store, "red", since=since, until=until)

    assert rows
    for row in rows:
        assert row["rate_per_s"] == pytest.approx(row["spans"] / (HOUR_S - 0.5 - end_s))


@each_case("name", ["red", "errors", "services"])
def test_answer_over_its_limit_is_cut(store: Store, name: str) -> None:
    rows = whole(store, name)

    for limit, is_cut in ((2, True), (len(rows), False)):
        answer = answer_of(store, name, {"limit": str(limit)})
        assert rows_of(answer.pieces()) == rows[:limit]
        assert answer.is_cut == is_cut


def test_services_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rows = whole(store, "services")

    assert by_service(rows) == expected_services(selected(spans, lambda _span: True))
    assert [row["spans"] for row in rows] == sorted((row["spans"] for row in rows), reverse=True)


def by_service(rows: Sequence[Row]) -> dict[str, tuple[int, ...]]:
    return {row["service"]: (row["spans"], row["errors"], row["operations"]) for row in rows}


def expected_services(spans: Sequence[Span]) -> dict[str, tuple[int, ...]]:
    """Return the numbers of spans, errors and operations."""
    return {
        service: (
            len(members),
            sum(span["StatusCode"] == "Error" for span in members),
            len({span["SpanName"] for span in members}),
        )
        for service, members in grouped(spans, lambda span: span["ServiceName"]).items()
    }


def test_operations_of_a_service_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rows = whole(store, "operations", service="web")

    assert by_operation(rows) == {
        operation: pytest.approx(expected)
        for operation, expected in expected_operations(selected(spans, lambda _span: True)).items()
    }


def by_operation(rows: Sequence[Row]) -> dict[tuple[str, str], Row]:
    return {(row.pop("name"), row.pop("kind")): row for row in rows}


def expected_operations(spans: Sequence[Span]) -> dict[tuple[str, str], dict[str, float | None]]:
    """Return the counts and percentiles of the operations of `web`."""
    of_service = [span for span in spans if span["ServiceName"] == "web"]
    names = ("spans", "errors", "p50_ms", "p95_ms", "p99_ms")
    return {
        operation: {name: expected_red(members, 1)[name] for name in names}
        for operation, members in grouped(of_service, lambda s: (s["SpanName"], s["SpanKind"])).items()
    }


def test_latency_agrees_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(12)
    for counted in ("requests", "all"):
        text, matches = random_filter(rng)
        rows = whole(store, "latency", every="10m", filter=text, spans=counted)

        found = [span for span in selected(spans, matches) if counted == "all" or is_request(span)]
        groups = grouped(
            found,
            lambda span: (
                utc(span["start_ns"] // 10**9 // 600 * 600 * 10**9, has_fraction=False),
                bisect.bisect_right(BOUNDS_NS, span["Duration"]) - 1,
            ),
        )
        assert rows == [
            {
                "start": start,
                "complete": NOW_S - HOUR_S <= datetime.fromisoformat(start).timestamp() <= NOW_S - 600,
                "from_ms": pytest.approx(BOUNDS_NS[place] / 1e6),
                "to_ms": pytest.approx((BOUNDS_NS[place + 1] if place + 1 < len(BOUNDS_NS) else 2**64) / 1e6),
                "spans": len(members),
                "errors": sum(span["StatusCode"] == "Error" for span in members),
            }
            for (start, place), members in sorted(groups.items())
        ]


def test_duration_buckets_are_a_quarter_of_an_octave_wide() -> None:
    milliseconds = [bound for bound in BOUNDS_NS if bound >= 10**6]

    assert BUCKETS_PER_OCTAVE == 4
    for lower, upper in pairwise(milliseconds):
        assert upper / lower == pytest.approx(2**0.25, rel=1e-5)


def test_range_that_begins_in_the_current_second_lasts_until_now() -> None:
    assert TimeRange(from_at_s=100.25).past_s(100.75) == (100.25, 100.75)
    assert TimeRange(from_at_s=100.0).past_s(100.75) == (100.0, 100.75)
    assert TimeRange(from_at_s=99.5).past_s(100.75) == (99.5, 100.0)


@each_case("since_s", [1, 60, 61, HOUR_S, 86_400, 7 * 86_400, 400 * 86_400])
def test_time_buckets_are_chosen_for_a_terminal(since_s: int) -> None:
    count = since_s / automatic_every_s(TimeRange(since_s), NOW_S)

    assert 9 < count <= 60 or since_s <= 60


@each_case(
    ("name", "parameters", "message"),
    [
        ("red", {"by": "sevice"}, "by: did you mean 'service'?"),
        ("red", {"by": "s3cret"}, "by: expected service"),
        ("red", {"by": "event.name"}, "by: expected service"),
        ("red", {"by": "span."}, "by: expected service"),
        ("red", {"by": f"k.{'x' * 200}"}, "by: expected service"),
        ("red", {"spans": "some"}, "spans: expected requests or all"),
        ("red", {"every": "soon"}, "every: expected a number"),
        ("red", {"every": "0s"}, "every: expected a number"),
        ("latency", {"every": "1s", "since": "1d"}, f"at most {BUCKETS_MAX} intervals"),
        ("latency", {"spans": ""}, "spans: expected requests or all"),
    ],
)
def test_invalid_parameter_is_refused_without_repeating_it(
    name: str, parameters: dict[str, str], message: str
) -> None:
    with pytest.raises(MalformedBody) as refused:
        QUESTIONS[name].parse(parameters)

    assert message in str(refused.value)
    assert "s3cret" not in str(refused.value)


def test_hostile_key_is_only_a_key(store: Store) -> None:
    for key in ("span.') OR 1=1 --", "span.{from_ns:String}", "resource.`k`; DROP TABLE otel_traces"):
        assert whole(store, "red", by=key) == []


def error_key(span: Span) -> tuple[str, str, str]:
    names = span["Events.Name"]
    event = span["Events.Attributes"][names.index("exception")] if "exception" in names else {}
    kind = event.get("exception.type") or span["SpanAttributes"].get("error.type", "")
    message = event.get("exception.message") or span["StatusMessage"]
    return span["ServiceName"], kind, EXPECTED_TEMPLATES.get(message, message)


EXPECTED_TEMPLATES = dict(
    zip(
        MESSAGES,
        ("no user <number>", "no user <number>", "cannot open <text>", "cannot open <text>", "é <hex>", ""),
        strict=True,
    )
)


def test_error_groups_agree_with_plain_python(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(13)
    for text, matches in [("", lambda _span: True), *(random_filter(rng) for _ in range(6))]:
        rows = whole(store, "errors", filter=text)

        groups = grouped([span for span in selected(spans, matches) if has_error(span)], error_key)
        found = {(row.pop("service"), row.pop("type"), row.pop("message")): row for row in rows}
        new = new_since(selected(spans, lambda _span: True))
        assert found == {
            key: {**expected_errors(members), "new_since": new[key]} for key, members in groups.items()
        }
        assert text or any(row["new_since"] for row in rows)
        assert [row["spans"] for row in rows] == sorted((row["spans"] for row in rows), reverse=True)


def expected_errors(members: Sequence[Span]) -> dict[str, Any]:
    newest = max(members, key=lambda span: (span["start_ns"], span["TraceId"]))
    operations = sorted({span["SpanName"] for span in members}, key=str.encode)
    deployments = Counter(span["DeploymentId"] for span in members if span["DeploymentId"])
    by_spans = sorted(deployments, key=lambda name: (-deployments[name], name))
    interval_ns = HOUR_S * 10**9 // INTERVALS + 1
    intervals = Counter((span["start_ns"] - (NOW_S - HOUR_S) * 10**9) // interval_ns for span in members)
    return {
        "spans": len(members),
        "traces": len({span["TraceId"] for span in members}),
        "first": utc(min(span["start_ns"] for span in members)),
        "last": utc(newest["start_ns"]),
        "operation_count": len(operations),
        "operations": operations,
        "deployment_count": len(deployments),
        "deployments": by_spans,
        "deployment_spans": [deployments[name] for name in by_spans],
        "over_time": [intervals[index] for index in range(INTERVALS)],
        "example_trace_id": newest["TraceId"],
        "estimated_spans": pytest.approx(estimates(members)["estimated_spans"]),
    }


def new_since(spans: Sequence[Span]) -> dict[tuple[str, str, str], list[str]]:
    """Return the deployments since which each group is new, one of each project."""
    news: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    deployed = [span for span in spans if span["DeploymentId"]]
    for project in {span["ProjectId"] for span in deployed}:
        of_project = [span for span in deployed if span["ProjectId"] == project]
        ordered = sorted(of_project, key=lambda span: (span["start_ns"], span["DeploymentId"]))
        deployments = list(dict.fromkeys(span["DeploymentId"] for span in ordered))
        for key, members in grouped([span for span in of_project if has_error(span)], error_key).items():
            first = min(deployments.index(span["DeploymentId"]) for span in members)
            if first:
                news[key].append(deployments[first])
    return defaultdict(list, {key: sorted(names) for key, names in news.items()})


def test_error_group_names_a_limited_number_of_operations(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    unlimited = whole(store, "errors")
    assert NAMES_PER_GROUP == 20
    monkeypatch.setattr("receiver.console.queries.error_groups.NAMES_PER_GROUP", 1)

    limited = whole(store, "errors")

    assert any(len(row["operations"]) > 1 for row in unlimited)
    assert limited == [
        {**row, **{name: row[name][:1] for name in ("operations", "deployments", "deployment_spans")}}
        for row in unlimited
    ]
