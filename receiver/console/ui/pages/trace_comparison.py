"""Page that compares two traces: spans with different durations, and spans that are in only one trace.

The times of all operations on the critical path add up to the duration of the root. So the changes of these
times add up to the change of the duration, and show which operation caused most of it.
"""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup

from receiver.console.api.source import Row
from receiver.console.queries.traces.trace_comparison import below, differences
from receiver.console.queries.traces.trace_model import Trace
from receiver.console.queries.traces.traces import compared_trace, normalized_trace_id
from receiver.console.ui import numbers
from receiver.console.ui.charts.svg import tag
from receiver.console.ui.page import Context
from receiver.console.ui.pages.trace import BAR_WIDTH, details, first_row, indentation, timing
from receiver.console.ui.parameters import FILTER
from receiver.console.ui.view import View
from receiver.errors import MalformedBody
from receiver.sizes import counted

ROWS_MAX: Final = 1_000
"""Maximum number of rows on a page; other rows are behind links."""
SAME_SHARE: Final = 0.01
"""Fraction of the duration of A; smaller differences are called the same in the sentence."""
_OF_EVERY_SPAN: Final = ("start", "span", "parent")
"""Fields of a span that always differ."""


class Line(NamedTuple):
    """Row of the table: a pair of corresponding spans, or a span that is in only one trace."""

    row: Row
    indent: str
    change: str
    notes: list[str]
    bars: Markup
    is_large: bool
    """Whether the change is at least a tenth of the duration of A's root."""


class Difference(NamedTuple):
    """A field or attribute whose values differ, `None` where a span lacks it."""

    key: str
    a: str | None
    b: str | None


async def build(view: View) -> Context:
    """Return the sentence about both traces, their rows from row `row` on, and the spans `a` and `b`."""
    ids = normalized_trace_id(view.parts["id"]), normalized_trace_id(view.parts["other"])
    tops = [view.query.get(name, "") for name in ("below_a", "below_b")]
    first, second = [
        await view.source.outline(trace_id, partial(_compared_part, top=top, side=side))
        for trace_id, top, side in zip(ids, tops, ("a", "b"), strict=True)
    ]
    if first is None or second is None:
        missing = [trace_id for trace_id, trace in zip(ids, (first, second), strict=True) if trace is None]
        return {"ids": ids, "missing": missing, "status": HTTPStatus.NOT_FOUND}
    # Takes seconds for the largest traces; other requests continue meanwhile.
    comparison = await asyncio.to_thread(_compared, view, first, second)
    kept, swapped = (_below(*each) for each in (tops, tops[::-1]))
    return {
        "ids": ids,
        "missing": [],
        "kept": kept,
        "swapped": swapped,
        **comparison,
        **await _details(view, ids, comparison["chosen"]),
    }


async def not_two_selected(view: View) -> Context:
    """Return the error and the link back if not exactly two rows of a search or of a trace were selected."""
    if trace_id := view.query.get("trace"):
        return {
            "status": HTTPStatus.BAD_REQUEST,
            "rows": "spans",
            "back": f"/trace/{quote(trace_id, safe='')}",
        }
    search = {name: view.query.get(name, "") for name in (FILTER, "selection", "sort")}
    return {"status": HTTPStatus.BAD_REQUEST, "rows": "traces", "back": view.link("/search", **search)}


def _compared(view: View, first: Trace, second: Trace) -> Context:
    are_parts = bool(view.query.get("below_a") or view.query.get("below_b"))
    rows = list(differences(first, second, roots_correspond=are_parts))
    begin, axis, root_ms = first_row(view.query, len(rows)), _Axis(rows), _milliseconds(first)
    return {
        "sentence": sentence(first, second, rows),
        "lines": [_line(row, axis, root_ms) for row in rows[begin : begin + ROWS_MAX]],
        "row_count": len(rows),
        "first": begin,
        "rows_max": ROWS_MAX,
        "chosen": _chosen(view, rows),
    }


def _compared_part(rows: Sequence[Row], *, top: str, side: str) -> Trace:
    """Return the trace, or only the spans from a span `top` on. Raises if the trace does not have it."""
    trace = compared_trace(rows)
    part = below(trace, top) if top else trace
    if part is None:
        raise MalformedBody(f"below_{side}: expected a span of trace {side.upper()}", field=f"below_{side}")
    return part


def _below(a: str, b: str) -> str:
    """Return the parameters of the page that restrict the comparison to parts of the traces."""
    return urlencode({name: top for name, top in (("below_a", a), ("below_b", b)) if top})


def sentence(first: Trace, second: Trace, rows: Sequence[Row]) -> str:
    """Return a sentence with the change of the duration, its main cause, and the number of differences."""
    parts = [_durations(_milliseconds(first), _milliseconds(second), rows)]
    counts = Counter(row["change"] for row in rows)
    for change, name in (("removed", "A"), ("added", "B")):
        if counts[change]:
            parts.append(f"{counted(counts[change], 'span')} only in {name}")
    fails = Counter(side for row in rows if (side := _fails_only_in(row)))
    parts += [f"{counted(fails[name], 'span')} failed only in {name}" for name in ("A", "B") if fails[name]]
    return f"{'; '.join(parts)}."


