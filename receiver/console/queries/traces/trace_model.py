"""A trace as a tree: parents, copies, self times and the critical path of its spans, from the stored rows.

Rows of one span that was stored twice become one span with `copies`. Children are ordered by start.

The critical path is the work that the end of the root waited for. It goes backwards in time from the end of
the root to its start. From each moment in a span it continues in the child that was the last to finish until
then; the time since that child finished belongs to the span itself. The path leaves the child at the child's
start, so other children that run at that moment are not on the path. Of two children that finish together,
the longer is on the path. Only the time of a child within its parent counts, so the critical times of all
spans add up to the duration of the root.

Invariant: every function is linear in the number of spans (sorting excepted) and does not recurse: senders
    make chains of 50,000 spans, cycles, and spans that are their own parents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from itertools import pairwise
from typing import Any, Self
from weakref import ReferenceType, ref

from receiver.engine.sql_text import names

Row = dict[str, Any]

SPAN_IDENTITY = ("SpanId", "ParentSpanId", "ServiceName", "SpanName", "SpanKind", "Timestamp", "Duration")
"""Rows of one trace that are equal in these columns are copies of one span."""
IDENTITY = names(SPAN_IDENTITY)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class TreeNode:
    """Member of a tree. Refers to its parent weakly: a tree that is no longer used is freed at once."""

    __slots__ = ("__weakref__", "_parent")

    _parent: ReferenceType[Self] | None

    @property
    def parent(self) -> Self | None:
        """`None` at the top of a tree."""
        parent = getattr(self, "_parent", None)
        return parent() if parent else None

    @parent.setter
    def parent(self, parent: Self | None) -> None:
        self._parent = ref(parent) if parent else None


# Compared by identity: spans are members of sets, and a comparison of fields would follow children.
@dataclass(slots=True, eq=False)
class Span(TreeNode):
    """A span with its place in the tree. At the top: a root, an orphan, or the first span of a cycle."""

    row: Row
    """The first stored row of its copies."""
    start_ns: int
    end_ns: int
    copies: int = 1
    children: list[Span] = field(default_factory=list)
    depth: int = 0
    spans: int = 1
    """Spans of its subtree, itself included."""
    has_error_below: bool = False
    """Whether a span of its subtree, itself included, has the status Error."""
    self_ns: int = 0
    """Time of the span in which none of its children ran."""
    critical: list[tuple[int, int]] = field(default_factory=list)
    """Its sections of the critical path: start and end, the last section first."""

    @property
    def is_error(self) -> bool:
        """Whether its status is Error."""
        return bool(self.row["StatusCode"] == "Error")

    @property
    def is_orphan(self) -> bool:
        """Whether it is at the top although it names a parent: the parent is not stored, or is below it."""
        return self.parent is None and bool(self.row["ParentSpanId"])

    @property
    def skew_ns(self) -> int:
        """Time by which it starts before its parent. Positive if the senders' clocks disagree."""
        return max(0, self.parent.start_ns - self.start_ns) if self.parent else 0

    @property
    def critical_ns(self) -> int:
        """Part of the critical path, as time, that is in this span and in none of its children."""
        return sum(end - start for start, end in self.critical)


@dataclass(frozen=True, slots=True)
class Trace:
    """The spans of one trace."""

    spans: Sequence[Span]
    """In the order of the tree: every span before its children."""
    tops: Sequence[Span]
    """Spans without a parent in the tree, by start."""
    root: Span
    """The first span without a parent; if none is stored, the first top."""
    cyclic: frozenset[Span]
    """Tops whose parent is stored below them."""
    start_ns: int
    end_ns: int


def trace_of(rows: Iterable[Row]) -> Trace:
    """Return the tree of at least one row, with self times and the critical path of the root."""
    spans = _distinct(rows)
    _link(spans)
    tops = [span for span in spans if span.parent is None]
    cyclic = _break_cycles(spans, tops)
    tops = sorted([*tops, *cyclic], key=_order)
    ordered = list(in_tree_order(tops))
    # Children come before their parents here, so the sums of each subtree are ready.
    for span in reversed(ordered):
        span.self_ns = _self_ns(span)
        span.has_error_below = span.is_error
        for child in span.children:
            span.spans += child.spans
            span.has_error_below |= child.has_error_below
    # A span without a parent precedes orphans, even if an orphan started earlier.
    root = min(tops, key=lambda span: (bool(span.row["ParentSpanId"]), *_order(span)))
    _mark_critical_path(root)
    start_ns, end_ns = min(span.start_ns for span in ordered), max(span.end_ns for span in ordered)
    return Trace(ordered, tops, root, frozenset(cyclic), start_ns, end_ns)


def in_tree_order(tops: Sequence[Span]) -> Iterator[Span]:
    """Yield every span before its children, and set depths."""
    waiting = list(reversed(tops))
    while waiting:
        span = waiting.pop()
        span.depth = span.parent.depth + 1 if span.parent else 0
        yield span
        if span.children:
            waiting.extend(reversed(span.children))


