"""Page of the service map: its boxes, lines and numbers, for graphs of any size and names of any text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from urllib.parse import parse_qs, urlsplit

from receiver.console.api.source import Answer, Row
from receiver.console.queries.filters.filter_forms import parse_any_form
from receiver.console.ui.calls import CALLERS_MAX, EDGES_READ_MAX, SYSTEMS_MAX, Call, Node, around, busiest
from receiver.console.ui.filter_text import all_of
from receiver.console.ui.pages.service_map import ALONE_MAX, CALLS_MAX, NODES_MAX
from tests.console.ui.conftest import HOSTILE, HOSTILE_TRACE, TIMES, Client, StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document, page_of
from tests.support.cases import each_case


def call(client: str, server: str, calls: int = 10, errors: int = 0) -> Row:
    return {
        "client": client,
        "server": server,
        "calls": calls,
        "errors": errors,
        "error_rate": errors / calls,
        "p50_ms": 1.0,
        "p95_ms": 34.0,
    }


def group(name: str, spans: int = 10) -> Row:
    return {"group": name, "spans": spans, "errors": 0, "error_rate": 0.0, "p50_ms": 1.0, "p95_ms": 2.0}


class GraphSource(FakeSource):
    """Source of calls between services, of services, and of the callers of systems."""

    def __init__(
        self,
        edges: Sequence[Row] = (),
        services: Sequence[str] = (),
        systems: Mapping[str, Mapping[str, Sequence[Row]]] | None = None,
    ) -> None:
        """`systems`: kind of span → system → rows of its services."""
        super().__init__()
        self.edges = edges
        self.services = services
        self.systems = systems or {}

    async def ask(self, name: str, query: Mapping[str, str]) -> Answer:
        limit, rows = int(query["limit"]), list[Row]()
        if name == "service-map":
            rows = list(self.edges)
        elif name != "red":
            pass
        elif query["by"] != "service":
            rows = [group(system) for system in self._systems_of(query)]
        elif "system" in query["filter"]:
            rows = [
                row
                for system, callers in self._systems_of(query).items()
                for row in callers
                if f'"{system}"' in query["filter"]
            ]
        else:
            rows = [group(service) for service in self.services]
        return Answer(rows[:limit], len(rows) > limit)

    def _systems_of(self, query: Mapping[str, str]) -> Mapping[str, Sequence[Row]]:
        kinds = re.findall(r"kind=(\w+)", query["filter"])
        assert kinds
        return {system: rows for kind in kinds for system, rows in self.systems.get(kind, {}).items()}


async def map_of(start_site: StartSite, source: GraphSource, query: str = "") -> Document:
    return await page_of(await start_site(source), f"/map?{query}")


def boxes(page: Document) -> list[str]:
    """Return the class of each box."""
    kinds = [attributes.get("class") or "" for attributes in page.all("a")]
    return [kind for kind in kinds if kind.startswith("node ")]


def lines(page: Document) -> dict[str, dict[str, str | None]]:
    """Return the attributes of each line, by its label."""
    return {
        attributes["aria-label"] or "": attributes
        for attributes in page.all("a")
        if (attributes.get("class") or "").startswith("edge ")
    }


async def test_map_without_calls_says_so_and_names_the_services(start_site: StartSite) -> None:
    page = await map_of(start_site, GraphSource(services=["web"]))

    assert "No call between services, to a database or to a message queue" in page.text
    assert "Services without calls" in page.text
    assert any(urlsplit(link).path == "/services" and "service=web" in link for link in page.links)
    assert boxes(page) == []


async def test_map_without_spans_offers_other_time_ranges(start_site: StartSite) -> None:
    page = await map_of(start_site, GraphSource())

    assert "Show the last 24 hours" in page.text
    assert "Services without calls" not in page.text


async def test_map_with_a_single_call_has_its_numbers(start_site: StartSite) -> None:
    page = await map_of(start_site, GraphSource([call("web", "cart", 600, 60)], ["web", "cart"]))

    assert list(lines(page)) == ["web to cart: 10/min, 10 % errors, p95 34 ms"]
    assert "Most errors: web → cart, ✕ 10 % of 600 calls." in page.text
    assert len(boxes(page)) == 2


async def test_map_of_as_many_services_as_fit_is_complete(start_site: StartSite) -> None:
    edges = [call(f"s{number}", f"s{number + 1}") for number in range(NODES_MAX - 1)]

    page = await map_of(start_site, GraphSource(edges))

    assert len(boxes(page)) == NODES_MAX
    assert len(lines(page)) == NODES_MAX - 1
    assert "with the most calls are shown" not in page.text


async def test_map_of_500_services_shows_the_busiest_and_says_so(start_site: StartSite) -> None:
    edges = [call("hub", f"s{number:03}", 1_000 - number) for number in range(499)]

    page = await map_of(start_site, GraphSource(edges))

    assert len(boxes(page)) == NODES_MAX
    assert f"Only the {NODES_MAX} services and systems with the most calls are shown, of 500." in page.text
    assert "hub to s000: 17/min, 0 % errors, p95 34 ms" in lines(page)
    assert not any("s499" in line for line in lines(page))


async def test_map_with_too_many_connections_shows_the_busiest_and_says_so(start_site: StartSite) -> None:
    edges = [call(f"s{a}", f"s{b}", 1_000 - a - b) for a in range(25) for b in range(25) if a != b]

    page = await map_of(start_site, GraphSource(edges))

    assert len(lines(page)) == CALLS_MAX
    assert f"Only the {CALLS_MAX} connections with the most calls are shown, of 600." in page.text


@each_case(
    "source",
    [
        GraphSource([call("a", f"s{number}") for number in range(EDGES_READ_MAX + 1)]),
        GraphSource(systems={"client": {f"db{number}": [group("a")] for number in range(SYSTEMS_MAX + 1)}}),
        GraphSource(systems={"producer": {"kafka": [group(f"s{n}") for n in range(CALLERS_MAX + 1)]}}),
    ],
    ids=["edges", "systems", "callers"],
)
async def test_map_reports_that_the_store_has_more_connections(
    start_site: StartSite, source: GraphSource
) -> None:
    page = await map_of(start_site, source)

    assert "More connections are stored than a map reads" in page.text


async def test_many_services_without_calls_are_counted(start_site: StartSite) -> None:
    page = await map_of(start_site, GraphSource(services=[f"s{number}" for number in range(ALONE_MAX + 7)]))

    assert "and 7 more" in page.text


async def test_focus_keeps_callers_and_called_services_of_one_or_two_levels(start_site: StartSite) -> None:
    names = ["a", "b", "c", "d", "e", "f"]
    edges = [call(first, second) for first, second in pairwise(names)]
    source = GraphSource([*edges, call("a", "aside")])

    near = await map_of(start_site, source, "focus=c")
    far = await map_of(start_site, source, "focus=c&levels=2")

    ends = [[label.partition(":")[0] for label in lines(page)] for page in (near, far)]
    assert ends == [["b to c", "c to d"], ["a to b", "b to c", "c to d", "d to e"]]
    assert [kind for kind in boxes(near) if "focus" in kind] == ["node service focus"]


async def test_focus_on_a_service_without_calls_is_explained(start_site: StartSite) -> None:
    page = await map_of(start_site, GraphSource([call("a", "b")]), "focus=<b>")

    assert "No call from or to <b>" in page.text
    assert any("focus" not in link and link.startswith("/map") for link in page.links)


async def test_databases_and_queues_have_shapes_of_their_own(start_site: StartSite) -> None:
    systems = {
        "client": {"postgresql": [group("cart", 60)]},
        "producer": {"kafka": [group("cart", 30)]},
        "consumer": {"kafka": [group("mail", 30)]},
    }

    page = await map_of(start_site, GraphSource(systems=systems))

    assert sorted(boxes(page)) == ["node database", "node queue", "node service", "node service"]
    assert [label.partition(":")[0] for label in lines(page)] == [
        "cart to postgresql",
        "kafka to mail",
        "cart to kafka",
    ]
    filters = [parse_qs(urlsplit(line["href"] or "").query)["filter"][0] for line in lines(page).values()]
    assert filters == [
        'service="cart" kind=client db.system.name="postgresql"',
        'service="mail" kind=consumer messaging.system="kafka"',
        'service="cart" kind=producer messaging.system="kafka"',
    ]


async def test_lines_show_the_share_of_errors_and_the_direction_by_class(start_site: StartSite) -> None:
    edges = [call("a", "b", 100, 1), call("b", "c", 100, 5), call("c", "a", 100), call("x", "a", 1_000_000)]

    page = await map_of(start_site, GraphSource(edges))

    classes = {label.partition(":")[0]: line["class"] for label, line in lines(page).items()}
    assert classes == {
        "a to b": "edge width2 some",
        "b to c": "edge width2 many",
        "c to a": "edge width2 back",
        "x to a": "edge width5",
    }
    # On the line, in the sentence and in the table.
    assert page.text.count("✕ 5 %") == 3


async def test_table_has_the_same_links_as_the_lines(start_site: StartSite) -> None:
    edges = [call("a", "b"), call("b", "c")]

    page = await map_of(start_site, GraphSource(edges))

    targets = [line["href"] for line in lines(page).values()]
    assert all(page.links.count(target or "") == 2 for target in targets)


async def test_hostile_names_stay_text(start_site: StartSite) -> None:
    edges = [call(a, b) for a, b in pairwise(HOSTILE)]

    page = await map_of(start_site, GraphSource(edges, HOSTILE))

    assert "script" not in {tag for tag, attributes in page.elements if not attributes.get("src")}
    assert all(text in page.text for text in HOSTILE)
    assert not any(link.startswith("javascript") for link in page.links)


@each_case(
    "index",
    # Filters have no control characters.
    [index for index in range(1, len(HOSTILE)) if f"{HOSTILE[index - 1]}{HOSTILE[index]}".isprintable()],
)
async def test_link_of_a_line_finds_its_trace_in_the_chosen_project(site: Client, index: int) -> None:
    answer = await site.get("/map", params={**TIMES, "project": HOSTILE[index]})
    (line,) = lines(Document(await answer.text())).values()
    page = Document(await (await site.get(line["href"] or "")).text())

    assert "1 trace matches." in page.text
    assert any(link == f"/trace/{HOSTILE_TRACE}" for link in page.links)


def test_spansets_are_joined_with_conditions_on_spans() -> None:
    joined = all_of('project="p"', "{service=a} || {service=b}")

    assert parse_any_form(joined) == parse_any_form('{project="p"} && ({service=a} || {service=b})')


def graph(*edges: tuple[str, str, int]) -> list[Call]:
    return [Call(Node("service", a), Node("service", b), count, 0, 1.0, 2.0, "") for a, b, count in edges]


def test_busiest_calls_are_those_between_the_busiest_nodes() -> None:
    all_calls = graph(("a", "b", 100), ("b", "c", 50), ("c", "d", 5), ("d", "a", 4))

    none = Node("service", "")
    assert busiest(all_calls, none, 3, 10) == all_calls[:2]
    assert busiest(all_calls, none, 4, 3) == all_calls[:3]


def test_chosen_service_stays_even_if_its_neighbours_have_more_calls() -> None:
    all_calls = graph(("a", "b", 100), ("b", "c", 50), ("c", "d", 5), ("d", "a", 4))

    assert busiest(all_calls, Node("service", "d"), 3, 10) == [all_calls[0], all_calls[3]]


def test_neighbours_in_a_cycle_are_followed_once() -> None:
    all_calls = graph(("a", "b", 3), ("b", "a", 2), ("x", "y", 1))

    assert around(all_calls, Node("service", "a"), 2) == all_calls[:2]
