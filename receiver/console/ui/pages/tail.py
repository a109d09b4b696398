"""Page of the spans that arrive now. It has no time range: it shows the spans that were received last."""

from __future__ import annotations

from urllib.parse import urlencode

from receiver.console.api.source import Answer, Row
from receiver.console.queries.arrivals import OVERLAP_MS
from receiver.console.ui.long_texts import with_cut_texts
from receiver.console.ui.numbers import duration
from receiver.console.ui.page import Context
from receiver.console.ui.view import View, instant
from receiver.time_range import SINCE_DEFAULT

ROWS_MAX = 500
"""Maximum number of spans on the page; older spans are removed."""


async def build(view: View) -> Context:
    """Return the spans that were received last."""
    answer, text = await ask(view), view.filter_text
    return {
        "reload": f"{view.path}?{urlencode({**view.chosen, 'filter': text})}",
        "text": text,
        "rows": [shown(view, row) for row in answer.rows],
        "is_cut": answer.is_cut,
        "rows_max": ROWS_MAX,
        "overlap_ms": OVERLAP_MS,
        "started_since": SINCE_DEFAULT,
    }


async def ask(view: View) -> Answer:
    """Query the spans received since the parameter `after`, the newest first."""
    after = {"after": view.query["after"]} if view.query.get("after") else {}
    filters = view.filter(view.filter_text)
    # Relative to now, unlike the queries of other pages, so that it includes spans of the next second.
    query = {"filter": filters, "since": SINCE_DEFAULT, "limit": str(ROWS_MAX), **after}
    answer = await view.source.ask("tail", query)
    return answer._replace(rows=with_cut_texts(answer.rows))


def shown(view: View, row: Row) -> Row:
    """Return a span as the page shows it."""
    return {
        # With the segment: a span that was stored twice arrived twice.
        "key": "/".join((row["segment"], row["trace_id"], row["span_id"], row["start"])),
        "received_ms": row["received_ms"],
        "received": instant(row["received_ms"] / 1_000),
        "project": view.project_text(row["project"]),
        "service": row["service"] or "(no service)",
        "name": row["name"] or "(no name)",
        "duration": duration(row["duration_ms"]),
        "error": row["status_message"] or "failed" if row["status"] == "Error" else "",
        "trace_id": row["trace_id"],
    }
