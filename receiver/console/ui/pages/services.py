"""Page of the services and their operations: rate, errors, durations, and the most frequent errors."""

from __future__ import annotations

import asyncio
from operator import itemgetter
from typing import Final, NamedTuple

from receiver.console.api.source import Row
from receiver.console.ui.charts.heatmap_chart import durations
from receiver.console.ui.charts.over_time import REQUESTS, NamedChart, deployment_markers, red_charts
from receiver.console.ui.charts.svg import Number
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.page import Context
from receiver.console.ui.pages.columns import ColumnHead, sorted_rows
from receiver.console.ui.pages.errors import group_filter
from receiver.console.ui.view import View, term

SERVICES_MAX: Final = 200
OPERATIONS_MAX: Final = 100
"""Maximum number of operations of a service that a page shows, those with the most spans."""
EDGES_MAX: Final = 200
ERRORS_MAX: Final = 10
"""Maximum number of groups of errors of a chosen service or operation."""
ROWS_MAX: Final = 20_000
"""Maximum number of rows of all sparklines."""
_KEYS: Final = {"traffic": "spans", "errors": "error_rate", "p50": "p50_ms", "p95": "p95_ms", "p99": "p99_ms"}
"""Column → property of its rows."""


class Measured(NamedTuple):
    """Rate, errors and durations of each service or operation."""

    rows: list[Row]
    heads: dict[str, ColumnHead]
    """Heads of the columns by name."""
    over_time: dict[str, list[Number]]
    incomplete: list[int]
    is_cut: bool


async def build(view: View) -> Context:
    """Return all services and their calls; with the parameter `service`, the operations of this service."""
    return await (_service(view) if view.query.get("service") else _services(view))


async def _services(view: View) -> Context:
    filters = view.filter(view.filter_text)
    edges = await view.ask("service-map", filter=filters, limit=str(EDGES_MAX))
    return {
        "service": "",
        "services": await _measured(view, filters, "service", SERVICES_MAX),
        "edges": edges.rows,
        "are_edges_cut": edges.is_cut,
    }


async def _service(view: View) -> Context:
    service, operation = view.query["service"], view.query.get("operation", "")
    text = all_of(view.filter_text, term("service", service))
    operations = await _measured(view, view.filter(text), "operation", OPERATIONS_MAX, spans="all")
    if operation:
        text = all_of(text, term("operation", operation))
        red = {"by": "operation", "spans": "all"}
    else:
        red = {"by": "service"}
    # Not queried again: a rollup that is derived meanwhile has slightly different percentiles.
    rows = [row for row in operations.rows if operation and row["group"] == operation]
    if not rows:
        rows = (await view.ask("red", **red, filter=view.filter(text), limit="1")).rows
    errors = await view.ask("errors", filter=view.filter(text), limit=str(ERRORS_MAX))
    return {
        "service": service,
        "operation": operation,
        "chosen": text,
        "summary": rows[0] if rows else None,
        # All spans of a service would hide the durations of its requests.
        "durations": await durations(view, text if operation else all_of(text, REQUESTS)),
        "errors": [{**row, "filter": all_of(text, group_filter(row))} for row in errors.rows],
        "are_errors_cut": errors.is_cut,
        "operations": operations,
        "charts": await _charts(view, red, text) if rows else (),
    }


async def _charts(view: View, red: dict[str, str], text: str) -> list[NamedChart]:
    """Return charts of the spans that the parameters of the query `red` count."""
    filters = view.filter(text)
    over_time, markers = await asyncio.gather(
        view.ask("red", **red, filter=filters, every=Timeline(view).every, limit=str(ROWS_MAX)),
        deployment_markers(view, filters),
    )
    behind = text if "spans" in red else all_of(text, REQUESTS)
    return red_charts(view, over_time.rows, markers, behind)


async def _measured(
    view: View, filters: str, by: str, lines_max: int, *, spans: str = "requests"
) -> Measured:
    timeline = Timeline(view)
    query = {"by": by, "spans": spans, "filter": filters}
    groups = await view.ask("red", **query, limit=str(lines_max))
    over_time = await view.ask("red", **query, every=timeline.every, limit=str(ROWS_MAX))
    counts = timeline.values_by_group(over_time.rows, "spans")
    measures = {name: itemgetter(key) for name, key in {by: "group", **_KEYS}.items()}
    rows, heads = sorted_rows(view, groups.rows, measures, [by])
    return Measured(rows, heads, counts, timeline.incomplete, groups.is_cut or over_time.is_cut)
