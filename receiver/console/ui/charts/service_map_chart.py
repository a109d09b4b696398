"""Drawing of the service map as SVG: a link for each box and for each line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from markupsafe import Markup

from receiver.console.api.source import Row
from receiver.console.ui import numbers
from receiver.console.ui.calls import Call, Node, node_filter, nodes_of
from receiver.console.ui.charts.layered_layout import NODE_HEIGHT
from receiver.console.ui.charts.map_geometry import MapGeometry, Point
from receiver.console.ui.charts.svg import tag, text_of
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.view import View

WIDTHS: Final = 5
"""Number of widths of lines, from few calls to many."""
SOME_FAIL: Final = 0.01
MANY_FAIL: Final = 0.05
"""Error rates at which the colour of a box or line changes; from the second on, a line has a mark, too."""
_CHARACTER_WIDTH: Final = 7
"""Width of a label per character, with room to spare."""
LONG_LINE: Final = 4
"""Minimum number of sections of a line with a label at both ends."""
_ARROW: Final = 7
_CYLINDER: Final = 5
"""Height of half the top of a cylinder."""


class Chart:
    """The map of calls on a page."""

    def __init__(self, shown: Sequence[Call], requests: Mapping[str, Row], view: View) -> None:
        """`requests`: service → its line of `red`."""
        self._calls = shown
        self._requests = requests
        self._view = view
        self._nodes = nodes_of(shown)
        number_of = {node: number for number, node in enumerate(self._nodes)}
        edges = [(number_of[call.client], number_of[call.server]) for call in shown]
        self._geometry = MapGeometry(len(self._nodes), edges)
        self._most = max(call.calls for call in shown)

    def drawn(self) -> Markup:
        """Return the chart."""
        width, height = self._geometry.width, self._geometry.height
        return tag(
            "svg",
            *(self._box(number, node) for number, node in enumerate(self._nodes)),
            # After the boxes, because the label of a line may overlap a box.
            *(self._line(number, call) for number, call in enumerate(self._calls)),
            class_="map",
            width=width,
            height=height,
            viewBox=f"0 0 {text_of(width)} {text_of(height)}",
            role="group",
            aria_label="Service map",
        )

    def _box(self, number: int, node: Node) -> Markup:
        left, top = self._geometry.corner(number)
        width = self._geometry.node_width
        row = self._requests.get(node.name) if node.kind == "service" else None
        text = _numbers_of_service(row, self._view) if row else "" if node.kind == "service" else node.kind
        # An inner SVG cuts a name that is too long; the title and the table have all of it.
        lower = 3 if node.kind == "database" else 0
        label = tag(
            "svg",
            tag("text", node.label, x=10, y=19 + lower),
            tag("text", text, x=10, y=36 + lower, class_="axis"),
            x=left,
            y=top,
            width=width - (20 if node.kind == "queue" else 4),
            height=NODE_HEIGHT,
        )
        kinds = ["node", node.kind, _level(row["error_rate"] if row else 0.0)]
        if node == ("service", self._view.query.get("focus")):
            kinds.append("focus")
        return tag(
            "a",
            tag("title", f"{node.label}, {text}" if text else node.label),
            *_shape(node.kind, (left, top), width),
            label,
            href=self._link(node),
            class_=" ".join(filter(None, kinds)),
        )

    def _link(self, node: Node) -> str:
        if node.kind == "service" and node.name:
            return self._view.link("/services", service=node.name, filter=self._view.filter_text)
        return self._view.link("/search", filter=all_of(self._view.filter_text, node_filter(node)))

    def _line(self, number: int, call: Call) -> Markup:
        points, is_back = self._geometry.points(number), self._geometry.is_back(number)
        path = _path(points, is_back=is_back)
        # Logarithmic, as in the heatmap, so that lines with few calls are visible beside lines with many.
        width = -(-WIDTHS * call.calls.bit_length() // self._most.bit_length())
        kinds = ["edge", f"width{width}", _level(call.error_rate), "back" if is_back else ""]
        text = _numbers_of_call(call, self._view)
        middles = _middles(points)
        x, y = middles[len(middles) // 2]
        share = f"✕ {numbers.percent(call.error_rate)}"
        failing = tag("text", share, x=x, y=y + 4, class_="mark")
        return tag(
            "a",
            tag("path", d=path, class_="reach"),
            tag("path", d=path, class_="stroke"),
            tag("path", d=_arrow(points[-1], is_back=is_back), class_="arrow"),
            *([failing] if call.error_rate >= MANY_FAIL else []),
            # A long line may not fit into the window, so each end has a label.
            *(self._label(text, middles[index]) for index in _labelled(len(middles))),
            href=self._view.link("/search", filter=all_of(self._view.filter_text, call.filter)),
            class_=" ".join(filter(None, kinds)),
            aria_label=f"{call.client.label} to {call.server.label}: {text}",
        )

    def _label(self, text: str, middle: Point) -> Markup:
        """Return the label of a line, inside the map. It is hidden until the line is focused or hovered."""
        width = len(text) * _CHARACTER_WIDTH + 8
        left = max(0.0, min(self._geometry.width - width, middle[0] - width / 2))
        return tag(
            "g",
            tag("rect", x=left, y=middle[1] - 11, width=width, height=22, rx=4),
            tag("text", text, x=left + width / 2, y=middle[1] + 4),
            class_="label",
        )


def _numbers_of_service(row: Row, view: View) -> str:
    rate = numbers.per_minute(row["spans"], view.seconds)
    return f"{rate} ✕ {numbers.percent(row['error_rate'])}" if row["errors"] else rate


def _numbers_of_call(call: Call, view: View) -> str:
    rate = numbers.per_minute(call.calls, view.seconds)
    errors = numbers.percent(call.error_rate)
    return f"{rate}, {errors} errors, p95 {numbers.duration(call.p95_ms)}"


def _level(error_rate: float) -> str:
    if error_rate < SOME_FAIL:
        return ""
    return "many" if error_rate >= MANY_FAIL else "some"


def _shape(kind: str, corner: Point, width: float) -> Iterator[Markup]:
    """Return a cylinder for a database, a box with bars for a queue, and a box for a service."""
    left, top = corner
    if kind == "database":
        radii, right, back = f"a{text_of(width / 2)} {_CYLINDER} 0 0", text_of(width), text_of(-width)
        begin = f"M{_at(left, top + _CYLINDER)}"
        side = text_of(NODE_HEIGHT - 2 * _CYLINDER)
        yield tag("path", d=f"{begin}{radii} 1 {right} 0v{side}{radii} 1 {back} 0z", class_="shape")
        yield tag("path", d=f"{begin}{radii} 0 {right} 0", class_="shape")
        return
    yield tag("rect", x=left, y=top, width=width, height=NODE_HEIGHT, rx=4, class_="shape")
    if kind == "queue":
        bars = (f"M{_at(left + width - bar, top)}v{text_of(NODE_HEIGHT)}" for bar in (8, 16))
        yield tag("path", d="".join(bars), class_="shape")


def _path(points: Sequence[Point], *, is_back: bool) -> str:
    """Return a curve that is horizontal at each point, and ends where its arrow begins."""
    *before, (x, y) = points
    ending = [*before, (x + _ARROW if is_back else x - _ARROW, y)]
    text = f"M{_at(*points[0])}"
    for (x1, y1), (x2, y2) in pairwise(ending):
        middle = (x1 + x2) / 2
        text += f"C{_at(middle, y1)} {_at(middle, y2)} {_at(x2, y2)}"
    return text


def _at(x: float, y: float) -> str:
    return f"{text_of(x)} {text_of(y)}"


def _arrow(tip: Point, *, is_back: bool) -> str:
    length = _ARROW if is_back else -_ARROW
    return f"M{_at(*tip)}l{length} -4v8z"


def _middles(points: Sequence[Point]) -> list[Point]:
    """Return the middle of each section of a line between two columns."""
    # Sections between columns alternate with those through a column.
    return [
        ((x1 + x2) / 2, (y1 + y2) / 2) for (x1, y1), (x2, y2) in zip(points[::2], points[1::2], strict=True)
    ]


def _labelled(count: int) -> list[int]:
    """Return the sections of a line with its label: the middle one, or both ends of a long line."""
    return [count // 2] if count < LONG_LINE else [0, count - 1]
