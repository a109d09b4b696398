"""Views of a trace beside its waterfall: the flame graph, and statistics by a field or attribute.

Each number links to its spans, which the waterfall marks: those of a frame, or those of a group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from hashlib import blake2b
from typing import Final, NamedTuple
from urllib.parse import quote, urlencode

from markupsafe import Markup

from receiver.console.queries.group_key import FIELDS, GroupKey, parse_group_key
from receiver.console.queries.traces.trace_model import Span, Trace
from receiver.console.queries.traces.trace_statistics import Frame, SpanSums, frame_tree, frames_in, sums_by
from receiver.console.ui.charts.flame_graph import flame_graph, label, laid_out
from receiver.console.ui.charts.svg import share_bar
from receiver.console.ui.long_texts import cut
from receiver.console.ui.page import Context
from receiver.console.ui.pages.columns import ColumnHead
from receiver.errors import MalformedBody

VIEWS: Final = ("waterfall", "flame", "statistics")
PARAMETERS: Final = ("show", "frame", "by", "group", "failed", "sort")
"""Parameters of the views in the URL of a trace."""
MARKS: Final = ("frame", "by", "group", "failed")
"""Parameters that select the spans that the waterfall marks."""
GROUPS_MAX: Final = 500
FRAMES_LISTED_MAX: Final = 200
BY_DEFAULT: Final = "service"
_COLUMNS: Final[Mapping[str, Callable[[SpanSums], int]]] = {
    "spans": lambda sums: sums.spans,
    "errors": lambda sums: sums.errors,
    "total": lambda sums: sums.duration_ns,
    "self": lambda sums: sums.self_ns,
}
_SORT_DEFAULT: Final = "self"


class StatisticsRow(NamedTuple):
    """Row of the statistics."""

    name: str
    sums: SpanSums
    share: float
    bar: Markup
    link: str
    failed_link: str


class ListedFrame(NamedTuple):
    """Row of the table of frames."""

    frame: Frame
    name: str
    depth: int
    zoom: str
    link: str


def group_key_of(query: Mapping[str, str]) -> GroupKey | None:
    """Return the field or attribute by which a request groups the spans, if it does."""
    is_grouped = query.get("show") == "statistics" or ("by" in query and not query.get("frame"))
    return parse_group_key(query.get("by") or BY_DEFAULT) if is_grouped else None


def marked(trace: Trace, query: Mapping[str, str]) -> list[str] | None:
    """Return the ids of the spans that the parameters select; `None` without such parameters."""
    if key := query.get("frame", ""):
        _, frame_of = frame_tree(trace)
        found = [span for span, frame in frame_of.items() if frame.key == key]
    elif "by" in query:
        group = query.get("group", "")
        found = [span for span in trace.spans if _digest(_group_of(span)) == group]
    else:
        return None
    return [span.row["SpanId"] for span in found if span.is_error or not query.get("failed")]


def view_of(trace: Trace, query: Mapping[str, str], path: str) -> Context:
    """Return what the template of the chosen view shows."""
    show = query.get("show")
    if show == "flame":
        return {"flame": _flame(trace, query, path)}
    return {"statistics": _statistics(trace, query, path)} if show == "statistics" else {}


def _flame(trace: Trace, query: Mapping[str, str], path: str) -> Context:
    whole, _ = frame_tree(trace)
    key = query.get("frame", "")
    chosen = next((frame for frame in frames_in(whole) if frame.key == key), None)
    if chosen is None:
        raise MalformedBody("frame: expected a frame of this trace; it may have changed", field="frame")
    drawn = laid_out(chosen)

    def zoomed(frame: Frame) -> str:
        return _url(path, show="flame", frame=frame.key)

    below = [each for each in drawn if each.level >= drawn[0].level and not _is_above(each.frame, chosen)]
    listed = [
        ListedFrame(
            each.frame,
            label(each.frame),
            each.level,
            zoomed(each.frame),
            _url(path, frame=each.frame.key) if each.frame.key else path,
        )
        for each in below[:FRAMES_LISTED_MAX]
    ]
    return {
        "graph": flame_graph(drawn, chosen, whole, zoomed),
        "whole": whole,
        "listed": listed,
        "hidden": chosen.frames - len(below),
        "unlisted": len(below) - len(listed),
        "zoomed_out": path + "?show=flame" if chosen.parent else "",
    }


def _is_above(frame: Frame, chosen: Frame) -> bool:
    """Return whether a drawn frame is above the chosen frame: its subtree is larger."""
    return frame.frames > chosen.frames


def _statistics(trace: Trace, query: Mapping[str, str], path: str) -> Context:
    by = query.get("by") or BY_DEFAULT
    groups = sums_by(trace.spans, _group_of)
    whole_ns = sum(sums.self_ns for sums in groups.values())
    sort = query.get("sort") or _SORT_DEFAULT
    column, is_reversed = sort.removeprefix("-"), sort.startswith("-")
    if column != "group" and column not in _COLUMNS:
        raise MalformedBody(f"sort: expected group, {', '.join(_COLUMNS)}, or - before it", field="sort")
    # Names break ties, so that the order is always the same. Numbers begin with the largest.
    ordered = sorted(
        groups.items(), key=lambda item: item[0] or "", reverse=column == "group" and is_reversed
    )
    if column != "group":
        ordered.sort(key=lambda item: _COLUMNS[column](item[1]), reverse=not is_reversed)
    return {
        "by": by,
        "fields": list(FIELDS),
        "heads": [_head(path, by, name, column, is_reversed=is_reversed) for name in ("group", *_COLUMNS)],
        "groups": [_group(path, by, name, sums, whole_ns) for name, sums in ordered[:GROUPS_MAX]],
        "hidden": max(0, len(ordered) - GROUPS_MAX),
    }


def _head(path: str, by: str, name: str, column: str, *, is_reversed: bool) -> ColumnHead:
    is_sorted = name == column
    sort = f"-{name}" if is_sorted and not is_reversed else name
    is_ascending = is_reversed != (name == "group")
    direction = ("ascending" if is_ascending else "descending") if is_sorted else ""
    link = _url(path, show="statistics", by=by, sort=sort)
    return ColumnHead(name, link, direction, is_number=name != "group")


def _group(path: str, by: str, name: str | None, sums: SpanSums, whole_ns: int) -> StatisticsRow:
    share = sums.self_ns / whole_ns if whole_ns else 0.0
    group = _digest(name)
    text = "(none)" if name is None else cut(name) or "(empty)"
    links = (_url(path, by=by, group=group), _url(path, by=by, group=group, failed="1"))
    return StatisticsRow(text, sums, share, share_bar(share, "share of the self time of the trace"), *links)


def _group_of(span: Span) -> str | None:
    value: str | None = span.row["GroupValue"]
    return value


def _digest(group: str | None) -> str:
    """Return a group as a parameter: a value may be too long for a URL, or have any character."""
    return "none" if group is None else blake2b(group.encode("utf-8", "replace"), digest_size=8).hexdigest()


def _url(path: str, **parameters: str) -> str:
    return f"{quote(path)}?{urlencode(parameters, quote_via=quote)}"
