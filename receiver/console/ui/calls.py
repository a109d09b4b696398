"""Calls between services, and from services to databases and message queues, for the service map.

The query `service-map` returns the calls between services. Databases and message queues send no spans: their
calls are the client, producer and consumer spans that name a system, counted by service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import product
from typing import Final, Literal, NamedTuple

from receiver.console.api.source import Row
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.view import View, term

Kind = Literal["service", "database", "queue"]

EDGES_READ_MAX: Final = 2_000
"""Maximum number of edges between services that a page reads, those with the most calls."""
SYSTEMS_MAX: Final = 6
"""Maximum number of database systems, and of messaging systems, whose callers a page counts."""
CALLERS_MAX: Final = 500
"""Maximum number of services that call a system."""
_FIELDS: Final[dict[Kind, str]] = {
    "service": "service",
    "database": "db.system.name",
    "queue": "messaging.system",
}
"""Kind of a node → the field or attribute of spans with its name."""
_CALLED: Final = "(kind=server OR kind=consumer)"
"""Filter of the spans that the called service reports for a call."""


class Node(NamedTuple):
    """A box of the service map."""

    kind: Kind
    name: str

    @property
    def label(self) -> str:
        """Return the name that a reader sees."""
        return self.name or "(no service)"


_SPAN_KINDS: Final[dict[Kind, Sequence[str]]] = {"database": ("client",), "queue": ("producer", "consumer")}
"""Kind of a system → kinds of the spans that are its calls."""


class Call(NamedTuple):
    """All calls between two nodes, in one direction."""

    client: Node
    server: Node
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    filter: str
    """Filter that matches the spans of these calls, or their traces if no filter of spans does."""

    @property
    def error_rate(self) -> float:
        """Return the share of the calls that failed."""
        return self.errors / self.calls


class Calls(NamedTuple):
    """The calls of a time range, the most frequent first."""

    calls: Sequence[Call]
    is_cut: bool
    """Whether the store has more calls than a page reads."""


async def calls(view: View, filters: str) -> Calls:
    """Return the calls of the spans that match a filter. Sends three queries, and up to two per system."""
    answer = await view.ask("service-map", filter=filters, limit=str(EDGES_READ_MAX))
    all_calls = [_between_services(row) for row in answer.rows]
    is_cut = answer.is_cut
    for kind in _SPAN_KINDS:
        system_calls = await _of_systems(view, filters, kind)
        all_calls.extend(system_calls.calls)
        is_cut |= system_calls.is_cut
    all_calls.sort(key=lambda call: (-call.calls, call.client, call.server))
    return Calls(all_calls, is_cut)


async def _of_systems(view: View, filters: str, kind: Kind) -> Calls:
    key, span_kinds = _FIELDS[kind], _SPAN_KINDS[kind]
    any_kind = " OR ".join(f"kind={span_kind}" for span_kind in span_kinds)
    combined = all_of(filters, any_kind, f"{key} exists")
    systems = await view.ask("red", by=key, spans="all", filter=combined, limit=str(SYSTEMS_MAX))
    all_calls, is_cut = [], systems.is_cut
    for name, span_kind in product((row["group"] for row in systems.rows), span_kinds):
        condition = f"kind={span_kind} {term(key, name)}"
        combined = all_of(filters, condition)
        callers = await view.ask("red", by="service", spans="all", filter=combined, limit=str(CALLERS_MAX))
        all_calls += [_of_system(Node(kind, name), row, span_kind, condition) for row in callers.rows]
        is_cut |= callers.is_cut
    return Calls(all_calls, is_cut)


def nodes_of(all_calls: Sequence[Call]) -> list[Node]:
    """Return the distinct nodes of calls."""
    return list(dict.fromkeys(node for call in all_calls for node in (call.client, call.server)))


def node_filter(node: Node) -> str:
    """Return the filter of the spans of a service, or of the calls of a system."""
    return term(_FIELDS[node.kind], node.name)


def busiest(all_calls: Sequence[Call], focus: Node, nodes_max: int, calls_max: int) -> list[Call]:
    """Return the calls between the nodes with the most calls and `focus`, at most `calls_max` of them."""
    counts: Counter[Node] = Counter()
    for call in all_calls:
        counts[call.client] += call.calls
        counts[call.server] += call.calls
    # The chosen service stays on the map, even if its neighbours have more calls.
    others = [node for node, _ in counts.most_common() if node != focus]
    nodes = {focus, *others[: nodes_max - (focus in counts)]}
    return [call for call in all_calls if call.client in nodes and call.server in nodes][:calls_max]


def around(all_calls: Sequence[Call], focus: Node, levels: int) -> list[Call]:
    """Return the calls between a node, its callers and the nodes that it calls, up to a number of levels."""
    nodes = (
        {focus} | _reached(all_calls, focus, levels, up=True) | _reached(all_calls, focus, levels, up=False)
    )
    return [call for call in all_calls if call.client in nodes and call.server in nodes]


def _reached(all_calls: Sequence[Call], focus: Node, levels: int, *, up: bool) -> set[Node]:
    edges = [(call.server, call.client) if up else (call.client, call.server) for call in all_calls]
    nodes = {focus}
    for _ in range(levels):
        nodes |= {end for begin, end in edges if begin in nodes}
    return nodes


def _between_services(row: Row) -> Call:
    client, server = row["client"], row["server"]
    spans = f"{{{term('service', client)}}} && {{{term('service', server)} {_CALLED}}}"
    return Call(
        Node("service", client),
        Node("service", server),
        row["calls"],
        row["errors"],
        row["p50_ms"],
        row["p95_ms"],
        spans,
    )


def _of_system(system: Node, row: Row, span_kind: str, condition: str) -> Call:
    service = Node("service", row["group"])
    # A consumer receives messages from the queue; other services call the system.
    ends = (system, service) if span_kind == "consumer" else (service, system)
    numbers = row["spans"], row["errors"], row["p50_ms"], row["p95_ms"]
    return Call(*ends, *numbers, all_of(term("service", service.name), condition))
