"""Durations of the spans of a filter on a page: the numbers of a heatmap, and its drawing."""

from __future__ import annotations

from receiver.console.ui.charts.heatmap import heatmap
from receiver.console.ui.charts.heatmap_chart import Chart
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.page import Context
from receiver.console.ui.view import View


async def durations(view: View, text: str, selection: str = "") -> Context:
    """Return the heatmap of the spans that match a filter, for the macro `durations` of the templates."""
    timeline = Timeline(view)
    answer = await view.ask("latency", filter=view.filter(text), spans="all", every=timeline.every)
    heat = heatmap(answer.rows, timeline) if answer.rows else None
    return {
        "text": text,
        "rows": answer.rows,
        "heatmap": heat,
        "chart": Chart(heat, view, text, selection).drawn() if heat else None,
        "is_cut": answer.is_cut,
    }
