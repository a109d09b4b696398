"""Comparisons of deployments agree with plain Python, in the embedded engine and on a server."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import datetime

import pytest

from receiver.console.queries.comparison.compare import OPERATIONS_DEFAULT, OPERATIONS_MAX
from receiver.console.queries.comparison.new_errors import NEW_ERRORS_MAX
from receiver.console.queries.comparison.operation_change import FALSE_ALARM_SHARE
from receiver.engine.store import Store
from receiver.errors import MalformedBody, NoSuchDeployment
from tests.support.answers import Row, ask
from tests.support.cases import each_case
from tests.support.comparisons import MINUTE_NS, Expected, estimates_of, failed, key_of, side_of
from tests.support.random_filters import NOW_S, Span, random_span
from tests.support.random_trees import random_filter

SPANS = 1_500


def deployment_span(rng: random.Random, number: int) -> Span:
    """Return a span of one of four deployments, which differ in their times and operations."""
    span = random_span(rng, number)
    deployment = rng.choice(["dpl_a", "dpl_b", "dpl_short", "dpl_other"])
    started_s = {"dpl_a": 3_500, "dpl_b": 1_700, "dpl_short": 900, "dpl_other": 3_590}[deployment]
    length_s = {"dpl_a": 1_750, "dpl_b": 1_690, "dpl_short": 130, "dpl_other": 3_000}[deployment]
    is_b = deployment == "dpl_b"
    operation = rng.choice(["GET /", "POST /pay", "rare", "gone" if not is_b else "new"])
    is_slow = is_b and operation == "GET /"
    is_failing = rng.random() < (0.5 if is_b and operation == "POST /pay" else 0.05)
    service = rng.choice(["web", "web", "cart"])
    return {
        **span,
        "start_ns": (NOW_S - started_s) * 10**9 + rng.randrange(length_s * 10**9),
        "DeploymentId": deployment,
        "ServiceName": service,
        "SpanName": operation,
        "SpanKind": "Server" if operation != "rare" else rng.choice(["Server", "Client", "Producer"]),
        "SampleWeight": weight_of(number, is_known=service == "web" or number % 9 > 0),
        "Duration": round(rng.lognormvariate(17, 0.4) * (1.5 if is_slow else 1)),
        "StatusCode": "Error" if is_failing else "Ok",
        "StatusMessage": f"order {number} has no card"
        if is_b
        else f"timeout {number:08x}-ab00-0000-0000-00000000000f",
    }


def weight_of(number: int, *, is_known: bool) -> float | None:
    """Return a weight that does not depend on the other random numbers of the span."""
    return random.Random(number).choice([1.0, 2.0, 4.5]) if is_known else None


@pytest.fixture(scope="module")
def spans() -> list[Span]:
    rng = random.Random(11)
    return [deployment_span(rng, number) for number in range(SPANS)]


def compared(store: Store, **query: str) -> Row:
    (row,) = ask(store, "compare", **query)
    return row


@each_case(
    ("query", "length_ns"),
    [
        ({"a": "dpl_a", "b": "dpl_b"}, None),
        ({"a": "dpl_b", "b": "dpl_a"}, None),
        ({"a": "dpl_a", "b": "dpl_short"}, None),
        ({"a": "dpl_other", "b": "dpl_b", "first": "10m"}, 10 * MINUTE_NS),
        ({"a": "dpl_a", "b": "dpl_b", "first": "5s"}, 5 * 10**9),
        ({"a": "dpl_a", "b": "dpl_b", "first": "40s"}, 40 * 10**9),
    ],
)
def test_comparison_agrees_with_plain_python(
    store: Store, spans: Sequence[Span], query: dict[str, str], length_ns: int | None
) -> None:
    expected = Expected(spans, query["a"], query["b"], length_ns)

    row = compared(store, **query)

    operations = {key_of(operation): operation for operation in row["operations"]}
    assert operations.keys() == expected.common()
    p_values = expected.p_values()
    for key, operation in operations.items():
        for side in ("a", "b"):
            assert operation[side] == pytest.approx(side_of(expected.operations[side].get(key, [])))
        assert operation["p_value"] == (pytest.approx(p_values[key]) if key in p_values else None)
        assert (operation["change"] == "too few spans") == (key not in p_values)
        assert operation["change"] in ("same", "too few spans") or p_values[key] <= FALSE_ALARM_SHARE
    assert {key_of(found): found["count"] for found in row["vanished"]} == expected.one_sided("a", "b")
    assert {key_of(found): found["count"] for found in row["appeared"]} == expected.one_sided("b", "a")
    new_errors = {(error["type"], error["message"]): error["count"] for error in row["new_errors"]}
    assert new_errors == expected.new_errors()
    assert row["windows"]["b"]["spans"] == len(expected.in_window["b"])
    assert row["windows"]["a"]["errors"] == failed(expected.in_window["a"])
    assert row["totals"] == {
        name: len(row[name]) for name in ("services", "operations", "new_errors", "vanished", "appeared")
    }


@each_case("query", [{}, {"first": "10m"}, {"filter": "service=web"}])
def test_levels_count_traces_and_those_with_an_error(
    store: Store, spans: Sequence[Span], query: dict[str, str]
) -> None:
    matching = [span for span in spans if not query.get("filter") or span["ServiceName"] == "web"]
    expected = Expected(matching, "dpl_a", "dpl_b", 10 * MINUTE_NS if "first" in query else None)

    row = compared(store, a="dpl_a", b="dpl_b", **query)

    assert {level["service"] for level in row["services"]} == {span["ServiceName"] for span in matching}
    for level in (row["whole"], *row["services"]):
        for side in ("a", "b"):
            counts = (level[side]["traces"], level[side]["errors"])
            assert counts == expected.traces(side, level["service"]), level


_SPARSE = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, ServiceName, SpanName, DeploymentId, StatusCode)
SELECT
    fromUnixTimestamp64Nano(toInt64({now_s} - 7200) * 1000000000 + number), hex(intDiv(number, 2)),
    hex(number), if(number % 2 = 0, 'calm', 'failing'), 'op' || toString(intDiv(number, 4) % 70),
    if(intDiv(number, 2) % 2 = 0, 'sparse_a', 'sparse_b'),
    if(number % 2 = 1 AND intDiv(number, 4) % 100 < if(intDiv(number, 2) % 2 = 0, 5, 27), 'Error', 'Ok')
FROM numbers(1680)
"""
"""Spans of 140 operations, two in each trace: in one service 5 % of the traces fail in A, and 27 % in B."""


