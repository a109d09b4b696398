"""Page of the search: the traces that match a filter."""

from __future__ import annotations

from typing import Final

from receiver.ui.page import Context
from receiver.ui.view import View

TRACES_MAX = 100
"""Maximum number of traces on a page."""
SORTS: Final = {"newest": "newest", "duration": "longest", "errors": "most errors", "spans": "most spans"}
"""Orders of the traces on a page: parameter → label."""
_KEYS: Final = {"duration": "duration_ms", "errors": "errors", "spans": "spans"}


async def build(view: View) -> Context:
    """Return the traces that match the filter `q`."""
    text = view.query.get("q", "")
    answer = await view.ask("search", filter=view.filter(text), limit=str(TRACES_MAX))
    sort = view.query.get("sort", "newest")
    traces = answer.rows
    if sort in _KEYS:
        traces = sorted(traces, key=lambda row: -row[_KEYS[sort]])
    return {
        "text": text,
        "traces": traces,
        "is_cut": answer.is_cut,
        "close_keys": answer.close_keys,
        "longest_ms": max((row["duration_ms"] for row in traces), default=0) or 1,
        "sort": sort if sort in SORTS else "newest",
        "sorts": SORTS,
    }
