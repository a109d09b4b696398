"""The comparison of two traces pairs spans by their position and agrees with a recursive implementation."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Sequence

import pytest

from receiver.console.queries.traces.trace_comparison import differences
from receiver.console.queries.traces.trace_model import Span, trace_of
from receiver.console.queries.traces.traces import comparison
from receiver.engine.store import Store
from receiver.errors import MalformedBody
from tests.support.answers import rows_of
from tests.support.random_filters import NOW_S
from tests.support.traces import Row, random_rows, span

LARGE = 20_000


def ids(rows: Sequence[Row]) -> list[tuple[str, str | None, str | None]]:
    return [
        (row["change"], *(side["span_id"] if side else None for side in (row["a"], row["b"]))) for row in rows
    ]


def paths(tops: Sequence[Span], above: str = "") -> dict[str, Span]:
    """Return each span by its path: the names and positions of the spans above it."""
    seen: dict[str, int] = defaultdict(int)
    found = {}
    for each in tops:
        name = "|".join((each.row["ServiceName"], each.row["SpanName"], each.row["SpanKind"]))
        path = f"{above}/{name}#{seen[name]}"
        seen[name] += 1
        found.update({path: each, **paths(each.children, path)})
    return found


def test_random_traces_are_paired_by_position() -> None:
    rng = random.Random(29)
    changes = set()
    for _ in range(500):
        first, second = (
            trace_of([{**row, "SpanName": rng.choice("xy")} for row in random_rows(rng)]) for _ in range(2)
        )
        a, b = paths(first.tops), paths(second.tops)

        rows = list(differences(first, second))

        expected = {
            (a[path].row["SpanId"] if path in a else None, b[path].row["SpanId"] if path in b else None)
            for path in {*a, *b}
        }
        assert {found[1:] for found in ids(rows)} == expected
        assert len(rows) == len({*a, *b})
        for row in rows:
            sides = row["a"], row["b"]
            assert (
                row["change"]
                == {(True, True): "none", (True, False): "removed", (False, True): "added"}[
                    bool(sides[0]), bool(sides[1])
                ]
            )
            changes.add(row["change"])
    assert changes == {"none", "removed", "added"}


def test_times_of_a_pair_are_compared() -> None:
    ms = 1_000_000
    first = trace_of([span("a", "", 0, 10 * ms), span("b", "a", 2 * ms, 5 * ms)])
    second = trace_of([span("a", "", 0, 12 * ms, StatusCode="Error"), span("b", "a", ms, 3 * ms)])

    root, child = differences(first, second)

    assert root["duration_change_ms"] == 2
    assert (root["a"]["status"], root["b"]["status"]) == ("Unset", "Error")
    assert (child["depth"], child["duration_change_ms"]) == (1, -1)
    assert child["a"] == {
        "span_id": "b",
        "start_ms": 2,
        "duration_ms": 3,
        "self_ms": 3,
        "critical_ms": 3,
        "status": "Unset",
    }


@pytest.mark.timeout(60)
def test_chains_of_many_spans_are_compared() -> None:
    rows = [span(str(n), str(n - 1) if n else "", n, 2 * LARGE - n, SpanName="x") for n in range(LARGE)]

    found = list(differences(trace_of(rows), trace_of(rows)))

    assert len(found) == LARGE
    assert {row["change"] for row in found} == {"none"}


@pytest.fixture(scope="module")
def spans() -> list[Row]:
    """Return two traces of three and two spans."""
    return [
        {"TraceId": digit * 32, "SpanId": f"{n:016x}", "start_ns": (NOW_S + n) * 10**9, "Duration": 10**6}
        for digit, count in (("a", 3), ("b", 2))
        for n in range(1, count + 1)
    ]


def test_stored_traces_are_compared(store: Store) -> None:
    rows = rows_of(comparison(store, "a" * 32, "b" * 32))

    assert [row["change"] for row in rows] == ["none", "none", "removed"]


def test_comparison_with_an_unknown_trace_has_no_lines(store: Store) -> None:
    assert list(comparison(store, "a" * 32, "c" * 32)) == []
    assert list(comparison(store, "c" * 32, "a" * 32)) == []


def test_comparison_of_a_trace_over_the_limit_fails(store: Store) -> None:
    assert len(list(comparison(store, "a" * 32, "b" * 32, 3))) == 3
    with pytest.raises(MalformedBody, match="over 2 spans"):
        list(comparison(store, "a" * 32, "b" * 32, 2))
