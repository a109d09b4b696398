"""Parameters of the pages: the filter has one name, and no parameter is ignored."""

from __future__ import annotations

import re
from html import unescape

from receiver.console.ui.pages.table import PAGES
from tests.console.ui.conftest import HOSTILE_TRACE, TIMES, Client
from tests.console.ui.test_pages import Document, page_of
from tests.support.cases import each_case

PATHS = [re.sub(r"\{\w+\}", HOSTILE_TRACE, page.path) for page in PAGES.values()]
WITH_FILTER = ["/", "/search", "/services", "/map", "/errors", "/compare", "/tail"]
NO_SPAN = "service=absent"


async def content_of(site: Client, url: str) -> str:
    """Return a page below its frame, without the time of the request."""
    text = await (await site.get(url, params=TIMES)).text()
    return re.sub(r"State at .*", "", text.partition("<main")[2])


@each_case("path", [*PATHS, "/choices", "/connect/checks", "/tail/rows", "/traces/compare"])
async def test_unknown_parameter_is_an_error(site: Client, path: str) -> None:
    answer = await site.get(path, params={**TIMES, "untli": "1h"})

    assert answer.status == 400
    assert "did you mean 'until'?" in unescape(await answer.text())


@each_case("path", WITH_FILTER)
async def test_filter_and_its_old_name_restrict_a_page_which_shows_the_filter(
    site: Client, path: str
) -> None:
    everything, filtered, old = [
        await content_of(site, f"{path}{query}") for query in ("", f"?filter={NO_SPAN}", f"?q={NO_SPAN}")
    ]

    assert filtered != everything
    assert old == filtered
    assert f'value="{NO_SPAN}"' in filtered or f"Filter: <code>{NO_SPAN}</code>" in filtered


@each_case("query", ["filter=root&filter=root", "q=root&filter=root", "since=1h&since=2h"])
async def test_repeated_parameter_is_an_error(site: Client, query: str) -> None:
    answer = await site.get(f"/search?{query}")

    assert answer.status == 400


async def test_filter_with_its_old_name_is_explained(site: Client) -> None:
    page = Document(await (await site.get("/search?q=root&filter=root")).text())

    assert "filter and q are the same parameter" in page.text


async def test_error_page_offers_the_page_without_parameters(site: Client) -> None:
    answer = await site.get("/search?fliter=root")

    page = Document(await answer.text())
    assert "did you mean 'filter'?" in page.text
    assert "/search" in page.links


@each_case(
    "url",
    [
        "/services?sort=longest",
        "/map?levels=9",
        "/connect?drain=absent",
        "/deployment/dpl_2?kind=builds",
        "/receiver?period=1h",
    ],
)
async def test_value_that_is_not_listed_is_an_error(site: Client, url: str) -> None:
    page = await page_of(site, url, 400)

    assert ": expected one of " in page.text


async def test_links_of_a_filtered_page_keep_the_filter(site: Client) -> None:
    for path in ("/services", "/errors"):
        page = await page_of(site, f"{path}?filter=service%3Dweb")

        to_data = [link for link in page.links if re.match(r"/(search|services|errors)\?", link)]
        in_frame = {link for link in page.links if "=" in link and "filter=" not in link}
        assert to_data
        assert {link for link in in_frame if "service=" in link} == set()
