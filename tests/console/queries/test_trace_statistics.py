"""Sums over the spans of a trace agree with a slow computation that counts each nanosecond."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Iterator
from itertools import pairwise

from receiver.console.queries.traces.trace_model import Row, Span, Trace, trace_of
from receiver.console.queries.traces.trace_statistics import SpanSums, frame_tree, frames_in, sums_by
from receiver.console.ui.charts.flame_graph import FRAMES_MAX, WIDTH_MIN, laid_out
from tests.support.traces import random_rows, span

TRACES = 300
Path = tuple[tuple[str, str], ...]


def naive_self_ns(of: Span) -> int:
    """Count the nanoseconds of a span in which no child ran."""
    return sum(
        not any(child.start_ns <= moment < child.end_ns for child in of.children)
        for moment in range(of.start_ns, of.end_ns)
    )


def path_of(at: Span | None) -> Path:
    path = []
    while at is not None:
        path.append((at.row["ServiceName"], at.row["SpanName"]))
        at = at.parent
    return tuple(reversed(path))


def traces() -> Iterator[Trace]:
    """Yield traces with copies, orphans, cycles, several roots, and children outside of their parents."""
    rng = random.Random(54)
    for _ in range(TRACES):
        rows = random_rows(rng)
        for row in rows:
            row |= {"ServiceName": rng.choice("ab"), "SpanName": rng.choice("xy")}
        yield trace_of(rows)


def test_sums_of_groups_agree_with_counted_nanoseconds() -> None:
    for trace in traces():
        expected: dict[str | None, list[int]] = defaultdict(lambda: [0, 0, 0, 0])
        for each in trace.spans:
            values = (1, each.is_error, each.end_ns - each.start_ns, naive_self_ns(each))
            sums = expected[each.row["ServiceName"]]
            sums[:] = [sum(pair) for pair in zip(sums, values, strict=True)]

        found = sums_by(trace.spans, lambda each: str(each.row["ServiceName"]))

        assert found == {name: SpanSums(*values) for name, values in expected.items()}


def test_frame_has_the_spans_of_a_path_and_all_self_time_from_there_on() -> None:
    for trace in traces():
        spans, totals = Counter[Path](), Counter[Path]()
        for each in trace.spans:
            path = path_of(each)
            spans[path] += 1
            for length in range(len(path) + 1):
                totals[path[:length]] += naive_self_ns(each)

        whole, frame_of = frame_tree(trace)
        paths = {frame.key: path_of(each) for each, frame in frame_of.items()} | {"": ()}
        frames = list(frames_in(whole))

        assert {paths[frame.key]: frame.sums.spans for frame in frames[1:]} == spans
        assert {paths[frame.key]: frame.total_ns for frame in frames} == totals
        assert whole.frames == len(frames)


def test_drawn_frames_are_within_the_frame_above_and_do_not_overlap() -> None:
    for trace in traces():
        drawn = laid_out(frame_tree(trace)[0])
        positions = {each.frame: each for each in drawn}
        for each in drawn[1:]:
            assert each.frame.parent
            above = positions[each.frame.parent]
            assert above.left - 1e-9 <= each.left
            assert each.left + each.width <= above.left + above.width + 1e-9
        for level in {each.level for each in drawn}:
            row = sorted((each.left, each.left + each.width) for each in drawn if each.level == level)
            assert all(before[1] <= after[0] + 1e-9 for before, after in pairwise(row))


def rows_of_large_trace() -> list[Row]:
    """Return 50,000 spans: a chain of 10,000 operations, and 40,000 operations side by side below its top."""
    chain = [span(str(number), str(number - 1) if number else "", 0, 10**8) for number in range(10_000)]
    return [*chain, *(span(f"x{number}", "0", number, number + 5) for number in range(40_000))]


def test_graph_of_50_000_paths_draws_a_limited_number_of_frames() -> None:
    # In quadratic time this takes many minutes, and the timeout of the test ends it.
    whole, _ = frame_tree(trace_of(rows_of_large_trace()))

    drawn = laid_out(whole)

    assert whole.frames == 50_001
    assert len(drawn) <= FRAMES_MAX
    assert all(each.width >= WIDTH_MIN for each in drawn)
