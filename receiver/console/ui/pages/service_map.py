"""Page of the service map: calls between services, databases and message queues, with rate and errors."""

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
"""Number of levels around the chosen service: parameter → label."""
ERRORS_LEAST: Final = 0.01
"""Minimum error rate of a call that the sentence names."""


async def build(view: View) -> Context:
    """Return the map of all services, or of the service `focus` with its neighbours."""
    filters = view.filter(view.filter_text)
    focus, levels = view.query.get("focus", ""), view.one_of("levels", LEVELS, "1")
    all_calls = await calls(view, filters)
    services = await view.ask("red", by="service", filter=filters, limit=str(SERVICES_MAX))
    requests = {row["group"]: row for row in services.rows}
    chosen = Node("service", focus)
    near = around(all_calls.calls, chosen, int(levels)) if focus else all_calls.calls
    visible_calls = busiest(near, chosen, NODES_MAX, CALLS_MAX)
    names = sorted({*requests, *(node.name for node in nodes_of(all_calls.calls) if node.kind == "service")})
    return {
        # Takes up to 100 ms for a large map; other requests continue meanwhile.
        "chart": await asyncio.to_thread(_chart, visible_calls, requests, view) if visible_calls else None,
        "calls": visible_calls,
        "nodes_shown": nodes_of(visible_calls),
        "node_count": len(nodes_of(near)),
        "call_count": len(near),
        "is_read_cut": all_calls.is_cut,
        "focus": focus,
        "levels": levels,
        "offered_levels": LEVELS,
        "services": names,
        "alone_max": ALONE_MAX,
        "alone": [] if focus else _without_calls(requests, all_calls),
        "worst": _worst(visible_calls),
    }


def _chart(visible_calls: Sequence[Call], requests: Mapping[str, Row], view: View) -> Markup:
    return Chart(visible_calls, requests, view).drawn()


def _without_calls(requests: Mapping[str, Row], all_calls: Calls) -> list[str]:
    connected = {node.name for node in nodes_of(all_calls.calls) if node.kind == "service"}
    return sorted(requests.keys() - connected)


def _worst(visible_calls: Sequence[Call]) -> Call | None:
    """Return the calls with the most errors, of those that fail at least as often as `ERRORS_LEAST`."""
    failing = [call for call in visible_calls if call.error_rate >= ERRORS_LEAST]
    return max(failing, key=lambda call: call.errors, default=None)
