"""Comparison of two traces: which spans only one of them has, and what took longer.

Spans correspond if their parents correspond and they have the same service, name and kind. Of several such
children of a parent, the first corresponds to the first, the second to the second, by start.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any

from receiver.console.queries.traces.trace_model import Row, Span, Trace

Pair = tuple[Span | None, Span | None]


def differences(first: Trace, second: Trace) -> Iterator[Row]:
    """Yield a row for each pair of corresponding spans, and for each span without a counterpart.

    Parents come before their children.
    """
    # A stack instead of recursion: a sender can nest spans deeper than the interpreter's stack.
    waiting = [(pair, 0) for pair in reversed(_pairs(first.tops, second.tops))]
    while waiting:
        pair, depth = waiting.pop()
        yield _difference(pair, depth, first, second)
        below = _pairs(*(span.children if span else () for span in pair))
        waiting.extend((each, depth + 1) for each in reversed(below))


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
