"""Page of the services: rate, errors and durations of each, and the calls between them."""

from __future__ import annotations

from receiver.ui.page import Context
from receiver.ui.timeline import Timeline
from receiver.ui.view import View

SERVICES_MAX = 200
EDGES_MAX = 200
ROWS_MAX = 20_000
"""Maximum number of rows of all sparklines."""


async def build(view: View) -> Context:
    """Return the services with their sparklines, and the edges of the service map."""
    timeline = Timeline(view)
    filters = view.filter(view.query.get("q", ""))
    services = await view.ask("red", by="service", filter=filters, limit=str(SERVICES_MAX))
    over_time = await view.ask("red", by="service", filter=filters, every=timeline.every, limit=str(ROWS_MAX))
    edges = await view.ask("service-map", filter=filters, limit=str(EDGES_MAX))
    return {
        "services": services.rows,
        "edges": edges.rows,
        "rates": timeline.values_by_group(over_time.rows, "spans"),
        "is_cut": services.is_cut or over_time.is_cut,
        "are_edges_cut": edges.is_cut,
    }
