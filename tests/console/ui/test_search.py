"""Search page: its numbers equal those of its links, and a selection is compared with the other spans."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import orjson
import pytest

from receiver.console.api.source import Row
from receiver.console.queries.aggregates.latency import BOUNDS_NS
from receiver.console.queries.comparison.shifts import shift_rows
from receiver.console.queries.filters.filter_text import parse_filter
from receiver.console.ui.charts.heatmap import ROWS_MAX, Heatmap, heatmap
from receiver.console.ui.charts.timeline import Timeline
from receiver.console.ui.static import url_of
from receiver.console.ui.view import View, instant
from tests.console.ui.conftest import FIRST_SPAN_S, TIMES, Client
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document, page_of, query_of
from tests.support.cases import each_case
from tests.support.receiver_facts import facts_of

SHOP = "/search?filter=http.route exists project=prj_1"
"""The spans of the shop, without the hostile spans."""


async def spans_of(site: Client, link: str) -> int:
    """Return the number of spans that the filter, the selection and the time range of a page match."""
    query = query_of(link)
    filters = f"({query.get('filter', '')}) {query.get('selection', '')}".replace("() ", "")
    red_query = {
        "by": "service",
        "spans": "all",
        "filter": filters,
        "since": query["since"],
        "until": query["until"],
    }
    answer = await site.get("/api/v1/red", params=red_query)
    assert answer.status == 200, await answer.text()
    return sum(orjson.loads(line).get("spans", 0) for line in (await answer.read()).splitlines())


def total_of(page: Document) -> int:
    match = re.search(r"([\d,]+) spans? match", page.text)
    assert match is not None
    return int(match[1].replace(",", ""))


def chart_cells(page: Document) -> list[str]:
    """Return the links of the cells of the heatmap, which select durations."""
    links = [each["href"] or "" for each in page.all("a") if each.get("tabindex") == "-1"]
    return [link for link in links if "selection=duration" in link]


async def test_every_cell_has_the_number_of_spans_that_its_link_selects(site: Client) -> None:
    text = await (await site.get(SHOP, params=TIMES)).text()
    rows = re.findall(r'<td class="number"><a href="(/search[^"]+)">([\d,]+)</a></td>', text)

    assert len(rows) > 100
    page = Document(text)
    assert [link.replace("&amp;", "&") for link, _ in rows] == chart_cells(page)
    assert sum(int(count.replace(",", "")) for _, count in rows) == total_of(page) == 1_200
    for link, count in (*rows[:3], *rows[-3:], *sorted(rows, key=lambda row: -int(row[1]))[:3]):
        assert await spans_of(site, link.replace("&amp;", "&")) == int(count)


@each_case("facet", ["", "&facet=http.route"])
async def test_values_of_facets_have_the_number_of_spans_that_their_links_select(
    site: Client, facet: str
) -> None:
    text = await (await site.get(SHOP + facet, params=TIMES)).text()
    values = re.findall(r'<li><a href="(/search[^"]+)">([^<]+)</a> <span class="number">([\d,]+)<', text)

    assert {name for _, name, _ in values} >= {"web", "db", "error", "not error", "SELECT cart", "GET /cart"}
    assert ({name for _, name, _ in values} >= {"dpl_1", "dpl_2"}) is not bool(facet)
    for link, _, count in values:
        assert await spans_of(site, link.replace("&amp;", "&")) == int(count.replace(",", ""))


async def test_link_of_a_chosen_facet_value_removes_it_from_the_filter(site: Client) -> None:
    page = await page_of(site, "/search?filter=service%3Dweb")

    back = [each["href"] for each in page.all("a") if each.get("aria-current") == "true"]
    assert back == [
        f"/search?since={instant(FIRST_SPAN_S)}&until={instant(FIRST_SPAN_S + 3_600)}".replace(":", "%3A")
    ]


async def test_selection_is_compared_with_the_other_spans_and_restricts_the_list(site: Client) -> None:
    page = await page_of(site, "/search?filter=service%3Dweb&selection=status%3Derror")

    shares = re.search(r"deployment=dpl_2: (\d+) % of it, (\d+) % of the rest", page.text)
    assert shares is not None
    assert int(shares[1]) - int(shares[2]) > 30
    listed = re.search(r"(\d+) traces match\.", page.text)
    assert listed is not None
    times = f"since={instant(FIRST_SPAN_S)}&until={instant(FIRST_SPAN_S + 3_600)}"
    assert int(listed[1]) == await spans_of(site, f"/search?filter=service%3Dweb+status%3Derror&{times}")


async def test_link_to_the_slowest_spans_selects_at_most_a_twentieth(site: Client) -> None:
    text = await (await site.get(SHOP, params=TIMES)).text()
    link = re.search(r'<a href="([^"]+)">the slowest spans</a>', text)
    assert link is not None

    assert 0 < await spans_of(site, link[1].replace("&amp;", "&")) <= 60


async def test_condition_on_traces_is_listed_without_a_chart(site: Client) -> None:
    page = await page_of(site, "/search?filter={service%3Dweb}+%26%26+{service%3Ddb}")

    assert "traces that match" in page.text
    assert not chart_cells(page)
    assert url_of("brush.js") in [attributes["src"] for attributes in page.all("script")]


@each_case(
    ("text", "target"),
    [
        (f" {7:032X}\n", f"/trace/{7:032x}"),
        (f"{6:015x}2", f"/trace/{7:032x}?span={6:015x}2"),
        ("dpl_2", "/deployment/dpl_2?"),
    ],
)
async def test_id_alone_opens_the_page_of_its_record(site: Client, text: str, target: str) -> None:
    response = await site.get("/search", params={"filter": text, **TIMES}, allow_redirects=False)

    assert response.status == 303
    assert response.headers["Location"].startswith(target)


async def test_search_for_a_text_is_widened_to_every_attribute_by_a_link(site: Client) -> None:
    text = await (await site.get("/search?filter=deadlock on row -web", params=TIMES)).text()
    (link,) = re.findall(r'href="([^"]+)">Search every attribute<', text)

    widened = query_of(link.replace("&amp;", "&"))["filter"]
    assert "traces match" in text
    assert widened == 'text:all="deadlock" text:all="on" text:all="row" -text:all="web"'
    assert "Search every attribute" not in (await page_of(site, "/search?filter=service=web")).text


async def test_text_that_is_no_filter_can_be_searched_by_a_link(site: Client) -> None:
    text = await (await site.get('/search?filter=total%3D3 of "1"', params=TIMES)).text()
    (link,) = re.findall(r'href="([^"]+)">Search for this text instead<', text)

    page = await page_of(site, link.replace("&amp;", "&"))
    assert "No trace matches" in page.text


def of_durations(*durations_ns: int) -> Heatmap:
    """Return the heatmap of a span of each duration."""
    query = {"since": "2027-01-15T08:00Z", "until": "2027-01-15T09:00Z"}
    facts = facts_of(Path("data"), ThreadPoolExecutor(1))
    view = View("/search", query, 1.8e9, FakeSource(), {}, facts=facts)
    rows: list[Row] = []
    for duration_ns in durations_ns:
        row = max(index for index, bound in enumerate(BOUNDS_NS) if bound <= duration_ns)
        end = (*BOUNDS_NS, 2**64 - 1)[row + 1]
        rows.append(
            {
                "start": "2027-01-15T08:30:00Z",
                "from_ms": BOUNDS_NS[row] / 1e6,
                "to_ms": end / 1e6,
                "spans": 1,
                "errors": 0,
            }
        )
    return heatmap(rows, Timeline(view))


@each_case(
    "durations_ns", [(0,), (2**64 - 1,), (0, 1, 5, 10**6, 10**9, 2**63, 2**64 - 1), (10**6, 10**6 + 1)]
)
def test_heatmap_of_any_durations_is_small_and_complete(durations_ns: tuple[int, ...]) -> None:
    result = of_durations(*durations_ns)

    assert len(result.bounds_ns) - 1 <= ROWS_MAX
    assert sum(cell.spans for cell in result.cells) == len(durations_ns)
    for cell in result.cells:
        parse_filter(cell.selection)
        low, high = result.bounds_ns[cell.row], result.bounds_ns[cell.row + 1]
        assert sum(low <= duration < high for duration in durations_ns) == cell.spans


async def test_differences_say_which_sides_are_samples(site: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    url = "/search?selection=service%3Dweb&project=prj_1"
    whole = await page_of(site, url)
    monkeypatch.setattr(shift_rows, "__kwdefaults__", {"sample_spans": 100})
    sampled = await page_of(site, url)

    assert "operation=GET /cart" in whole.text
    assert "sample" not in whole.text
    assert re.search(
        r"Compared by a random sample of \d+ of the selected spans and \d+ of the other matching spans\.",
        sampled.text,
    )
