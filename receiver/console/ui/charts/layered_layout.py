"""Layered layout of a directed graph: the layer and the height of each node, and the route of each edge.

The steps are those of Sugiyama: break cycles, put each node after its longest path, route long edges through
a bend in each layer between their ends, reduce crossings by barycenters, and place each layer around its
neighbours.

Invariant: the same graph has the same layout, and the boxes of a layer do not overlap.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

Edge = tuple[int, int]
"""Indices of two nodes: from, to."""

NODE_HEIGHT: Final = 44.0
BEND_HEIGHT: Final = 8.0
GAP: Final = 16.0
"""Minimum distance between two boxes of a layer."""
SWEEPS: Final = 12
"""Number of passes over all layers, in alternating directions, to order the boxes and to position them."""

Lists = list[list[int]]


class Layout(NamedTuple):
    """Positions of nodes and edges."""

    layers: Sequence[int]
    """Layer of each node, from 0."""
    centers: Sequence[float]
    """Distance of the middle of each node from the top."""
    bends: Sequence[Sequence[float]]
    """For each edge, its distance from the top in each layer between its ends, in the order of the layers."""
    is_reversed: Sequence[bool]
    """Whether an edge points to an earlier layer, because it closes a cycle."""
    height: float


class _Graph(NamedTuple):
    """Nodes and bends as boxes: first the nodes, in their order, then the bends of each edge."""

    heights: list[float]
    order: Lists
    """Boxes of each layer, from top to bottom."""
    before: Lists
    """Neighbours of each box in the previous layer."""
    after: Lists


def layout(count: int, edges: Sequence[Edge]) -> Layout:
    """Return the layout of `count` nodes. No edge connects a node with itself."""
    is_reversed = reversed_edges(count, edges)
    forward = [(b, a) if back else (a, b) for (a, b), back in zip(edges, is_reversed, strict=True)]
    layers = layers_of(count, forward)
    graph, bends = _boxes(layers, forward)
    _reduce_crossings(graph)
    centers = _placed(graph)
    height = max((center + graph.heights[box] / 2 for box, center in enumerate(centers)), default=0.0)
    routes = [[centers[box] for box in boxes] for boxes in bends]
    return Layout(layers, centers[:count], routes, is_reversed, height)


def reversed_edges(count: int, edges: Sequence[Edge]) -> list[bool]:
    """Return the edges to reverse so that no cycle is left: the back edges of a depth-first search."""
    out: Lists = [[] for _ in range(count)]
    surplus = [0] * count
    for edge, (begin, end) in enumerate(edges):
        out[begin].append(edge)
        surplus[begin] += 1
        surplus[end] -= 1
    is_back = [False] * len(edges)
    is_open, is_seen = [False] * count, [False] * count
    # Nodes with more outgoing than incoming edges come first, so that few edges point backwards.
    for start in sorted(range(count), key=lambda node: -surplus[node]):
        # A stack instead of recursion: chains may be longer than the interpreter's stack.
        stack = [] if is_seen[start] else [start]
        while stack:
            node = stack[-1]
            is_seen[node] = is_open[node] = True
            if not out[node]:
                is_open[node] = False
                stack.pop()
                continue
            edge = out[node].pop()
            end = edges[edge][1]
            is_back[edge] = is_open[end]
            if not is_seen[end]:
                stack.append(end)
    return is_back


def layers_of(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return a layer for each node of a graph without cycles, so that each edge points to a later layer."""
    layers = longest_paths(count, edges)
    ends: Lists = [[] for _ in range(count)]
    for begin, end in edges:
        ends[begin].append(layers[end])
    sources = set(range(count)) - {end for _, end in edges}
    # A source is directly before the first node that it calls, because fewer bends make a clearer map.
    return [min(ends[node], default=1) - 1 if node in sources else layer for node, layer in enumerate(layers)]


def longest_paths(count: int, edges: Sequence[Edge]) -> list[int]:
    """Return the length of the longest path to each node of a graph without cycles."""
    out: Lists = [[] for _ in range(count)]
    waiting_for = [0] * count
    for begin, end in edges:
        out[begin].append(end)
        waiting_for[end] += 1
    layers = [0] * count
    ready = [node for node in range(count) if not waiting_for[node]]
    while ready:
        node = ready.pop()
        for end in out[node]:
            layers[end] = max(layers[end], layers[node] + 1)
            waiting_for[end] -= 1
            if not waiting_for[end]:
                ready.append(end)
    return layers


