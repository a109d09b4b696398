"""Service map, services and compared traces in a browser: keyboard, accessibility and width."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]  # has no types

from tests.console.ui.conftest import TIMES, Client, StartSite
from tests.console.ui.test_service_map import GraphSource, call, group

if TYPE_CHECKING:
    from playwright.async_api import Page

SOURCE = GraphSource(
    [*(call("web", name) for name in ("cart", "users", "search")), call("cart", "web", 100, 9)],
    ["web", "cart", "users", "search", "alone"],
    {"client": {"postgresql": [group("cart")]}, "producer": {"kafka": [group("users", 3)]}},
)


def url_of(client: Client, path: str, **parameters: str) -> str:
    return f"{client.make_url(path)}?{urlencode({**TIMES, **parameters})}"


async def test_line_with_the_focus_shows_its_numbers(start_site: StartSite, page: Page) -> None:
    await page.goto(url_of(await start_site(SOURCE), "/map"))
    line = page.locator(".edge", has_text="9 % errors").first
    label = line.locator(".label")
    assert not await label.is_visible()

    await page.locator(".node").last.focus()
    while not await line.evaluate("line => line === document.activeElement"):
        await page.keyboard.press("Tab")

    assert await label.is_visible()
    assert await label.text_content() == "1.7/min, 9 % errors, p95 34 ms"


async def test_service_is_opened_by_keyboard(start_site: StartSite, page: Page) -> None:
    await page.goto(url_of(await start_site(SOURCE), "/map"))
    # The source answers the map only.
    await page.route("**/services?**", lambda route: route.fulfill(body="opened"))

    await page.locator(".node", has_text="users").focus()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/services?**")

    assert parse_qs(urlsplit(page.url).query)["service"] == ["users"]


async def test_numbers_of_the_map_are_one_key_away(start_site: StartSite, page: Page) -> None:
    await page.goto(url_of(await start_site(SOURCE), "/map"))
    assert not await page.locator("details.numbers table").is_visible()

    await page.keyboard.press("t")

    assert await page.locator("details.numbers table").is_visible()
    assert await page.locator("details.numbers tbody tr").count() == await page.locator(".edge").count()


async def test_labels_of_boxes_do_not_leave_them(start_site: StartSite, page: Page) -> None:
    edges = [call("a-service-with-a-name-that-does-not-fit", "日本語のサービスの名前は長いです日本語" * 3)]
    await page.goto(url_of(await start_site(GraphSource(edges)), "/map"))

    for node in await page.locator(".node").all():
        shape = await node.locator("rect").get_attribute("width")
        label = node.locator("svg")
        assert shape is not None
        assert float(await label.get_attribute("width") or "inf") < float(shape)
        assert await label.evaluate("label => getComputedStyle(label).overflow") == "hidden"


THEMES: tuple[tuple[Literal["light", "dark"], int], ...] = (("light", 1280), ("dark", 1280), ("light", 320))
"""Each theme, with a width of the window."""


async def check_page(page: Page, url: str) -> None:
    """Fail if a page is not accessible or wider than the window."""
    for scheme, width in THEMES:
        await page.set_viewport_size({"width": width, "height": 800})
        await page.emulate_media(color_scheme=scheme)

        await page.goto(url)

        violations = (await Axe().run(page)).response["violations"]
        assert [(found["id"], [node["html"] for node in found["nodes"]]) for found in violations] == []
        assert await page.evaluate("document.documentElement.scrollWidth") <= width


async def test_map_is_accessible_and_as_wide_as_the_window(start_site: StartSite, page: Page) -> None:
    url = url_of(await start_site(SOURCE), "/map", focus="web", levels="2")

    await check_page(page, url)


@pytest.mark.parametrize(
    "path",
    [
        "/services?service=web",
        "/services?service=db&operation=SELECT+cart",
        f"/trace/{1:032x}/with/{1_801:032x}?row=0",
    ],
    ids=["service", "operation", "traces"],
)
async def test_page_is_accessible_and_as_wide_as_the_window(site: Client, page: Page, path: str) -> None:
    await check_page(page, f"{site.make_url(path)}&{urlencode(TIMES)}")
