"""Heatmap on a page: its drawing as SVG, with a link for each cell and for each second lower bound."""

from __future__ import annotations

import re
from typing import Final

from markupsafe import Markup

from receiver.console.ui import numbers
from receiver.console.ui.charts.heatmap import NS_PER_MS, Cell, Heatmap, heatmap, selection_of
from receiver.console.ui.charts.over_time import COUNT
from receiver.console.ui.charts.svg import Box, tag, tick_labels
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.page import Context
from receiver.console.ui.view import View
from receiver.sizes import counted

SHADES = 5
"""Number of colours, from few spans to many."""
WIDTH: Final = 560
LABELS_WIDTH: Final = 80
ROW_HEIGHT: Final = 12
_SELECTION: Final = re.compile(r"duration>=(\d+(?:\.\d+)?)ms(?: duration<(\d+(?:\.\d+)?)ms)?")


class Chart:
    """A heatmap on a page."""

    def __init__(self, heatmap: Heatmap, view: View, text: str, selection: str) -> None:
        """`text` is the filter of all spans of the heatmap. Rows outside of `selection` are drawn fainter."""
        self._heatmap = heatmap
        self._view = view
        self._text = text
        self._height = ROW_HEIGHT * (len(heatmap.bounds_ns) - 1)
        self._cell_width = (WIDTH - LABELS_WIDTH) / heatmap.timeline.count
        self._most = max(cell.spans for cell in heatmap.cells)
        self._low_ms, self._high_ms = _bounds_of(selection)

    def drawn(self) -> Markup:
        """Return the chart. Its `data` attributes are for the script that draws a selection."""
        timeline, times = self._heatmap.timeline, self._view.times
        axis = tick_labels(
            timeline.axes(COUNT).ticks,
            lambda position: LABELS_WIDTH + position * self._cell_width,
            Box(WIDTH, self._height),
        )
        return tag(
            "svg",
            # Every second bound, because two lines of text would overlap.
            *(self._label(row) for row in range(0, len(self._heatmap.bounds_ns) - 1, 2)),
            *(self._cell(cell) for cell in self._heatmap.cells),
            *axis,
            class_="chart heatmap",
            id="heatmap",
            role="group",
            aria_label="Spans by time and duration",
            viewBox=f"0 0 {WIDTH} {self._height + 20}",
            data_left=LABELS_WIDTH,
            data_width=WIDTH,
            data_height=self._height,
            data_columns=timeline.count,
            data_begin=timeline.begin_s,
            data_step=timeline.step_s,
            data_since=times["since"],
            data_until=times["until"],
            # Other pages have no selection: a drag selects a time range.
            data_bounds=self._heatmap.bounds if self._view.path == "/search" else "",
        )

    def _label(self, row: int) -> Markup:
        low_ns = self._heatmap.bounds_ns[row]
        text = f"≥ {numbers.duration(low_ns / NS_PER_MS)}"
        return tag(
            "a",
            tag("text", text, x=0, y=self._height - row * ROW_HEIGHT - 2, class_="axis"),
            href=self._view.link("/search", filter=self._text, selection=selection_of(low_ns)),
        )

    def _cell(self, cell: Cell) -> Markup:
        x = LABELS_WIDTH + cell.column * self._cell_width
        y = self._height - (cell.row + 1) * ROW_HEIGHT
        # Logarithmic, so that few slow spans are visible beside many fast spans.
        shade = -(-SHADES * cell.spans.bit_length() // self._most.bit_length())
        is_outside = not self._low_ms <= cell.low_ns / NS_PER_MS < self._high_ms
        width = self._cell_width - 1
        is_incomplete = cell.column in self._heatmap.timeline.incomplete
        kinds = [f"heat{shade}", "outside" if is_outside else "", "incomplete" if is_incomplete else ""]
        failed = tag("rect", x=x, y=y + ROW_HEIGHT - 4, width=width, height=3, class_="bar error")
        return tag(
            "a",
            tag("title", _title(cell) + (", incomplete interval" if is_incomplete else "")),
            tag("rect", x=x, y=y, width=width, height=ROW_HEIGHT - 1, class_=" ".join(filter(None, kinds))),
            *([failed] if cell.errors else []),
            href=self._view.link(
                "/search", filter=self._text, selection=cell.selection, since=cell.since, until=cell.until
            ),
            # The table of the numbers has the same links in an order that a keyboard can follow.
            tabindex=-1,
        )


def _title(cell: Cell) -> str:
    low = numbers.duration(cell.low_ns / NS_PER_MS)
    text = f"{counted(cell.spans, 'span')} from {cell.since[11:19]}, ≥ {low}"
    return f"{text}, {numbers.count(cell.errors)} failed" if cell.errors else text


def _bounds_of(selection: str) -> tuple[float, float]:
    """Return the durations of a selection in milliseconds; all durations if it has any other term."""
    match = _SELECTION.fullmatch(selection)
    if match is None:
        return 0.0, float("inf")
    return float(match[1]), float(match[2] or "inf")


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