def _boxes(layers: Sequence[int], edges: Sequence[Edge]) -> tuple[_Graph, Lists]:
    """Return the graph whose edges all end in the next layer, and the bends of each edge."""
    order: Lists = [[] for _ in range(max(layers, default=-1) + 1)]
    for node, layer in enumerate(layers):
        order[layer].append(node)
    graph = _Graph([NODE_HEIGHT] * len(layers), order, [[] for _ in layers], [[] for _ in layers])
    bends: Lists = []
    for begin, end in edges:
        route = [_add_bend(graph, layer) for layer in range(layers[begin] + 1, layers[end])]
        bends.append(route)
        for near, far in pairwise((begin, *route, end)):
            graph.after[near].append(far)
            graph.before[far].append(near)
    return graph, bends


def _add_bend(graph: _Graph, layer: int) -> int:
    box = len(graph.heights)
    graph.heights.append(BEND_HEIGHT)
    graph.before.append([])
    graph.after.append([])
    graph.order[layer].append(box)
    return box


def _passes(graph: _Graph) -> Iterator[tuple[Iterable[list[int]], Lists]]:
    """Yield, for each pass, the layers that it visits, and the neighbours that they follow."""
    for number in range(SWEEPS):
        yield (graph.order[-2::-1], graph.after) if number % 2 else (graph.order[1:], graph.before)


def _reduce_crossings(graph: _Graph) -> None:
    """Sort each layer by the mean position of its neighbours; keep the order with the fewest crossings."""
    index_of = [0.0] * len(graph.heights)
    for layer in graph.order:
        _number(layer, index_of)
    best, fewest = [list(layer) for layer in graph.order], _crossings(graph, index_of)
    for layers, neighbours in _passes(graph):
        for layer in layers:
            means = {box: _mean(neighbours[box], index_of, index_of[box]) for box in layer}
            # The sort is stable, so equal means keep their order.
            layer.sort(key=means.__getitem__)
            _number(layer, index_of)
        if (crossings := _crossings(graph, index_of)) < fewest:
            best, fewest = [list(layer) for layer in graph.order], crossings
    graph.order[:] = best


def _number(layer: Sequence[int], index_of: list[float]) -> None:
    for index, box in enumerate(layer):
        index_of[box] = index


def _mean(boxes: Sequence[int], values: Sequence[float], otherwise: float) -> float:
    return sum(values[box] for box in boxes) / len(boxes) if boxes else otherwise


def _crossings(graph: _Graph, index_of: Sequence[float]) -> int:
    """Return how many pairs of edges between neighbouring layers cross."""
    crossing_count = 0
    for layer in graph.order:
        ends: list[float] = []
        for box in layer:
            reached = [index_of[end] for end in graph.after[box]]
            crossing_count += sum(len(ends) - bisect_right(ends, end) for end in reached)
            for end in reached:
                insort(ends, end)
    return crossing_count


def _placed(graph: _Graph) -> list[float]:
    """Return the middle of each box: as close to its neighbours as the other boxes of its layer allow."""
    centers = [0.0] * len(graph.heights)
    for layer in graph.order:
        _place(layer, graph.heights, centers)
    for layers, neighbours in _passes(graph):
        for layer in layers:
            for box in layer:
                centers[box] = _mean(neighbours[box], centers, centers[box])
            _place(layer, graph.heights, centers)
    top = min((center - graph.heights[box] / 2 for box, center in enumerate(centers)), default=0.0)
    return [center - top for center in centers]


def _place(layer: Sequence[int], heights: Sequence[float], centers: list[float]) -> None:
    """Move the boxes of a layer apart, with the smallest sum of squared displacements."""
    offsets = [0.0]
    for above, below in pairwise(layer):
        offsets.append(offsets[-1] + (heights[above] + heights[below]) / 2 + GAP)
    # Less the minimum distances, the positions must be ascending: pool adjacent violators.
    pools: list[tuple[float, int]] = []
    for box, offset in zip(layer, offsets, strict=True):
        total, size = centers[box] - offset, 1
        while pools and pools[-1][0] / pools[-1][1] > total / size:
            total, size = total + pools[-1][0], size + pools[-1][1]
            pools.pop()
        pools.append((total, size))
    means = (total / size for total, size in pools for _ in range(size))
    for box, offset, mean in zip(layer, offsets, means, strict=True):
        centers[box] = mean + offset
