"""Pages: their content, errors in their frame, and texts of senders that stay text."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html import unescape
from html.parser import HTMLParser
from urllib.parse import parse_qs, parse_qsl, urlsplit

from aiohttp import ClientResponse

from receiver.console.ui.pages.table import PAGES
from receiver.console.ui.site import RANGES
from receiver.console.ui.static import url_of
from receiver.console.ui.view import instant
from receiver.errors import CallerBusy, MalformedBody, StoreTrouble
from tests.console.ui.conftest import (
    FIRST_SPAN_S,
    HOSTILE,
    HOSTILE_TRACE,
    TIMES,
    URLS,
    Client,
    StartSite,
    add_hostile_records,
)
from tests.console.ui.fake_source import FakeSource
from tests.support.cases import each_case
from tests.support.receiver_facts import FactsOfTest

SCRIPTS = (
    *("frame.js", "pickers.js", "palette.js", "waterfall.js", "brush.js", "suggest.js", "saved.js"),
    *("ranges.js", "choices.js", "copy.js", "loading.js", "flame.js", "views.js"),
    *("connect.js", "tail.js", "sql.js"),
)
VOID = {"br", "hr", "img", "input", "link", "meta", "option"}


class Document(HTMLParser):
    """A page as elements and text. An element that is not closed in order is an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def tags(self) -> set[str]:
        """The names of the elements."""
        return {tag for tag, _ in self.elements}

    @property
    def words(self) -> str:
        """The text with single spaces."""
        return " ".join(self.text.split())

    @property
    def links(self) -> list[str]:
        """The targets of the links."""
        return [attributes["href"] or "" for attributes in self.all("a")]

    @property
    def fields(self) -> dict[str | None, str | None]:
        """The value of each field of the forms."""
        return {attributes["name"]: attributes.get("value") for attributes in self.all("input")}

    def all(self, name: str) -> list[dict[str, str | None]]:
        """Return the attributes of the elements with a name."""
        return [attributes for tag, attributes in self.elements if tag == name]


def query_of(link: str) -> dict[str, str]:
    """Return the parameters of a URL, which has none twice."""
    return dict(parse_qsl(urlsplit(link).query))


async def page_of(site: Client, url: str, status: int = 200) -> Document:
    times = {name: value for name, value in TIMES.items() if f"{name}=" not in url}
    answer = await site.get(url, params=times)
    assert answer.status == status, await answer.text()
    return Document(await answer.text())


DEAD_LETTER = f"/receiver/dead/{HOSTILE_TRACE}"
ABSENT = "a" * 32


@each_case("url", [*URLS, DEAD_LETTER])
async def test_page_is_safe_and_has_its_content_without_scripts(
    site: Client, facts: FactsOfTest, url: str
) -> None:
    if url == "/platform":
        add_hostile_records(facts.platform)

    answer = await site.get(url, params={} if url == DEAD_LETTER else {"since": "30d"})

    text = await answer.text()
    page = Document(text)
    check_headers(answer)
    check_elements(page)
    check_times_of_links(Document(text[text.index("<main") : text.index("</main>") + len("</main>")]))
    assert has_content(page), "the page has no content without its scripts"
    assert "The page cannot be shown" not in page.text


def check_headers(answer: ClientResponse) -> None:
    """Fail unless a page forbids scripts and frames of others, and may not be stored."""
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'; script-src 'self';" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["Cache-Control"] == "no-store"


def check_elements(page: Document) -> None:
    """Fail if a hostile text has created an element or an attribute."""
    assert page.tags & {"img", "b", "style", "iframe"} <= {"b"}
    assert {attributes["src"] for attributes in page.all("script")} <= {url_of(name) for name in SCRIPTS}
    for _, attributes in page.elements:
        assert not [name for name in attributes if name.startswith("on") or name == "style"]
        assert not (attributes.get("href") or "").startswith("javascript")


def check_times_of_links(content: Document) -> None:
    """Fail if a link of the content has an age, except for the links to other ranges."""
    for link in content.links:
        query = parse_qs(urlsplit(link).query)
        is_range_menu = query.get("since", [""])[0] in RANGES
        if "since" in query and not is_range_menu:
            assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", query["since"][0])
            assert "until" in query


def has_content(page: Document) -> bool:
    """Return whether a page has rows, a list, an editor, or a text that says that there is nothing."""
    is_empty = any(attributes.get("class") == "empty" for attributes in page.all("p"))
    return is_empty or bool(page.tags & {"td", "dd", "textarea"})


async def test_every_hostile_text_is_shown_unchanged(site: Client) -> None:
    page = await page_of(site, f"/trace/{HOSTILE_TRACE}")

    assert [text for text in HOSTILE if text not in page.text] == []


