"""Frame of the pages in a browser: the pickers of project and deployment, and the palette."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]  # has no types
from playwright.async_api import Page

from tests.console.ui.conftest import TIMES, Client

NEW = {"project": [{"value": "prj_new", "text": "prj_new: 1 span, now"}], "deployment": []}


def url_of(site: Client, path: str, **parameters: str) -> str:
    return f"{site.make_url(path)}?{urlencode({**TIMES, **parameters})}"


def query_of(url: str) -> dict[str, str]:
    return {name: values[0] for name, values in parse_qs(urlsplit(url).query).items()}


async def test_chosen_project_restricts_the_page_and_the_next_page(site: Client, page: Page) -> None:
    await page.goto(url_of(site, "/errors", filter="status=error", deployment="dpl_1"))
    await page.locator("#pickers select[name=project] option[value=prj_1]").wait_for(state="attached")

    await page.select_option("#pickers select[name=project]", "prj_1")
    await page.wait_for_url("**project=prj_1**")

    assert query_of(page.url)["filter"] == "status=error"
    # It belonged to the previous project.
    assert "deployment" not in query_of(page.url)
    await page.click("header nav a[data-key=v]")
    await page.wait_for_url("**/services**")
    assert query_of(page.url)["project"] == "prj_1"
    assert await page.input_value("#pickers select[name=project]") == "prj_1"


async def test_relative_range_stays_relative_in_the_address(site: Client, page: Page) -> None:
    await page.goto(str(site.make_url("/errors?since=6h")))
    await page.locator("#pickers select[name=project] option[value=prj_1]").wait_for(state="attached")
    assert query_of(page.url) == {"since": "6h"}

    await page.select_option("#pickers select[name=project]", "prj_1")
    await page.wait_for_url("**project=prj_1**")
    assert query_of(page.url) == {"since": "6h", "project": "prj_1"}
    await page.click("header nav a[data-key=s]")
    await page.wait_for_url("**/search**")

    assert query_of(page.url) == {"since": "6h", "project": "prj_1"}
    assert await page.inner_text("#ranges summary") == "last 6 hours"


async def test_new_project_appears_without_a_reload(site: Client, page: Page) -> None:
    await page.clock.install()
    await page.goto(url_of(site, "/errors"))
    select = page.locator("#pickers select[name=project]")
    await select.locator("option[value=prj_1]").wait_for(state="attached")
    before = await select.bounding_box()
    await page.route("**/choices**", lambda route: route.fulfill(json=NEW))

    await page.clock.fast_forward(20_000)
    await select.locator("option[value=prj_new]").wait_for(state="attached")

    texts = [text.strip() for text in await select.locator("option").all_inner_texts()]
    assert texts == ["all", NEW["project"][0]["text"]]
    assert await select.bounding_box() == before


async def test_palette_opens_a_service_by_keyboard(site: Client, page: Page) -> None:
    await page.goto(url_of(site, "/errors", project="prj_1"))
    await page.keyboard.press("Control+k")
    await page.keyboard.type("we")
    await page.locator("#palette [role=option]:has-text('service'):has-text('web')").wait_for()

    result = await Axe().run(page, context="#palette")
    assert [violation["id"] for violation in result.response["violations"]] == []
    active = await page.get_attribute("#palette input", "aria-activedescendant")
    assert active is not None
    assert "web" in await page.locator(f"#{active}").inner_text()
    await page.keyboard.press("ArrowDown")
    assert await page.get_attribute("#palette input", "aria-activedescendant") != active
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await page.wait_for_url("**/search**")

    assert query_of(page.url)["filter"] == "service=web"
    assert query_of(page.url)["project"] == "prj_1"


async def test_palette_closes_with_escape_and_opens_a_pasted_trace(site: Client, page: Page) -> None:
    await page.goto(url_of(site, "/search"))
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


async def test_palette_shows_hostile_names_as_text(site: Client, page: Page) -> None:
    await page.goto(url_of(site, "/errors"))
    await page.keyboard.press("Control+k")
    await page.keyboard.type("<script>")

    await page.locator("#palette [role=option]", has_text="<script>alert(1)</script>").first.wait_for()
    assert await page.locator("#palette script").count() == 0


async def test_shortcut_is_in_the_list_of_shortcuts(site: Client, page: Page) -> None:
    await page.goto(url_of(site, "/errors"))
    await page.keyboard.press("?")

    assert "Ctrl K" in await page.locator("#shortcuts").inner_text()
