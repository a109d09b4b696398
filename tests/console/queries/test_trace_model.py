"""The tree, self times and critical path of a trace agree with a slow implementation."""

from __future__ import annotations

import gc
import random
from collections import Counter
from collections.abc import Callable
from itertools import pairwise
from weakref import ref

import pytest

from receiver.console.queries.traces.trace_model import Span, Trace, start_ns_of, trace_of
from tests.support.traces import Row, random_rows, span

TRACES = 600
LARGE = 20_000


def base_ns() -> int:
    return start_ns_of("2026-01-31 10:00:00.000000000")


def times(row: Row) -> tuple[int, int]:
    start = int(row["Timestamp"].rpartition(".")[2])
    return start, start + row["Duration"]


def sort_key(row: Row) -> tuple[int, str]:
    return times(row)[0], row["SpanId"]


def distinct(rows: list[Row]) -> list[Row]:
    """Return the rows without copies, by start."""
    kept: list[Row] = []
    for row in rows:
        plain = {column: value for column, value in row.items() if column not in ("Drain", "StatusCode")}
        if not any(plain == {column: other[column] for column in plain} for other in kept):
            kept.append(row)
    return sorted(kept, key=sort_key)


def parents(rows: list[Row]) -> list[int | None]:
    """Return the index of the parent of each row. The first row of each cycle has none."""
    found: list[int | None] = [
        next((at for at, other in enumerate(rows) if other["SpanId"] == row["ParentSpanId"]), None)
        for row in rows
    ]
    for place in range(len(rows)):  # by start, so that the first of each cycle is cut
        at, seen = found[place], 0
        while at not in (None, place) and seen <= len(rows):
            at, seen = found[at], seen + 1
        if at == place:
            found[place] = None
    return found


def units_on_path(rows: list[Row], parent: list[int | None], root: int) -> Counter[int]:
    """Count the nanoseconds of the critical path in each row: walk back in steps of one nanosecond."""
    owned: Counter[int] = Counter()

    def walk(place: int, low: int, high: int) -> None:
        clipped = {
            child: (max(times(rows[child])[0], low), min(times(rows[child])[1], high))
            for child in range(len(rows))
            if parent[child] == place
        }
        now = high
        while now > low:
            ending = [child for child, (start, end) in clipped.items() if end == now and start < end]
            if ending:
                child = min(ending, key=lambda child: clipped[child][0])
                walk(child, *clipped[child])
                now = clipped[child][0]
            else:
                now -= 1
                owned[place] += 1

    walk(root, *times(rows[root]))
    return owned


def self_units(rows: list[Row], parent: list[int | None], place: int) -> int:
    covered = {
        unit for child in range(len(rows)) if parent[child] == place for unit in range(*times(rows[child]))
    }
    return len(set(range(*times(rows[place]))) - covered)


def by_row(trace: Trace) -> dict[int, Span]:
    return {id(span.row): span for span in trace.spans}


def test_random_traces_agree_with_the_slow_implementation() -> None:
    rng = random.Random(17)
    paths_through_children = 0
    for _ in range(TRACES):
        stored = random_rows(rng)
        rows = distinct(stored)
        parent = parents(rows)

        trace = trace_of(stored)

        found = by_row(trace)
        assert len(found) == len(rows)
        assert sum(span.copies for span in trace.spans) == len(stored)
        root = min(
            (place for place in range(len(rows)) if parent[place] is None),
            key=lambda place: (bool(rows[place]["ParentSpanId"]), sort_key(rows[place])),
        )
        owned = units_on_path(rows, parent, root)
        for place, row in enumerate(rows):
            node = found[id(row)]
            above = parent[place]
            assert node.parent is (None if above is None else found[id(rows[above])])
            assert node.self_ns == self_units(rows, parent, place)
            assert node.critical_ns == owned[place]
        assert trace.root is found[id(rows[root])]
        assert sum(span.critical_ns for span in trace.spans) == rows[root]["Duration"]
        paths_through_children += len(owned) > 1
    assert paths_through_children > TRACES / 4