def start_ns_of(timestamp: str) -> int:
    """Return the nanoseconds since 1970 of a stored time: `2026-01-31 10:00:00.000000000`."""
    return _seconds(timestamp[:19]) * 10**9 + int(timestamp[20:29].ljust(9, "0"))


@lru_cache(maxsize=4_096)
def _seconds(text: str) -> int:
    # In whole numbers: a float has too few digits for nanoseconds since 1970.
    since = datetime.fromisoformat(text).replace(tzinfo=UTC) - _EPOCH
    return since.days * 86_400 + since.seconds


def _order(span: Span) -> tuple[int, str]:
    return span.start_ns, span.row["SpanId"]


def _distinct(rows: Iterable[Row]) -> list[Span]:
    """Return a span for each group of equal rows, by start."""
    known: dict[object, Span] = {}
    for row in rows:
        key: object = row["SpanId"]
        # Ids may collide: the first span is known by its id, the others by their identity.
        if key in known and _identity(known[key].row) != _identity(row):
            key = _identity(row)
        if key in known:
            known[key].copies += 1
        else:
            start_ns = start_ns_of(row["Timestamp"])
            known[key] = Span(row, start_ns, start_ns + row["Duration"])
    return sorted(known.values(), key=_order)


def _identity(row: Row) -> tuple[Any, ...]:
    return tuple(map(row.get, SPAN_IDENTITY))


def _link(spans: Sequence[Span]) -> None:
    """Connect spans with their parents. Of several spans with one id, the first has the children."""
    by_id: dict[str, Span] = {}
    for span in spans:
        # Ids may collide; the spans are in a fixed order, so the same one always gets the children.
        by_id.setdefault(span.row["SpanId"], span)
    for span in spans:
        parent = by_id.get(span.row["ParentSpanId"]) if span.row["ParentSpanId"] else None
        span.parent = parent
        if parent is not None:
            parent.children.append(span)


def _break_cycles(spans: Sequence[Span], tops: Sequence[Span]) -> list[Span]:
    """Cut each cycle above its first span, and return these spans."""
    reached = set(in_tree_order(tops))
    firsts = []
    for span in spans:
        # A span that no top leads to is in a cycle, or below one.
        if span in reached:
            continue
        first = min(_cycle_above(span), key=_order)
        if first.parent is not None:
            # A parent is in one cycle at most, so these searches are linear together.
            first.parent.children.remove(first)
            first.parent = None
        firsts.append(first)
        # Everything that leads to this cycle is reached now, so no chain of parents is followed twice.
        reached.update(in_tree_order([first]))
    return firsts


def _cycle_above(span: Span) -> list[Span]:
    """Follow the parents of the span, and return the spans of the cycle that they reach."""
    place_of: dict[Span, int] = {}
    chain: list[Span] = []
    at: Span | None = span
    while at is not None and at not in place_of:
        place_of[at] = len(chain)
        chain.append(at)
        at = at.parent
    return chain[place_of[at] :] if at is not None else chain


def _self_ns(span: Span) -> int:
    """Return the duration without the time in which children ran. Children are ordered by start."""
    covered_to, covered_ns = span.start_ns, 0
    for child in span.children:
        # Children may overlap, and may lie outside of the span if clocks disagree.
        start_ns, end_ns = max(child.start_ns, covered_to), min(child.end_ns, span.end_ns)
        if start_ns < end_ns:
            covered_ns += end_ns - start_ns
            covered_to = end_ns
    return span.end_ns - span.start_ns - covered_ns


def _mark_critical_path(root: Span) -> None:
    waiting = [(root, root.start_ns, root.end_ns)]
    while waiting:
        span, from_ns, to_ns = waiting.pop()
        below = list(_critical_children(span, from_ns, to_ns))
        waiting.extend(below)
        # The edges descend, so every other gap between them is time in which no child is on the path.
        edges = [to_ns, *(edge for _, start, end in below for edge in (end, start)), from_ns]
        span.critical = [(start, end) for end, start in list(pairwise(edges))[::2] if start < end]


def _critical_children(span: Span, from_ns: int, to_ns: int) -> Iterator[tuple[Span, int, int]]:
    """Yield the children on the path with their times within the span, backwards from `to_ns`."""
    within = [
        (min(child.end_ns, to_ns), max(child.start_ns, from_ns), place)
        for place, child in enumerate(span.children)
        if max(child.start_ns, from_ns) < min(child.end_ns, to_ns)
    ]
    within.sort(key=lambda item: (-item[0], item[1], item[2]))
    until_ns = to_ns
    for end_ns, start_ns, place in within:
        if end_ns <= until_ns:
            yield span.children[place], start_ns, end_ns
            until_ns = start_ns