@each_case(
    ("url", "texts"),
    [
        ("/search?filter=status%3Derror+service%3Dweb", ["traces match", "GET /cart"]),
        ("/search?filter=http.rout%3Dx", ["No trace matches", "span.http.route"]),
        ("/search?filter=service%3Dweb&selection=service%3Dweb", ["there is no rest to compare with"]),
        ("/services?service=db&operation=SELECT+cart", ["No span failed."]),
        ("/services?service=<absent>", ["No span of <absent> from ", "Show the last 24 hours"]),
        ("/services?service=db&operation=absent", ["No span of absent from ", "Operations of db"]),
        ("/deployment/dpl_1?kind=build", ["No such event is stored in this time range"]),
        ("/receiver", ["the admin port did not answer"]),
    ],
)
async def test_page_answers_its_parameters(site: Client, url: str, texts: list[str]) -> None:
    page = await page_of(site, url)

    assert [text for text in texts if text not in page.text] == []


@each_case(
    ("url", "status", "text"),
    [
        ("/search?filter=service%3D", 400, "The page cannot be shown: filter, column 9"),
        ("/search?filter=root&selection=x%3D1", 400, "selection, column 1"),
        ("/tail?filter=service%3D", 400, "column 9"),
        ("/errors?since=yesterday", 400, "expected a number and s, m, h or d"),
        (f"/trace/{1:032x}/with/x", 400, "expected 32 hex digits"),
        (f"/trace/{'e' * 32}", 404, "it has expired or has not arrived"),
    ],
)
async def test_error_is_explained_in_the_frame(site: Client, url: str, status: int, text: str) -> None:
    page = await page_of(site, url, status)

    assert text in page.words


@each_case("path", [f"/trace/{ABSENT}", f"/trace/{1:032x}/with/{ABSENT}"])
async def test_trace_that_is_not_stored_has_status_404_and_next_steps(site: Client, path: str) -> None:
    page = await page_of(site, path, 404)

    assert "A span can be read a second or two after its 200" in page.text
    assert {path, "/search?since=1h", "/search?since=30d", "/receiver"} <= set(page.links)


async def test_deployment_that_is_not_stored_has_status_404_and_next_steps(site: Client) -> None:
    page = await page_of(site, "/deployment/absent", 404)

    assert "No event and no span of deployment absent" in page.text
    assert "/deployment/absent?since=30d" in page.links
    assert {"/search", "/compare"} <= {link.partition("?")[0] for link in page.links}


@each_case(("time_range", "label"), [({"since": "6h"}, "last 6 hours"), ({}, "last hour"), (TIMES, " to ")])
async def test_frame_keeps_the_range_of_the_request(
    site: Client, time_range: dict[str, str], label: str
) -> None:
    answer = await site.get("/search", params={**time_range, "filter": "service=web", "project": "prj_1"})
    text = await answer.text()
    expected = {name: [value] for name, value in {"since": "1h", **time_range}.items()}

    frame, _, content = text.partition("<main")
    links = re.findall(r'<a href="([^"]+)"[^>]* data-key', frame)
    assert len(links) > 5
    for link in links:
        assert parse_qs(urlsplit(unescape(link)).query) == {"project": ["prj_1"], **expected}
    assert label in frame.partition("<summary>")[2].partition("</summary>")[0]
    hidden = r'<input type="hidden" name="(since|until)" value="([^"]+)"'
    assert dict(re.findall(hidden, frame)) == time_range
    assert {name: [value] for name, value in re.findall(hidden, content)} == expected
    (permalink,) = re.findall(r'<a href="([^"]+)">Link to this view</a>', content)
    assert parse_qs(urlsplit(unescape(permalink)).query)["since"][0].endswith(".000Z")
    assert "until" in permalink


async def test_overview_says_which_deployment_is_worse(site: Client) -> None:
    page = await page_of(site, "/")

    assert "dpl_2 is worse: " in page.text
    assert any(link.startswith("/compare?") and "a=dpl_1&b=dpl_2" in link for link in page.links)


async def test_comparison_names_the_times_that_it_compared(site: Client) -> None:
    whole = await page_of(site, "/compare?a=dpl_1&b=dpl_2")
    begun = await page_of(site, "/compare?a=dpl_1&b=dpl_2&first=40m")

    begin, middle, end = (f"{datetime.fromtimestamp(FIRST_SPAN_S + s, UTC):%F %T}" for s in (0, 1_800, 3_600))
    assert f"A: 600 spans from {begin} to {middle} UTC. " in whole.text
    assert f"B: 600 spans from {middle} to {end} UTC. " in whole.text
    assert f"from {middle} to {end} UTC; incomplete, the window ends later. " in begun.text


