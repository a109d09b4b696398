"""Page of the services: a chosen service or operation has its own durations, errors and numbers."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from urllib.parse import quote, urlsplit

from tests.console.ui.conftest import FIRST_SPAN_S, HOSTILE, HOSTILE_TRACE, TIMES, Client, StartSite
from tests.console.ui.fake_source import FakeSource
from tests.console.ui.test_pages import Document, page_of, query_of
from tests.console.ui.test_search import chart_cells, spans_of
from tests.support.cases import each_case

REQUESTS = 600
"""Number of requests of each service of the shop."""


def links_to(page: Document, path: str) -> list[dict[str, str]]:
    return [query_of(link) for link in page.links if urlsplit(link).path == path]


async def test_each_service_links_to_its_page(site: Client) -> None:
    page = await page_of(site, "/services")

    services = {query.get("service") for query in links_to(page, "/services")}
    # A longer name of a service is shortened when it is stored.
    assert services >= {"web", *(text for text in HOSTILE if len(text) <= 256)} - {HOSTILE[6]}


async def test_cells_of_a_service_have_the_requests_that_their_links_select(site: Client) -> None:
    page = await page_of(site, "/services?service=web")
    cells = chart_cells(page)

    counts = [await spans_of(site, link) for link in cells[:2] + cells[-2:]]
    titles = [int(text.replace(",", "")) for text in re.findall(r"(\d[\d,]*) spans? from \d\d:", page.text)]

    assert sum(titles) == REQUESTS
    assert counts == titles[:2] + titles[-2:]


async def test_charts_name_the_incomplete_intervals_of_the_range(site: Client) -> None:
    # Intervals of a minute: the range begins and ends within one.
    since, until = (f"{datetime.fromtimestamp(FIRST_SPAN_S + at_s, UTC):%FT%TZ}" for at_s in (90, 3_090))
    times = f"since={since}&until={until}"
    services = await (await site.get(f"/services?{times}")).text()
    service = await (await site.get(f"/services?service=web&{times}")).text()
    whole = await (await site.get("/services?service=web", params=TIMES)).text()

    assert "dots: incomplete intervals" in services
    assert "incomplete interval</title>" in service
    assert "(incomplete interval)</th>" in service
    assert "incomplete interval" not in whole


async def test_service_without_requests_has_its_operations_and_says_so(site: Client) -> None:
    page = await page_of(site, "/services?service=db")

    assert "No request: " in page.text
    assert chart_cells(page) == []
    operations = [query for query in links_to(page, "/services") if "operation" in query]
    assert [(query["service"], query["operation"]) for query in operations] == [("db", "SELECT cart")]


async def test_operation_has_the_durations_of_all_its_spans(site: Client) -> None:
    page = await page_of(site, "/services?service=db&operation=SELECT+cart")

    assert "Durations of its spans" in page.text
    links = chart_cells(page)
    assert {query_of(link)["filter"] for link in links} == {'service="db" operation="SELECT cart"'}
    assert await spans_of(site, links[0].partition("&selection")[0] + times_of(page)) == REQUESTS


def times_of(page: Document) -> str:
    query = links_to(page, "/search")[0]
    return f"&since={quote(query['since'])}&until={quote(query['until'])}"


async def test_errors_of_a_service_equal_those_of_the_errors_page(site: Client) -> None:
    page = await page_of(site, "/services?service=web")

    errors = next(query for query in links_to(page, "/errors") if query.get("filter") == 'service="web"')
    listed = Document(await (await site.get("/errors", params=errors)).text())
    count = re.search(r"([\d,]+) failed spans in 1 group\b", listed.text)
    assert count is not None
    assert re.search(rf"\s{count[1]}\s+error: deadlock on row <number>\s", page.text)


async def test_errors_link_to_an_example(site: Client) -> None:
    page = await page_of(site, f"/services?service={quote(HOSTILE[0])}")

    assert f"/trace/{HOSTILE_TRACE}" in page.links


@each_case("query", ["", "service=web", "service=web&operation=x"])
async def test_page_of_an_empty_store_is_shown(start_site: StartSite, query: str) -> None:
    client = await start_site(FakeSource())

    answer = await client.get(f"/services?{query}", params=TIMES)

    assert answer.status == 200
    Document(await answer.text())


async def test_filter_of_the_page_restricts_the_operations(site: Client) -> None:
    page = await page_of(site, "/services?service=web&filter=status%3Derror")

    filters = [query.get("filter", "") for query in links_to(page, "/search")]
    (operation_filter,) = {text for text in filters if "operation" in text}
    assert operation_filter == 'status=error service="web" operation="GET /cart"'
    assert "✕ 100 % failed" in page.text
