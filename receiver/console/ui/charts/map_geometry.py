"""Positions of the boxes and lines of the service map in pixels: each layer of the layout is a column."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final

from receiver.console.ui.charts.layered_layout import NODE_HEIGHT, Edge, layout

Point = tuple[float, float]

PAGE_WIDTH: Final = 1240
"""Maximum width of a map, unless its boxes would be too narrow for a name."""
NODE_WIDTH_MIN: Final = 140
NODE_WIDTH_MAX: Final = 184
LAYER_GAP: Final = 64
"""Distance between columns, where the lines are drawn."""
MARGIN: Final = 8
_PORTS: Final = 28.0
"""Length of the section of a box's side where its lines end."""


class MapGeometry:
    """Positions of the boxes and lines of a map."""

    def __init__(self, count: int, edges: Sequence[Edge]) -> None:
        """Compute the positions. There is at least one box."""
        self._edges = edges
        self._layout = layout(count, edges)
        columns = max(self._layout.layers) + 1
        fitting = (PAGE_WIDTH - 2 * MARGIN - (columns - 1) * LAYER_GAP) / columns
        self.node_width = max(NODE_WIDTH_MIN, min(NODE_WIDTH_MAX, fitting))
        self.width = columns * (self.node_width + LAYER_GAP) - LAYER_GAP + 2 * MARGIN
        self.height = self._layout.height + 2 * MARGIN
        self._ports = self._spread_ports()

    def corner(self, node: int) -> Point:
        """Return the upper left corner of a box."""
        return self._left(self._layout.layers[node]), MARGIN + self._layout.centers[node] - NODE_HEIGHT / 2

    def is_back(self, edge: int) -> bool:
        """Return whether a line runs from right to left, because it closes a cycle."""
        return self._layout.is_reversed[edge]

    def points(self, edge: int) -> list[Point]:
        """Return the points of a line, from the box where it begins to the box where it ends."""
        first, last = self._from_left(edge)
        layer = self._layout.layers[first]
        found = [(self._left(layer) + self.node_width, self._ports[edge, first])]
        for bend in self._layout.bends[edge]:
            layer += 1
            left, y = self._left(layer), MARGIN + bend
            found += [(left, y), (left + self.node_width, y)]
        found.append((self._left(layer + 1), self._ports[edge, last]))
        return found[::-1] if self.is_back(edge) else found

    def _left(self, layer: int) -> float:
        return MARGIN + layer * (self.node_width + LAYER_GAP)

    def _from_left(self, edge: int) -> Edge:
        begin, end = self._edges[edge]
        return (end, begin) if self.is_back(edge) else (begin, end)

    def _spread_ports(self) -> dict[tuple[int, int], float]:
        """Return the height at which each line meets each of its boxes, so that lines do not cross there."""
        centers = self._layout.centers
        sides: dict[tuple[int, bool], list[tuple[float, int]]] = defaultdict(list)
        for edge, bends in enumerate(self._layout.bends):
            first, last = self._from_left(edge)
            sides[first, True].append((bends[0] if bends else centers[last], edge))
            sides[last, False].append((bends[-1] if bends else centers[first], edge))
        return {
            (edge, node): MARGIN + centers[node] + _PORTS * ((index + 1) / (len(ends) + 1) - 0.5)
            for (node, _), ends in sides.items()
            for index, (_, edge) in enumerate(sorted(ends))
        }