def test_random_traces_are_in_tree_order_with_depths_sizes_and_errors() -> None:
    rng = random.Random(19)
    for _ in range(TRACES):
        trace = trace_of(random_rows(rng))

        place = {span: place for place, span in enumerate(trace.spans)}
        for node in trace.spans:
            ancestors = [node]
            while ancestors[-1].parent:
                ancestors.append(ancestors[-1].parent)
            subtree = trace.spans[place[node] : place[node] + node.spans]
            assert node.depth == len(ancestors) - 1
            assert ancestors[-1] in trace.tops
            assert {other for other in trace.spans if node in chain(other)} == set(subtree)
            assert node.has_error_below == any(other.is_error for other in subtree)
            assert node.children == sorted(node.children, key=lambda child: sort_key(child.row))


def chain(node: Span) -> list[Span]:
    return [node, *(chain(node.parent) if node.parent else [])]


def test_sections_of_the_critical_path_cover_the_root_without_a_gap() -> None:
    rng = random.Random(23)
    for _ in range(200):
        trace = trace_of(random_rows(rng))

        sections = sorted(section for span in trace.spans for section in span.critical)

        if sections:
            assert (sections[0][0], sections[-1][1]) == (trace.root.start_ns, trace.root.end_ns)
        assert all(end == start for (_, end), (start, _) in pairwise(sections))


def test_orphans_cycles_and_clock_skew_are_distinguished() -> None:
    trace = trace_of(
        [
            span("a", "", 10, 20),
            span("b", "a", 7, 12),
            span("c", "absent", 3, 4),
            span("d", "e", 5, 6),
            span("e", "d", 4, 6),
            span("f", "f", 1, 2),
        ]
    )

    tops = {node.row["SpanId"]: (node.is_orphan, node in trace.cyclic) for node in trace.tops}
    assert tops == {"f": (True, True), "c": (True, False), "e": (True, True), "a": (False, False)}
    assert {node.row["SpanId"]: node.skew_ns for node in trace.spans if node.skew_ns} == {"b": 3}
    assert trace.root.row["SpanId"] == "a"


def chain_rows() -> list[Row]:
    return [span(str(n), str(n - 1) if n else "", n, 2 * LARGE - n) for n in range(LARGE)]


def star_rows() -> list[Row]:
    return [span("root", "", 0, LARGE), *(span(str(n), "root", n, n + 1) for n in range(LARGE - 1))]


def cycle_rows() -> list[Row]:
    return [span(str(n), str((n - 1) % LARGE), n, 2 * LARGE - n) for n in range(LARGE)]


# The rows are built in the test: as parameters they would be built in every process that collects the tests.
@pytest.mark.parametrize("large_trace", [chain_rows, star_rows, cycle_rows])
@pytest.mark.timeout(30)
def test_large_trace_has_the_whole_root_on_its_path(large_trace: Callable[[], list[Row]]) -> None:
    trace = trace_of(large_trace())

    assert len(trace.spans) == LARGE
    assert sum(node.critical_ns for node in trace.spans) == trace.root.row["Duration"]


def test_time_before_1970_and_of_other_precision_is_parsed() -> None:
    assert base_ns() == 1_769_853_600 * 10**9
    assert start_ns_of("1970-01-01 00:00:01.5") == 1_500_000_000
    assert start_ns_of("1969-12-31 23:59:59.000000001") == -999_999_999


def test_tree_is_freed_without_a_garbage_collection() -> None:
    rows = [span("a", "", 0, 10), span("b", "a", 2, 8)]
    gc.disable()
    try:
        trace = trace_of(rows)
        root = ref(trace.root)
        below = trace.spans[1].parent
        assert below is root()
        del trace, below

        assert root() is None
    finally:
        gc.enable()
