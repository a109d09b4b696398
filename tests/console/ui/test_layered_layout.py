"""Layered layout: properties that hold for every graph."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from receiver.console.ui.charts.layered_layout import (
    GAP,
    NODE_HEIGHT,
    Edge,
    Layout,
    layers_of,
    layout,
)

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
    place_of = draw(st.permutations(range(count)))
    return count, [(a, b) for a, b in edges if place_of[a] < place_of[b]]


@given(acyclic_graphs())
def test_every_edge_of_an_acyclic_graph_points_to_a_later_layer(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph

    result = layout(count, edges)

    assert not any(result.is_reversed)
    assert all(result.layers[a] < result.layers[b] for a, b in edges)


@given(graphs())
def test_every_edge_that_is_not_reversed_points_to_a_later_layer(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph

    result = layout(count, edges)

    for (a, b), is_back in zip(edges, result.is_reversed, strict=True):
        assert (result.layers[a] > result.layers[b]) is is_back
        assert result.layers[a] != result.layers[b]


@given(acyclic_graphs())
def test_each_node_is_directly_after_or_before_a_neighbour(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph

    layers = layers_of(count, edges)

    for node, layer in enumerate(layers):
        before = [layers[a] for a, b in edges if b == node]
        after = [layers[b] for a, b in edges if a == node]
        assert layer in (max(before, default=-1) + 1, min(after, default=1) - 1)


@given(graphs())
def test_nodes_are_inside_the_layout_and_do_not_overlap(graph: tuple[int, list[Edge]]) -> None:
    result = layout(*graph)

    for layer in set(result.layers):
        centers = sorted(
            center for center, own in zip(result.centers, result.layers, strict=True) if own == layer
        )
        assert centers[0] - NODE_HEIGHT / 2 >= -1e-6
        assert centers[-1] + NODE_HEIGHT / 2 <= result.height + 1e-6
        assert all(below - above >= NODE_HEIGHT + GAP - 1e-6 for above, below in pairwise(centers))


@given(graphs())
def test_an_edge_has_a_bend_in_each_layer_between_its_ends(graph: tuple[int, list[Edge]]) -> None:
    count, edges = graph

    result = layout(count, edges)

    for (a, b), bends in zip(edges, result.bends, strict=True):
        assert len(bends) == abs(result.layers[a] - result.layers[b]) - 1
        assert all(0 <= bend <= result.height for bend in bends)


@given(graphs())
def test_the_same_graph_has_the_same_layout(graph: tuple[int, list[Edge]]) -> None:
    assert layout(*graph) == layout(*graph)


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
