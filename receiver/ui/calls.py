"""Calls between services, and from services to databases and message queues, for the service map.

The question `service-map` has the calls between services. Databases and message queues send no spans: their
calls are the client, producer and consumer spans that name a system, counted by service.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Literal, NamedTuple

from receiver.api.source import Row
from receiver.ui.filter_text import all_of
from receiver.ui.view import View, term

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
"""Kind of a node → the field or attribute of spans that names it."""
_CALLED: Final = "(kind=server OR kind=consumer)"
"""Filter of the spans on the called side of a call between services."""


class Node(NamedTuple):
    """A box of the service map."""

    kind: Kind
    name: str

    @property
    def label(self) -> str:
        """Return the name that a reader sees."""
        return self.name or "(no service)"


class _SpansOfSystems(NamedTuple):
    """Spans that are calls of systems of a kind."""

    span_kind: str
    node_kind: Kind


_SPANS_OF_SYSTEMS: Final = (
    _SpansOfSystems("client", "database"),
    _SpansOfSystems("producer", "queue"),
    _SpansOfSystems("consumer", "queue"),
)


class Call(NamedTuple):
    """All calls from one node to another."""

    client: Node
    server: Node
    calls: int
    errors: int
    p50_ms: float
    p95_ms: float
    filter: str
    """Filter of the spans, or else of the traces, of these calls."""

    @property
    def error_rate(self) -> float:
        """Return the share of the calls that failed."""
        return self.errors / self.calls


class Calls(NamedTuple):
    """The calls of a time range, those with the highest number first."""

    calls: Sequence[Call]
    is_cut: bool
    """Whether more are stored than a page reads."""

    @property
    def nodes(self) -> list[Node]:
        """Return the ends of the calls, each once."""
        return list(dict.fromkeys(node for call in self.calls for node in (call.client, call.server)))


async def calls(view: View, filters: str) -> Calls:
    """Return the calls of the spans that match a filter. Asks a question for each system, and four more."""
    answer = await view.ask("service-map", filter=filters, limit=str(EDGES_READ_MAX))
    found = [_between_services(row) for row in answer.rows]
    is_cut = answer.is_cut
    for spans in _SPANS_OF_SYSTEMS:
        read = await _of_systems(view, filters, spans)
        found.extend(read.calls)
        is_cut |= read.is_cut
    found.sort(key=lambda call: (-call.calls, call.client, call.server))
    return Calls(found, is_cut)


async def _of_systems(view: View, filters: str, spans: _SpansOfSystems) -> Calls:
    key, kind = _FIELDS[spans.node_kind], f"kind={spans.span_kind}"
    wanted = all_of(filters, f"{kind} {key} exists")
    systems = await view.ask("red", by=key, spans="all", filter=wanted, limit=str(SYSTEMS_MAX))
    found, is_cut = [], systems.is_cut
    for name in (row["group"] for row in systems.rows):
        condition = f"{kind} {term(key, name)}"
        wanted = all_of(filters, condition)
        callers = await view.ask("red", by="service", spans="all", filter=wanted, limit=str(CALLERS_MAX))
        found += [_of_system(Node(spans.node_kind, name), row, spans, condition) for row in callers.rows]
        is_cut |= callers.is_cut
    return Calls(found, is_cut)


def node_filter(node: Node) -> str:
    """Return the filter of the spans of a service, or of the calls of a system."""
    return term(_FIELDS[node.kind], node.name)


def busiest(found: Iterable[Call], nodes_max: int, calls_max: int) -> list[Call]:
    """Return the calls between the nodes with the most calls, at most `calls_max` of them."""
    counts: Counter[Node] = Counter()
    for call in found:
        counts[call.client] += call.calls
        counts[call.server] += call.calls
    kept = {node for node, _ in counts.most_common(nodes_max)}
    return [call for call in found if call.client in kept and call.server in kept][:calls_max]


def around(found: Iterable[Call], focus: Node, levels: int) -> list[Call]:
    """Return the calls between a node, its callers and the nodes that it calls, up to a number of levels."""
    kept = {focus} | _reached(found, focus, levels, up=True) | _reached(found, focus, levels, up=False)
    return [call for call in found if call.client in kept and call.server in kept]


def _reached(found: Iterable[Call], focus: Node, levels: int, *, up: bool) -> set[Node]:
    edges = [(call.server, call.client) if up else (call.client, call.server) for call in found]
    reached = {focus}
    for _ in range(levels):
        reached |= {end for begin, end in edges if begin in reached}
    return reached


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


def _of_system(system: Node, row: Row, spans: _SpansOfSystems, condition: str) -> Call:
    service = Node("service", row["group"])
    # A consumer gets messages from the queue; all others call the system.
    ends = (system, service) if spans.span_kind == "consumer" else (service, system)
    numbers = row["spans"], row["errors"], row["p50_ms"], row["p95_ms"]
    return Call(*ends, *numbers, all_of(term("service", service.name), condition))
