"""Layered layout of the service map and its positions in pixels: properties that hold for every graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.console.ui.charts.layered_layout import GAP, NODE_HEIGHT, Edge, Layout, layers_of, layout
from receiver.console.ui.charts.map_geometry import MapGeometry

NODES_MAX = 12


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """Return a number of nodes, and distinct edges between them without loops."""
    count = draw(st.integers(1, NODES_MAX))
    node = st.integers(0, count - 1)
    edges = draw(st.lists(st.tuples(node, node).filter(lambda edge: edge[0] != edge[1]), unique=True))
    return count, edges


@st.composite
def acyclic_graphs(draw: st.DrawFn) -> tuple[int, list[Edge]]:
    """Return a graph without cycles whose edges follow a random order of the nodes, not their numbers."""
    count, edges = draw(graphs())
    position_of = draw(st.permutations(range(count)))
    return count, [(a, b) for a, b in edges if position_of[a] < position_of[b]]


@given(acyclic_graphs())
def test_acyclic_graph_has_only_forward_edges_and_nodes_beside_their_neighbours(
    graph: tuple[int, list[Edge]],
) -> None:
    count, edges = graph

    result, layers = layout(count, edges), layers_of(count, edges)

    assert not any(result.is_reversed)
    assert all(result.layers[a] < result.layers[b] for a, b in edges), "an edge points backwards"
    for node, layer in enumerate(layers):
        before = [layers[a] for a, b in edges if b == node]
        after = [layers[b] for a, b in edges if a == node]
        nearest = (max(before, default=-1) + 1, min(after, default=1) - 1)
        assert layer in nearest, "a node is not beside a neighbour"


@given(graphs())
def test_layout_has_disjoint_boxes_and_a_bend_of_each_edge_in_each_layer(
    graph: tuple[int, list[Edge]],
) -> None:
    count, edges = graph

    result = layout(count, edges)

    assert result == layout(count, edges), "the same graph has another layout"
    for (a, b), is_back, bends in zip(edges, result.is_reversed, result.bends, strict=True):
        assert result.layers[a] != result.layers[b]
        assert (result.layers[a] > result.layers[b]) is is_back, (
            "an edge that is not reversed points backwards"
        )
        assert len(bends) == abs(result.layers[a] - result.layers[b]) - 1, "an edge lacks a bend in a layer"
        assert all(0 <= bend <= result.height for bend in bends), "a bend is outside of the layout"
    for layer in set(result.layers):
        centers = sorted(
            center for center, own in zip(result.centers, result.layers, strict=True) if own == layer
        )
        assert centers[0] - NODE_HEIGHT / 2 >= -1e-6, "a box is outside of the layout"
        assert centers[-1] + NODE_HEIGHT / 2 <= result.height + 1e-6, "a box is outside of the layout"
        assert all(below - above >= NODE_HEIGHT + GAP - 1e-6 for above, below in pairwise(centers))


@given(graphs())
def test_boxes_and_lines_are_inside_the_view_box_and_meet_at_different_heights(
    graph: tuple[int, list[Edge]],
) -> None:
    count, edges = graph

    geometry = MapGeometry(count, edges)

    for left, top in map(geometry.corner, range(count)):
        assert 0 <= left <= left + geometry.node_width <= geometry.width
        assert 0 <= top <= top + NODE_HEIGHT <= geometry.height
    ends = []
    for edge, (begin, end) in enumerate(edges):
        points, is_back = geometry.points(edge), geometry.is_back(edge)
        assert all(0 <= x <= geometry.width and 0 <= y <= geometry.height for x, y in points)
        (x1, y1), *_, (x2, y2) = points
        (left1, top1), (left2, top2) = geometry.corner(begin), geometry.corner(end)
        assert x1 == (left1 if is_back else left1 + geometry.node_width), "a line begins beside its box"
        assert x2 == (left2 + geometry.node_width if is_back else left2), "a line ends beside its box"
        assert top1 < y1 < top1 + NODE_HEIGHT
        assert top2 < y2 < top2 + NODE_HEIGHT
        assert (x1 > x2) is is_back
        ends += [points[0], points[-1]]
    assert len(set(ends)) == len(ends), "two lines meet a side of a box at the same height"


def crossings_of(result: Layout, edges: list[Edge]) -> int:
    """Return how many pairs of edges between the first two layers cross."""
    ends = [(result.centers[a], result.centers[b]) for a, b in edges]
    return sum((a1 - a2) * (b1 - b2) < 0 for a1, b1 in ends for a2, b2 in ends) // 2


def test_avoidable_crossings_are_avoided() -> None:
    # Each caller calls one service, in reverse order.
    edges = [(number, 19 - number) for number in range(10)]

    assert crossings_of(layout(20, edges), edges) == 0


def test_single_callee_is_in_the_middle_of_its_callers() -> None:
    result = layout(4, [(0, 3), (1, 3), (2, 3)])

    assert result.centers[3] == pytest.approx(sorted(result.centers[:3])[1])


def test_empty_graph_has_an_empty_layout() -> None:
    assert layout(0, []) == Layout([], [], [], [], 0.0)


def test_chain_longer_than_the_stack_of_the_interpreter_has_a_layout() -> None:
    result = layout(5_000, [(number, number + 1) for number in range(4_999)])

    assert list(result.layers) == list(range(5_000))
    assert result.height == NODE_HEIGHT