@each_case("path", [f"/trace/{1:032x}", f"/trace/{1:032x}/with/{7:032x}"])
async def test_page_of_a_trace_has_no_time_range(site: Client, path: str) -> None:
    page = await page_of(site, path)

    assert "State at " in page.text
    assert "Data from " not in page.text
    assert "ranges" not in {attributes.get("id") for _, attributes in page.elements}


@each_case("is_on", [False, True])
async def test_navigation_has_the_sql_page_only_if_sql_is_on(start_site: StartSite, *, is_on: bool) -> None:
    source = FakeSource()
    source.allows_sql = is_on

    page = Document(await (await (await start_site(source)).get("/errors")).text())

    assert ("q" in {attributes.get("data-key") for attributes in page.all("a")}) == is_on


async def test_error_in_a_filter_is_marked_in_a_text_that_can_be_edited(site: Client) -> None:
    answer = await site.get("/search", params={**TIMES, "project": "prj_1", "filter": "status=eror root"})

    text = await answer.text()
    assert answer.status == 400
    assert "status=<mark>e</mark>ror root" in text
    assert 'value="status=eror root"' in text


async def test_empty_search_counts_the_traces_of_a_day(site: Client) -> None:
    later = {"since": instant(FIRST_SPAN_S + 7_200), "until": instant(FIRST_SPAN_S + 10_800)}

    response = await site.get("/search", params={**later, "filter": "service=web status=error"})
    absent = await site.get("/search", params={**later, "filter": "service=none"})

    page = Document(await response.text())
    link = next(
        link for link in page.links if instant(FIRST_SPAN_S + 10_800 - 86_400).replace(":", "%3A") in link
    )
    wider = await site.get(link)
    count = re.search(r"(\d+) traces match in the 24 hours", page.text.replace("\n", " "))
    assert count is not None
    assert f"{count[1]} traces match." in Document(await wider.text()).text
    nothing = Document(await absent.text()).text
    assert "No trace matches in the 24 hours" in nothing
    assert "Show the last 30 days." in nothing
    assert "Show the last 24 hours" not in nothing + page.text


async def test_trace_page_names_the_operation_that_took_the_time(site: Client) -> None:
    page = await page_of(site, f"/trace/{1:032x}")

    assert re.search(r"in 2 spans; [\d.]+ ms of it in (web GET /cart|db SELECT cart) \(\d\d %\)", page.text)


@each_case("name", sorted(PAGES))
async def test_project_and_deployment_are_offered_where_they_restrict_the_page(
    start_site: StartSite, name: str
) -> None:
    source = FakeSource()
    path = PAGES[name].path.format(id=HOSTILE_TRACE, other=HOSTILE_TRACE)
    client = await start_site(source)

    page = Document(await (await client.get(path, params={"project": "prj_1"})).text())

    is_restricted = any('project="prj_1"' in query.get("filter", "") for query in source.queries)
    assert is_restricted == ("pickers" in {attributes.get("id") for _, attributes in page.elements})


async def test_frame_of_a_slow_page_is_sent_before_its_content(start_site: StartSite) -> None:
    client = await start_site(FakeSource(delay_s=600))

    answer = await client.get("/errors")
    begin = (await answer.content.readuntil(b"</h1>")).decode()
    answer.close()

    assert "What fails?" in begin


@each_case(
    ("error", "status", "text"),
    [
        (StoreTrouble("secret of a row", code=210, name="NETWORK_ERROR"), 503, "NETWORK_ERROR (210)"),
        (StoreTrouble("secret of a row", code=241, name="MEMORY"), 422, "GiB of memory"),
        (StoreTrouble("secret of a row", code=60, name="UNKNOWN_TABLE"), 503, "the store has no tables"),
        (MalformedBody("filter, column 3: what is wrong", field="filter"), 400, "column 3"),
        (CallerBusy("too many queries wait"), 429, "too many queries wait"),
    ],
)
async def test_failed_query_is_explained_in_the_frame(
    start_site: StartSite, error: Exception, status: int, text: str
) -> None:
    client = await start_site(FakeSource(error=error))

    answer = await client.get("/errors")

    page = Document(await answer.text())
    assert answer.status == status
    assert text in page.text
    assert "secret" not in page.text


async def test_static_files_are_cached_forever_and_require_their_digest(site: Client) -> None:
    page = await page_of(site, "/errors")
    url = next(each["href"] or "" for each in page.all("link") if each["rel"] == "stylesheet")

    response = await site.get(url)
    missing = await site.get(re.sub(r"/[0-9a-f]{16}/", "/0123456789abcdef/", url))

    assert (response.status, missing.status) == (200, 404)
    assert "immutable" in response.headers["Cache-Control"]
    assert response.content_type == "text/css"
