"""Lists: columns and order are in the URL, ids can be copied, and long searches can be cancelled."""

from __future__ import annotations

import itertools
import re

from receiver.console.ui.numbers import id_length
from tests.console.ui.conftest import TIMES, Client
from tests.console.ui.test_pages import Document, page_of, query_of
from tests.support.cases import each_case

SHOP = "http.route exists project=prj_1"


def head_links(page: Document) -> dict[str, str]:
    """Return the URL of each head of the first list of a page that sorts."""
    pairs = itertools.pairwise(page.elements)
    links = [after[1]["href"] or "" for before, after in pairs if before[0] == "th" and after[0] == "a"]
    return {query_of(link)["sort"].lstrip("-"): link for link in links if "sort" in query_of(link)}


async def cells_of(site: Client, url: str) -> list[list[str]]:
    text = await (await site.get(url.partition("?")[0], params={**TIMES, **query_of(url)})).text()
    body = text[text.index("<tbody>", text.index('<caption class="hidden">Traces')) :].split("</tbody>")[0]
    rows = [re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row, re.DOTALL) for row in body.split("<tr>")[1:]]
    return [[" ".join(re.sub(r"<[^>]+>", "", cell).split()) for cell in row] for row in rows]


async def test_chosen_columns_are_in_the_order_of_the_url(site: Client) -> None:
    rows = await cells_of(site, f"/search?filter={SHOP}&columns=http.route,spans,root")

    assert {tuple(row[1:]) for row in rows} == {("GET /cart", "2", "web GET /cart")}


async def test_attribute_of_a_column_searches_for_its_value(site: Client) -> None:
    page = await page_of(site, "/search?columns=http.route&filter=service%3Dweb")

    links = [link for link in page.links if 'http.route="GET /cart"' in query_of(link).get("filter", "")]
    assert links
    assert {query_of(link)["columns"] for link in links if "selection" not in query_of(link)} == {
        "http.route"
    }


async def test_slowest_traces_are_those_of_all_matches_and_not_of_the_newest(site: Client) -> None:
    filters = {"filter": SHOP, "limit": "10000", **TIMES}
    lines = (await (await site.get("/api/v1/search", params=filters)).text()).splitlines()[:-1]
    durations = sorted((float(line.split('"duration_ms":')[1].split(",")[0]) for line in lines), reverse=True)

    page = await page_of(site, f"/search?filter={SHOP}&columns=duration,trace&sort=-duration")

    assert len(lines) > 400
    assert (
        "The first 100 of all traces that match, sorted by duration, largest first; more match." in page.words
    )
    rows = await cells_of(site, f"/search?filter={SHOP}&columns=duration,trace&sort=-duration")
    assert [row[1] for row in rows[:3]] == [f"{each:.0f} ms" for each in durations[:3]]


@each_case(
    ("path", "name"),
    [
        ("/search", "duration"),
        ("/services", "p95"),
        ("/services?service=web", "p95"),
        ("/errors", "last"),
        ("/compare", "spans"),
        ("/compare?a=dpl_1&b=dpl_2", "p95"),
    ],
)
async def test_head_sorts_and_reverses_the_list(site: Client, path: str, name: str) -> None:
    first = head_links(await page_of(site, path))[name]
    page = await page_of(site, first)

    assert query_of(first)["sort"] == f"-{name}"
    assert [each["aria-sort"] for each in page.all("th") if "aria-sort" in each] == ["descending"]
    assert query_of(head_links(page)[name])["sort"] == name


async def test_columns_are_added_moved_and_removed_without_a_script(site: Client) -> None:
    answer = await site.get(
        "/search", params={**TIMES, "columns": "started,root", "add": "http.route"}, allow_redirects=False
    )
    url = answer.headers["Location"]
    assert answer.status == 303
    assert query_of(url)["columns"] == "started,root,http.route"

    page = await page_of(site, url)
    links = {each.get("aria-label"): each["href"] or "" for each in page.all("a")}
    assert query_of(links["Move http.route to the left"])["columns"] == "started,http.route,root"
    assert query_of(links["Remove root"])["columns"] == "started,http.route"


async def test_column_that_cannot_be_added_is_refused_below_its_field(site: Client) -> None:
    page = await page_of(site, "/search?add=%00", 400)

    (field,) = (each for each in page.all("input") if each.get("name") == "add")
    assert field["aria-describedby"] == "add-error"
    assert "Columns: expected " in page.text
    assert not [link for link in page.links if "add=" in link]


@each_case("columns", ["bogus", ",".join(f"a.{number}" for number in range(13))])
async def test_wrong_column_is_an_error(site: Client, columns: str) -> None:
    assert "columns: " in (await page_of(site, f"/search?columns={columns}", 400)).text


def test_ids_are_as_long_as_needed_to_differ() -> None:
    assert id_length([]) == 8
    assert id_length(["a" * 32, "b" * 32, "b" * 32]) == 8
    assert id_length(["0" * 20 + "a" * 12, "0" * 20 + "b" * 12]) == 21