def test_errors_that_are_spread_over_many_operations_are_found_in_their_service(store: Store) -> None:
    store.command(_SPARSE.format(now_s=NOW_S))

    row = compared(store, a="sparse_a", b="sparse_b", since="3h")

    assert {found["change"] for found in row["operations"]} <= {"same", "too few spans"}
    assert [(level["service"], level["change"]) for level in row["services"]] == [
        ("failing", "more errors"),
        ("calm", "same"),
    ]
    assert row["whole"]["change"] == "more errors"
    assert row["services"][0]["p_value"] < 1e-6
    assert row["services"][1]["detectable_error_rate"] < 0.1
    assert row["verdict"].startswith("sparse_b is worse: service failing traces with errors ")


def test_windows_have_estimates_only_if_every_weight_is_known(store: Store, spans: Sequence[Span]) -> None:
    web = [span for span in spans if span["ServiceName"] == "web"]
    expected = estimates_of(Expected(web, "dpl_a", "dpl_b").in_window["b"])

    known = compared(store, a="dpl_a", b="dpl_b", filter="service=web")["windows"]["b"]
    unknown = compared(store, a="dpl_a", b="dpl_b")["windows"]["b"]

    assert known["estimated_spans"] == pytest.approx(expected["estimated_count"])
    assert known["estimated_errors"] == pytest.approx(expected["estimated_errors"])
    assert known["estimated_spans"] > known["spans"]
    assert (unknown["estimated_spans"], unknown["estimated_errors"]) == (None, None)


@each_case(
    ("query", "ages_s"),
    [
        ({"first": "30m"}, {"a": None, "b": 0}),
        ({"first": "10m"}, {"a": None, "b": None}),
        ({"first": "40m", "until": "25m"}, {"a": 1_500, "b": 1_500}),
        ({"until": "25m"}, {"a": None, "b": None}),
    ],
)
def test_window_that_has_not_ended_is_incomplete(
    store: Store, query: dict[str, str], ages_s: dict[str, int | None]
) -> None:
    windows = compared(store, a="dpl_a", b="dpl_b", **query)["windows"]

    for side, age_s in ages_s.items():
        assert windows[side]["is_complete"] == (age_s is None)
        end_s = datetime.fromisoformat(windows[side]["end"]).timestamp()
        assert end_s <= NOW_S
        assert age_s is None or end_s == NOW_S - age_s


def test_comparison_finds_what_changed_and_puts_the_worst_first(store: Store) -> None:
    row = compared(store, a="dpl_a", b="dpl_b")

    changes = {(found["service"], found["name"]): found["change"] for found in row["operations"]}
    assert changes["web", "POST /pay"] == "more errors"
    assert changes["web", "GET /"] == "slower"
    assert changes["web", "rare"] in ("same", "too few spans")
    assert {found["name"] for found in row["operations"][:2]} == {"POST /pay", "GET /"}
    assert {found["name"] for found in row["vanished"]} == {"gone"}
    assert {found["name"] for found in row["appeared"]} == {"new"}
    assert row["verdict"].startswith("dpl_b is worse: web ")
    assert "new error" in row["verdict"]
    assert (row["a"], row["b"]) == ("dpl_a", "dpl_b")


def test_reverse_comparison_finds_an_improvement(store: Store) -> None:
    row = compared(store, a="dpl_b", b="dpl_a", filter='name="POST /pay" OR name="GET /"')

    changes = {(found["service"], found["name"]): found["change"] for found in row["operations"]}
    assert changes["web", "POST /pay"] == "fewer errors"
    assert changes["web", "GET /"] == "faster"
    assert "is worse" not in row["verdict"]
    assert "better" in row["verdict"]


