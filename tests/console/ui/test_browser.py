"""Pages in a browser: what a user does with the mouse, the keyboard, the pickers and the palette."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Browser, Page

from receiver.console.api.access import COOKIE, LOGIN
from tests.console.ui.conftest import LOOPBACK, TIMES, Client, site_with, url_of
from tests.console.ui.test_pages import query_of
from tests.console.ui.test_service_map import GraphSource, call, group
from tests.support.access import VIEWER, receiver_with
from tests.support.browser import accessibility_violations, check_themes_and_widths, needs_chromium
from tests.support.cases import each_case
from tests.support.receiver_facts import FactsOfTest

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

GRAPH = GraphSource(
    [
        *(call("web", name) for name in ("cart", "users", "search")),
        call("cart", "web", 100, 9),
        call("a-service-with-a-name-that-does-not-fit", "日本語のサービスの名前は長いです日本語" * 3),
    ],
    ["web", "cart", "users", "search", "alone"],
    {"client": {"postgresql": [group("cart")]}, "producer": {"kafka": [group("users", 3)]}},
)
NEW = {"project": [{"value": "prj_new", "text": "prj_new: 1 span, now"}], "deployment": []}
PROJECTS = "#pickers select[name=project]"


async def test_dragging_in_the_heatmap_selects_times_and_durations(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search", filter="service=web"))
    box = await page.locator("#heatmap").bounding_box()
    assert box is not None

    await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 4)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 40, steps=4)
    await page.mouse.up()
    await page.wait_for_url("**selection=**")

    query = query_of(page.url)
    assert query["filter"] == "service=web"
    assert query["selection"].startswith("duration>=")
    assert query["since"] > TIMES["since"]
    assert query["until"] < TIMES["until"]
    await page.get_by_text("What is different about the selection?").wait_for()


async def test_click_on_a_cell_follows_its_link(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search", filter="service=web"))
    cell = page.locator("#heatmap a[tabindex]").first
    link = await cell.get_attribute("href")

    await cell.click()
    await page.wait_for_url("**selection=**")

    assert query_of(page.url) == query_of(link or "")


@each_case("times", [TIMES, {"since": "30d", "until": ""}])
async def test_filter_is_completed_by_keyboard(shop: Client, page: Page, times: dict[str, str]) -> None:
    await page.goto(url_of(shop, "/search", **times))
    await page.press("body", "/")

    for typed in ("service=", "http.ro"):
        await page.keyboard.type(typed)
        await page.locator("[role=option]").first.wait_for()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("Enter")
    # After the key, its values are completed.
    await page.locator("[role=option]", has_text="http.route=").first.wait_for()
    await page.keyboard.press("Escape")

    assert await page.input_value("#filter") == "service=db http.route="
    assert await page.locator("[role=option]").count() == 0


async def test_view_is_saved_in_the_browser_and_deleted(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search", filter="service=web", columns="started,http.route"))
    await page.click("#views summary")
    await page.click("text=Save in this browser")
    await page.goto(url_of(shop, "/services"))
    await page.click("#views summary")

    saved = page.locator("#views a", has_text="service=web")
    query = query_of(await saved.get_attribute("href") or "")
    assert (query["filter"], query["columns"]) == ("service=web", "started,http.route")
    await page.click("#views button:has-text('Delete')")
    assert await saved.count() == 0


@each_case("key", ["Control+Enter", "Meta+Enter"])
async def test_statement_is_run_by_keyboard(shop: Client, page: Page, key: str) -> None:
    await page.goto(str(shop.make_url("/sql")))
    await page.press("body", "/")
    await page.keyboard.type("SELECT 40 + 2 AS x")

    await page.keyboard.press(key)

    await page.wait_for_url("**/sql?q=SELECT%2040*")
    assert await page.locator(".result td").all_inner_texts() == ["42"]


async def test_chosen_project_restricts_the_page_and_the_next_page(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/errors", filter="status=error", deployment="dpl_1"))
    await page.locator(f"{PROJECTS} option[value=prj_1]").wait_for(state="attached")

    await page.select_option(PROJECTS, "prj_1")
    await page.wait_for_url("**project=prj_1**")

    assert query_of(page.url)["filter"] == "status=error"
    # It belonged to the previous project.
    assert "deployment" not in query_of(page.url)
    await page.click("header nav a[data-key=v]")
    await page.wait_for_url("**/services**")
    assert query_of(page.url)["project"] == "prj_1"
    assert await page.input_value(PROJECTS) == "prj_1"


async def test_relative_range_stays_relative_in_the_address(shop: Client, page: Page) -> None:
    await page.goto(str(shop.make_url("/errors?since=6h")))
    await page.locator(f"{PROJECTS} option[value=prj_1]").wait_for(state="attached")
    assert query_of(page.url) == {"since": "6h"}

    await page.select_option(PROJECTS, "prj_1")
    await page.wait_for_url("**project=prj_1**")
    assert query_of(page.url) == {"since": "6h", "project": "prj_1"}
    await page.click("header nav a[data-key=s]")
    await page.wait_for_url("**/search**")

    assert query_of(page.url) == {"since": "6h", "project": "prj_1"}
    assert await page.inner_text("#ranges summary") == "last 6 hours"


async def test_new_project_appears_without_a_reload(shop: Client, page: Page) -> None:
    await page.clock.install()
    await page.goto(url_of(shop, "/errors"))
    select = page.locator(PROJECTS)
    await select.locator("option[value=prj_1]").wait_for(state="attached")
    before = await select.bounding_box()
    await page.route("**/choices**", lambda route: route.fulfill(json=NEW))

    await page.clock.fast_forward(20_000)
    await select.locator("option[value=prj_new]").wait_for(state="attached")

    texts = [text.strip() for text in await select.locator("option").all_inner_texts()]
    assert texts == ["all projects", NEW["project"][0]["text"]]
    assert await select.bounding_box() == before


async def test_palette_opens_a_service_by_keyboard(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/errors", project="prj_1"))
    await page.keyboard.press("Control+k")
    await page.keyboard.type("we")
    await page.locator("#palette [role=option]:has-text('service'):has-text('web')").wait_for()

    assert await accessibility_violations(page, "#palette") == []
    active = await page.get_attribute("#palette input", "aria-activedescendant")
    assert active is not None
    assert "web" in await page.locator(f"#{active}").inner_text()
    await page.keyboard.press("ArrowDown")
    assert await page.get_attribute("#palette input", "aria-activedescendant") != active
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/search**")

    assert query_of(page.url).items() >= {"filter": "service=web", "project": "prj_1"}.items()


async def test_palette_closes_with_escape_and_opens_a_pasted_trace(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search"))
    await page.focus("#filter")
    for _ in range(2):
        await page.keyboard.press("Control+k")
        assert await page.locator("#palette").is_visible()
        await page.keyboard.press("Escape")
        assert not await page.locator("#palette").is_visible()
    # The focus returns to the element that had it before.
    assert await page.evaluate("document.activeElement.id") == "filter"

    await page.keyboard.press("Control+k")
    await page.keyboard.insert_text(f"{1:032X}")
    await page.keyboard.press("Enter")
    await page.wait_for_url(f"**/trace/{1:032x}")


async def test_palette_shows_hostile_names_as_text(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/errors"))
    await page.keyboard.press("Control+k")
    await page.keyboard.type("<script>")

    await page.locator("#palette [role=option]", has_text="<script>alert(1)</script>").first.wait_for()
    assert await page.locator("#palette script").count() == 0


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def graph(shop_facts: FactsOfTest) -> AsyncIterator[Client]:
    """Yield a site whose source has rows for the service map only."""
    async with site_with(GRAPH, shop_facts) as client:
        yield client


async def test_focused_line_of_the_map_shows_its_numbers(graph: Client, page: Page) -> None:
    await page.goto(url_of(graph, "/map"))
    line = page.locator(".edge", has_text="9 % errors").first
    label = line.locator(".label")
    assert not await label.is_visible()

    await page.locator(".node").last.focus()
    while not await line.evaluate("line => line === document.activeElement"):
        await page.keyboard.press("Tab")

    assert await label.is_visible()
    assert await label.text_content() == "1.7/min, 9 % errors, p95 34 ms"


async def test_service_of_the_map_is_opened_by_keyboard(graph: Client, page: Page) -> None:
    await page.goto(url_of(graph, "/map"))
    await page.route("**/services?**", lambda route: route.fulfill(body="opened"))

    await page.locator(".node", has_text="users").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/services?**")

    assert query_of(page.url)["service"] == "users"


async def test_one_key_opens_the_numbers_of_the_map(graph: Client, page: Page) -> None:
    await page.goto(url_of(graph, "/map"))
    assert not await page.locator("details.numbers table").is_visible()

    await page.keyboard.press("t")

    assert await page.locator("details.numbers table").is_visible()
    assert await page.locator("details.numbers tbody tr").count() == await page.locator(".edge").count()


async def test_labels_of_the_map_stay_inside_their_boxes(graph: Client, page: Page) -> None:
    await page.goto(url_of(graph, "/map"))

    for node in await page.locator(".node").all():
        shape = await node.locator("rect, path").first.evaluate("shape => shape.getBBox().width")
        label = node.locator("svg")
        assert float(await label.get_attribute("width") or "inf") < shape
        assert await label.evaluate("label => getComputedStyle(label).overflow") == "hidden"


async def test_map_is_accessible_and_as_wide_as_the_window(graph: Client, page: Page) -> None:
    await page.goto(url_of(graph, "/map", focus="web", levels="2"))

    await check_themes_and_widths(page)


@pytest_asyncio.fixture(loop_scope="module")
async def receiver(tmp_path: Path) -> AsyncIterator[Client]:
    """Yield a receiver that requires a login."""
    async with receiver_with(tmp_path) as client:
        yield client


@pytest_asyncio.fixture(loop_scope="module")
async def visitor(browser: Browser) -> AsyncIterator[Page]:
    """Yield a page that may show errors: browsers report each status from 400."""
    page = await browser.new_page()
    yield page
    await page.context.close()


async def log_in(visitor: Page, receiver: Client, path: str) -> None:
    await visitor.goto(f"{LOOPBACK}{receiver.port}{path}")
    assert LOGIN in visitor.url
    await visitor.fill("#token", VIEWER.token)
    await visitor.click("button")
    await visitor.wait_for_url("**/errors?**")


async def test_user_logs_in_returns_to_the_page_and_logs_out(receiver: Client, visitor: Page) -> None:
    await log_in(visitor, receiver, "/errors?since=6h")
    (cookie,) = await visitor.context.cookies()
    await visitor.click("#more summary")
    await visitor.click("text=Log out vera")
    await visitor.wait_for_url(f"**{LOGIN}")

    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
    assert await visitor.context.cookies() == []
    await visitor.goto(f"{LOOPBACK}{receiver.port}/errors")
    assert LOGIN in visitor.url


async def test_wrong_token_is_reported_on_an_accessible_page(receiver: Client, visitor: Page) -> None:
    await visitor.goto(f"{LOOPBACK}{receiver.port}/")

    await visitor.fill("#token", "wrong")
    await visitor.press("#token", "Enter")

    await visitor.wait_for_selector("text=This token is not valid.")
    assert await accessibility_violations(visitor) == []


async def test_link_of_another_site_opens_the_page_in_the_session_of_the_user(
    receiver: Client, visitor: Page
) -> None:
    await log_in(visitor, receiver, "/errors?since=6h")
    link = f'<a href="{LOOPBACK}{receiver.port}/errors?since=15m">link</a>'

    async def linking(_request: web.Request) -> web.Response:
        return web.Response(text=link, content_type="text/html")

    other = web.Application()
    other.router.add_get("/", linking)
    # `localhost` and 127.0.0.1 are different sites.
    async with TestServer(other, host="localhost") as server:
        await visitor.goto(f"http://localhost:{server.port}/")
        await visitor.click("a")
        await visitor.wait_for_selector("text=Log out vera", state="attached")

    assert "since=" in visitor.url
    assert LOGIN not in visitor.url


async def test_dragging_in_a_chart_over_time_zooms_into_the_times(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/services", service="web"))
    box = await page.locator("svg.over-time").first.bounding_box()
    assert box is not None

    await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 40)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 60, steps=4)
    await page.mouse.up()
    await page.wait_for_url(lambda url: query_of(url)["since"] > TIMES["since"])

    query = query_of(page.url)
    assert query["until"] < TIMES["until"]
    assert set(query) == {"service", "since", "until"}


async def test_form_of_two_times_takes_them_in_the_time_zone_of_the_reader(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/errors"))
    offset_min = await page.evaluate("new Date().getTimezoneOffset()")
    await page.locator("#ranges summary").click()
    await page.get_by_label("Time zone").select_option("local")
    began = datetime.fromisoformat(TIMES["since"]) - timedelta(minutes=offset_min)

    shown = await page.get_by_label("from", exact=True).input_value()
    assert datetime.fromisoformat(f"{shown}Z") == began
    await page.locator("#absolute button").click()
    await page.wait_for_url("**until=**")

    assert query_of(page.url) == TIMES


async def test_page_reloads_itself_and_keeps_focus_and_position_unless_a_menu_is_open(
    shop: Client, page: Page
) -> None:
    await page.clock.install()
    await page.set_viewport_size({"width": 1280, "height": 300})
    await page.goto(url_of(shop, "/services", service="web", refresh="10s"))
    row = page.locator("tbody th a").first
    await row.evaluate("(link) => { window.isOld = true; link.focus(); scrollTo(0, 300); }")
    text = await row.inner_text()

    await page.locator("#ranges").evaluate("(menu) => (menu.open = true)")
    await page.clock.run_for(15_000)
    assert await page.evaluate("window.isOld") is True
    await page.locator("#ranges").evaluate("(menu) => (menu.open = false)")
    async with page.expect_navigation():
        await page.clock.run_for(2_000)

    assert await page.evaluate("document.activeElement.textContent") == text
    assert await page.evaluate("scrollY") == 300
