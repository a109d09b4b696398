"""Page of the search: the traces that match a filter, and their spans by time, duration and field."""

from __future__ import annotations

from http import HTTPStatus
from urllib.parse import urlencode

from receiver.console.queries.filters.plain_text import id_field
from receiver.console.queries.traces.trace_columns import NEWEST
from receiver.console.ui.charts.heatmap_chart import durations
from receiver.console.ui.filter_text import is_of_spans, widened
from receiver.console.ui.page import Context
from receiver.console.ui.pages.columns import addable, added, attributes_of, columns_of, names_of
from receiver.console.ui.search.differences import check, differences
from receiver.console.ui.search.facets import KEYS, facets
from receiver.console.ui.search.search_chart import search_chart
from receiver.console.ui.view import View, instant, term

TRACES_MAX = 100
WIDER_S = 86_400
"""Length of the time range in which a search without a match counts the matching traces."""


async def build(view: View) -> Context:
    """Return the traces that match the filter `q` and the selection, and the facets of their spans."""
    text, selection = view.filter_text, view.query.get("selection", "")
    names = names_of(view)
    order = view.query.get("sort", "")
    order = "-started" if order in NEWEST else order
    # First, so that the column of an error refers to this text, not to the text with the page's project.
    has_spans = is_of_spans(text)
    check(selection)
    answer = await view.ask(
        "search",
        filter=view.filter(text, selection),
        limit=str(TRACES_MAX),
        sort=order,
        columns=",".join(attributes_of(names)),
    )
    traces = answer.rows
    return {
        "text": text,
        "selection": selection,
        "widened": widened(text),
        "traces": traces,
        "is_cut": answer.is_cut,
        "close_keys": answer.close_keys,
        "longest_ms": max((row["duration_ms"] for row in traces), default=0) or 1,
        "order": order,
        "columns": columns_of(view, names, order),
        "addable": addable(view, names, KEYS),
        "status": HTTPStatus.BAD_REQUEST if view.add_error else HTTPStatus.OK,
        "wider": None if traces else await _wider(view, text),
        "spans": await _spans(view, text, selection) if traces and has_spans else None,
        "differences": await differences(view, text, selection) if traces and selection else None,
    }


async def record_url(view: View) -> str:
    """Return the URL of the trace, span or deployment whose id is the whole filter; empty if it is none.

    A form that adds a column has the URL of the list with this column.
    """
    if url := added(view):
        return url
    text = view.filter_text.strip()
    match id_field(text):
        case "trace":
            return f"/trace/{text.lower()}"
        case "deployment":
            return view.deployment_link(text)
        case "span":
            span = {**view.times, "filter": term("span", text.lower()), "limit": "1"}
            for row in (await view.source.ask("spans", span)).rows:
                return f"/trace/{row['TraceId']}?{urlencode({'span': row['SpanId']})}"
    return ""


async def _spans(view: View, text: str, selection: str) -> Context:
    """Return the facets and the heatmap of the spans that match a filter, with and without the selection."""
    found = await durations(view, text, selection)
    return {
        "found": await facets(view, text),
        "offered": KEYS,
        "durations": found,
        "chart": await search_chart(view, text, selection, found["rows"]),
    }


async def _wider(view: View, text: str) -> Context | None:
    """Return how many traces match in the day before the page's end; `None` if the page has a day or more."""
    if view.seconds >= WIDER_S:
        return None
    times = {**view.times, "since": instant(view.end_s - WIDER_S)}
    answer = await view.source.ask("search", {**times, "filter": view.filter(text), "limit": str(TRACES_MAX)})
    return {"traces": len(answer.rows), "is_cut": answer.is_cut, "times": times}
