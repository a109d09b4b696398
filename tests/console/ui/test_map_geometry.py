"""Positions of the service map in pixels: everything is inside the view box, and lines meet their boxes."""

from __future__ import annotations

from hypothesis import given

from receiver.console.ui.charts.layered_layout import NODE_HEIGHT, Edge
from receiver.console.ui.charts.map_geometry import MapGeometry
from tests.console.ui.test_layered_layout import graphs


@given(graphs())
def test_boxes_and_lines_are_inside_the_view_box(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph

    geometry = MapGeometry(count, edges)

    for left, top in map(geometry.corner, range(count)):
        assert 0 <= left <= left + geometry.node_width <= geometry.width
        assert 0 <= top <= top + NODE_HEIGHT <= geometry.height
    for edge in range(len(edges)):
        assert all(0 <= x <= geometry.width and 0 <= y <= geometry.height for x, y in geometry.points(edge))


@given(graphs())
def test_lines_connect_the_facing_sides_of_their_boxes(
    graph: tuple[int, list[Edge]],
) -> None:
    count, edges = graph

    geometry = MapGeometry(count, edges)

    for edge, (begin, end) in enumerate(edges):
        (x1, y1), *_, (x2, y2) = geometry.points(edge)
        (left1, top1), (left2, top2) = geometry.corner(begin), geometry.corner(end)
        is_back = geometry.is_back(edge)
        assert x1 == (left1 if is_back else left1 + geometry.node_width)
        assert x2 == (left2 + geometry.node_width if is_back else left2)
        assert top1 < y1 < top1 + NODE_HEIGHT
        assert top2 < y2 < top2 + NODE_HEIGHT
        assert (x1 > x2) is is_back


@given(graphs())
def test_lines_meet_the_same_side_of_a_box_at_different_heights(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph

    geometry = MapGeometry(count, edges)

    ends = [
        point for edge in range(len(edges)) for point in (geometry.points(edge)[0], geometry.points(edge)[-1])
    ]
    assert len(set(ends)) == len(ends)