def test_comparison_with_a_filter_uses_only_the_matching_spans(store: Store, spans: Sequence[Span]) -> None:
    rng = random.Random(12)
    tried = 0
    while tried < 5:
        text, matches = random_filter(rng)
        matching = [span for span in spans if matches(span)]
        if not {"dpl_a", "dpl_b"} <= {span["DeploymentId"] for span in matching}:
            continue
        expected = Expected(matching, "dpl_a", "dpl_b")

        row = compared(store, a="dpl_a", b="dpl_b", filter=text)

        assert row["windows"]["a"]["spans"] == len(expected.in_window["a"]), text
        assert {key_of(found) for found in row["operations"]} == expected.common(), text
        tried += 1


def test_limit_shortens_lists_and_totals_say_their_length(store: Store) -> None:
    whole = compared(store, a="dpl_a", b="dpl_b")
    cut = compared(store, a="dpl_a", b="dpl_b", limit="1")

    assert cut["operations"] == whole["operations"][:1]
    assert cut["totals"] == whole["totals"]
    assert cut["verdict"] == whole["verdict"]


@each_case(
    ("query", "message"),
    [
        (
            {"a": "dpl_a", "b": "dpl_bb"},
            "b: no span in the time range is of this deployment; did you mean 'dpl_b'",
        ),
        ({"a": "s3cret", "b": "dpl_b"}, "a: no span .* of this deployment; .*newest are dpl_short, dpl_b, "),
        (
            {"a": "dpl_a", "b": "dpl_b", "filter": "deployment=dpl_a"},
            "b: no span of this deployment .* the filter",
        ),
        (
            {"a": "dpl_a", "b": "dpl_b", "since": "1s"},
            "a: no span .* has a deployment; an earlier since reads further back",
        ),
        ({"a": "dpl_a", "b": "dpl_a"}, "b: expected another deployment than a"),
        ({"a": "dpl_a", "b": "dpl_b", "first": "soon"}, "first is not a length"),
    ],
)
def test_impossible_comparison_is_a_clear_error(store: Store, query: dict[str, str], message: str) -> None:
    with pytest.raises((MalformedBody, NoSuchDeployment), match=message) as error:
        compared(store, **query)

    assert "s3cret" not in str(error.value)


def test_deployments_are_listed_newest_first(store: Store, spans: Sequence[Span]) -> None:
    rows = ask(store, "deployments", filter="service=web")

    found: dict[tuple[str, str], list[Span]] = defaultdict(list)
    for span in spans:
        if span["ServiceName"] == "web":
            found[span["ProjectId"], span["DeploymentId"]].append(span)
    assert {(row["project"], row["deployment"]): (row["spans"], row["errors"]) for row in rows} == {
        key: (len(group), failed(group)) for key, group in found.items()
    }
    starts = [min(span["start_ns"] for span in found[row["project"], row["deployment"]]) for row in rows]
    assert starts == sorted(starts, reverse=True)
    for row, start_ns in zip(rows, starts, strict=True):
        assert row["first_seen"] < row["last_seen"]
        assert row["first_seen"].endswith(f".{start_ns % 10**9:09d}Z")


_MANY = """
INSERT INTO otel_traces (Timestamp, TraceId, SpanId, SpanName, DeploymentId, StatusCode, StatusMessage)
SELECT
    fromUnixTimestamp64Nano(toInt64({now_s} - 5400) * 1000000000 + number), hex(number), hex(number),
    {name}, if(number % 2 = 0, 'many_a', 'many_b'), {status}, {message}
FROM numbers({rows})
"""
"""Spans before the last hour, which the other tests do not read."""


def test_comparison_of_too_many_operations_fails_and_a_filter_helps(store: Store) -> None:
    store.command(
        _MANY.format(
            now_s=NOW_S,
            name="'op' || toString(number DIV 2)",
            status="'Ok'",
            message="''",
            rows=2 * (OPERATIONS_MAX + 1),
        )
    )

    with pytest.raises(MalformedBody, match=f"over {OPERATIONS_MAX} operations; narrow"):
        compared(store, a="many_a", b="many_b", since="2h", filter="status=ok")

    row = compared(store, a="many_a", b="many_b", since="2h", filter="status=ok -name=op7")
    assert row["totals"]["operations"] == OPERATIONS_MAX
    assert len(row["operations"]) == OPERATIONS_DEFAULT


def test_new_errors_over_their_limit_are_counted(store: Store) -> None:
    words = "concat('w', char(97 + number DIV 26 % 26), char(97 + number % 26))"
    store.command(
        _MANY.format(
            now_s=NOW_S,
            name="'fails'",
            status="'Error'",
            message=f"if(number % 2 = 1, {words}, 'known')",
            rows=2 * (NEW_ERRORS_MAX + 5),
        )
    )

    row = compared(store, a="many_a", b="many_b", since="2h", filter="status=error")

    assert len(row["new_errors"]) == NEW_ERRORS_MAX
    assert row["totals"]["new_errors"] == NEW_ERRORS_MAX + 5
    assert f"{NEW_ERRORS_MAX + 5} new errors" in row["verdict"]
