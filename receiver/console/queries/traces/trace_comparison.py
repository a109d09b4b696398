"""Comparison of two traces: which spans only one of them has, and what took longer.

Spans correspond if their parents correspond and they have the same service, name and kind. Of several such
children of a parent, the first corresponds to the first, the second to the second, by start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from receiver.console.queries.traces.trace_model import Row, Span, Trace, in_tree_order, trace_of

Pair = tuple[Span | None, Span | None]


def below(trace: Trace, span_id: str) -> Trace | None:
    """Return a span and all spans below it as a trace; `None` if the trace does not have the span."""
    top = next((span for span in trace.spans if span.row["SpanId"] == span_id), None)
    return trace_of(span.row for span in in_tree_order([top])) if top else None


def differences(first: Trace, second: Trace, *, roots_correspond: bool = False) -> Iterator[Row]:
    """Yield a row for each pair of corresponding spans, and for each span without a counterpart.

    Parents come before their children. `roots_correspond`: whatever their services, names and kinds.
    """
    if roots_correspond:
        tops: list[Pair] = [(first.root, second.root)]
        rest = [[top for top in trace.tops if top is not trace.root] for trace in (first, second)]
        tops += _pairs(*rest)
    else:
        tops = _pairs(first.tops, second.tops)
    # A stack instead of recursion: a sender can nest spans deeper than the interpreter's stack.
    waiting = [(pair, 0) for pair in reversed(tops)]
    while waiting:
        pair, depth = waiting.pop()
        yield _difference(pair, depth, first, second)
        children = _pairs(*(span.children if span else () for span in pair))
        waiting.extend((each, depth + 1) for each in reversed(children))


def _pairs(first: Sequence[Span], second: Sequence[Span]) -> list[Pair]:
    """Pair siblings in the order of the first trace, followed by unpaired siblings of the second."""
    candidates: dict[tuple[str, ...], list[Span]] = defaultdict(list)
    # Reversed, so that `pop` returns the first one.
    for span in reversed(second):
        candidates[_kind_of(span)].append(span)
    pairs: list[Pair] = [
        (span, candidates[_kind_of(span)].pop() if candidates[_kind_of(span)] else None) for span in first
    ]
    paired = {other for _, other in pairs}
    return [*pairs, *((None, span) for span in second if span not in paired)]


def _kind_of(span: Span) -> tuple[str, ...]:
    return span.row["ServiceName"], span.row["SpanName"], span.row["SpanKind"]


def _difference(pair: Pair, depth: int, first: Trace, second: Trace) -> Row:
    a, b = pair
    row = (a or b).row  # type: ignore[union-attr]  # a pair has at least one span
    duration_change_ms = None if a is None or b is None else (_duration_ns(b) - _duration_ns(a)) / 1e6
    return {
        "change": "none" if a and b else "removed" if a else "added",
        "depth": depth,
        "service": row["ServiceName"],
        "name": row["SpanName"],
        "kind": row["SpanKind"],
        "a": _measured(a, first),
        "b": _measured(b, second),
        "duration_change_ms": duration_change_ms,
    }


def _measured(span: Span | None, trace: Trace) -> dict[str, Any] | None:
    if span is None:
        return None
    return {
        "span_id": span.row["SpanId"],
        "start_ms": (span.start_ns - trace.root.start_ns) / 1e6,
        "duration_ms": _duration_ns(span) / 1e6,
        "self_ms": span.self_ns / 1e6,
        "critical_ms": span.critical_ns / 1e6,
        "status": span.row["StatusCode"],
    }


def _duration_ns(span: Span) -> int:
    return span.end_ns - span.start_ns