def _durations(a_ms: float, b_ms: float, rows: Sequence[Row]) -> str:
    change_ms = b_ms - a_ms
    if abs(change_ms) < SAME_SHARE * a_ms or not change_ms:
        return f"Both take {numbers.duration(a_ms)}"
    is_longer = change_ms > 0
    changes: defaultdict[tuple[str, str], float] = defaultdict(float)
    for row in rows:
        changes[row["service"], row["name"]] += _critical_change_ms(row)
    service, name = (max if is_longer else min)(changes, key=changes.__getitem__)
    change, a, b, most = map(numbers.duration, (abs(change_ms), a_ms, b_ms, abs(changes[service, name])))
    longer, more = ("longer", "more") if is_longer else ("less", "less")
    # Not a share of the total change: other operations may have changed in the opposite direction.
    changed = f"{service} {name}".strip() + f" takes {most} {more} of the critical path"
    return f"B takes {change} {longer} (A {a}, B {b}); {changed}"


def _fails_only_in(row: Row) -> str:
    a, b = (bool(side) and side["status"] == "Error" for side in (row["a"], row["b"]))
    return "" if a == b else "A" if a else "B"


def _critical_change_ms(row: Row) -> float:
    a, b = (side["critical_ms"] if side else 0.0 for side in (row["a"], row["b"]))
    return float(b - a)


def _milliseconds(trace: Trace) -> float:
    return (trace.root.end_ns - trace.root.start_ns) / 1e6


class _Axis:
    """Time axis of both traces, each from the start of its root."""

    def __init__(self, rows: Sequence[Row]) -> None:
        sides = [side for row in rows for side in (row["a"], row["b"]) if side]
        self._begin_ms = min(side["start_ms"] for side in sides)
        end_ms = max(side["start_ms"] + side["duration_ms"] for side in sides)
        self._scale = BAR_WIDTH / ((end_ms - self._begin_ms) or 1)

    def bars(self, row: Row) -> Markup:
        """Return the bars of a row: A above B."""
        sides = (("a", 2), ("b", 9))
        return timing(*(self._bar(row[name], name, top) for name, top in sides if row[name]))

    def _bar(self, side: Mapping[str, Any], name: str, top: int) -> Markup:
        left = (side["start_ms"] - self._begin_ms) * self._scale
        # A bar thinner than a pixel would be invisible.
        width = max(1.0, side["duration_ms"] * self._scale)
        kind = f"bar of-{name} error" if side["status"] == "Error" else f"bar of-{name}"
        return tag("rect", x=left, y=top, width=width, height=5, class_=kind)


def _line(row: Row, axis: _Axis, root_ms: float) -> Line:
    change_ms = row["duration_change_ms"]
    notes = []
    if change_ms is None:
        notes.append("only in A" if row["b"] is None else "only in B")
    if side := _fails_only_in(row):
        notes.append(f"failed only in {side}")
    is_large = change_ms is not None and 10 * abs(change_ms) >= root_ms > 0
    return Line(row, indentation(row["depth"]), _signed(change_ms), notes, axis.bars(row), is_large)


def _signed(milliseconds: float | None) -> str:
    if not milliseconds:
        return "–" if milliseconds is None else "0 ms"
    return f"{'+' if milliseconds > 0 else '−'}{numbers.duration(abs(milliseconds))}"


def _chosen(view: View, rows: Sequence[Row]) -> Row:
    """Return the row of the spans `a` and `b`; without them, the row with the largest critical change."""
    ids = view.query.get("a", ""), view.query.get("b", "")
    matches = (row for row in rows if any(ids) and _ids_of(row) == ids)
    return next(matches, None) or max(rows, key=lambda row: abs(_critical_change_ms(row)))


def _ids_of(row: Row) -> tuple[str, str]:
    a, b = (side["span_id"] if side else "" for side in (row["a"], row["b"]))
    return a, b


async def _details(view: View, ids: Sequence[str], chosen: Row) -> Context:
    """Return the differences between the chosen spans, and the number of their equal values."""
    stored = [
        await view.source.span(trace_id, span_id) if span_id else None
        for trace_id, span_id in zip(ids, _ids_of(chosen), strict=True)
    ]
    a, b = (_values(details(row)) if row else {} for row in stored)
    keys = dict.fromkeys((*a, *b))
    differing = [Difference(key, a.get(key), b.get(key)) for key in keys if a.get(key) != b.get(key)]
    return {"differing": differing, "equal_count": len(keys) - len(differing)}


def _values(span: Context) -> dict[str, str]:
    """Return the fields and attributes of a span that a reader compares."""
    events = {
        f"{event['name']}: {key}": value
        for event in span["events"]
        for key, value in {"after": event["after"], **event["attributes"]}.items()
    }
    fields = {key: value for key, value in span["fields"].items() if key not in _OF_EVERY_SPAN}
    return {**fields, **span["attributes"], **span["resource"], **events}
