"""Page of the service map: which services, databases and message queues call each other, and how well."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

from markupsafe import Markup

from receiver.console.api.source import Row
from receiver.console.ui.calls import Call, Calls, Node, around, busiest, calls, nodes_of
from receiver.console.ui.charts.service_map_chart import Chart
from receiver.console.ui.page import Context
from receiver.console.ui.view import View

NODES_MAX: Final = 60
"""Maximum number of boxes of a map, those with the most calls."""
CALLS_MAX: Final = 300
"""Maximum number of lines of a map, those with the most calls."""
SERVICES_MAX: Final = 1_000
"""Maximum number of services whose requests a page counts."""
ALONE_MAX: Final = 100
"""Maximum number of services without calls that a page names."""
LEVELS: Final = {"1": "one level", "2": "two levels"}
"""How far from the chosen service the map reaches: parameter → label."""
ERRORS_LEAST: Final = 0.01
"""Least error rate of a call that the sentence names."""


async def build(view: View) -> Context:
    """Return the map of all services, or of the service `focus` with its neighbours."""
    filters = view.filter(view.filter_text)
    focus, levels = view.query.get("focus", ""), view.one_of("levels", LEVELS, "1")
    found = await calls(view, filters)
    services = await view.ask("red", by="service", filter=filters, limit=str(SERVICES_MAX))
    requests = {row["group"]: row for row in services.rows}
    chosen = Node("service", focus)
    near = around(found.calls, chosen, int(levels)) if focus else found.calls
    shown = busiest(near, chosen, NODES_MAX, CALLS_MAX)
    names = sorted({*requests, *(node.name for node in nodes_of(found.calls) if node.kind == "service")})
    return {
        # Up to 100 ms for a large map: other requests go on meanwhile.
        "chart": await asyncio.to_thread(_chart, shown, requests, view) if shown else None,
        "calls": shown,
        "nodes_shown": nodes_of(shown),
        "node_count": len(nodes_of(near)),
        "call_count": len(near),
        "is_read_cut": found.is_cut,
        "focus": focus,
        "levels": levels,
        "offered_levels": LEVELS,
        "services": names,
        "alone_max": ALONE_MAX,
        "alone": [] if focus else _without_calls(requests, found),
        "worst": _worst(shown),
    }


def _chart(shown: Sequence[Call], requests: Mapping[str, Row], view: View) -> Markup:
    return Chart(shown, requests, view).drawn()


def _without_calls(requests: Mapping[str, Row], found: Calls) -> list[str]:
    connected = {node.name for node in nodes_of(found.calls) if node.kind == "service"}
    return sorted(requests.keys() - connected)


def _worst(shown: Sequence[Call]) -> Call | None:
    """Return the calls with the most errors; `None` if fewer than a hundredth of any calls fail."""
    failing = [call for call in shown if call.error_rate >= ERRORS_LEAST]
    return max(failing, key=lambda call: call.errors, default=None)
