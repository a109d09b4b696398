"""Search page and SQL page in a browser: dragging in the heatmap, completion and statements by keyboard."""

from __future__ import annotations

from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.async_api import Page

from tests.console.ui.conftest import TIMES, Client


def url_of(site: Client, **parameters: str) -> str:
    return f"{site.make_url('/search')}?{urlencode({**TIMES, **parameters})}"


async def test_dragging_in_the_heatmap_selects_times_and_durations(site: Client, page: Page) -> None:
    await page.goto(url_of(site, filter="service=web"))
    box = await page.locator("#heatmap").bounding_box()
    assert box is not None

    await page.mouse.move(box["x"] + box["width"] * 0.5, box["y"] + 4)
    await page.mouse.down()
    await page.mouse.move(box["x"] + box["width"] * 0.7, box["y"] + 40, steps=4)
    await page.mouse.up()
    await page.wait_for_url("**selection=**")

    query = {name: values[0] for name, values in parse_qs(urlsplit(page.url).query).items()}
    assert query["filter"] == "service=web"
    assert query["selection"].startswith("duration>=")
    assert query["since"] > TIMES["since"]
    assert query["until"] < TIMES["until"]
    await page.get_by_text("What is different about the selection?").wait_for()


async def test_click_on_a_cell_follows_its_link(site: Client, page: Page) -> None:
    await page.goto(url_of(site, filter="service=web"))
    cell = page.locator("#heatmap a[tabindex]").first
    link = await cell.get_attribute("href")

    await cell.click()
    await page.wait_for_url("**selection=**")

    assert link is not None
    assert parse_qs(urlsplit(page.url).query) == parse_qs(urlsplit(link).query)


@pytest.mark.parametrize("times", [TIMES, {"since": "30d"}])
async def test_filter_is_completed_by_keyboard(site: Client, page: Page, times: dict[str, str]) -> None:
    await page.goto(f"{site.make_url('/search')}?{urlencode(times)}")
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


async def test_search_is_saved_and_deleted(site: Client, page: Page) -> None:
    await page.goto(url_of(site, filter="service=web"))
    await page.click("#saved summary")
    await page.click("text=Save this search")
    await page.goto(url_of(site))

    saved = page.locator("#saved a")
    assert await saved.text_content() == "service=web"
    link = await saved.get_attribute("href")
    assert link is not None
    assert parse_qs(urlsplit(link).query)["filter"] == ["service=web"]
    await page.click("#saved summary")
    await page.click("#saved button:has-text('Delete')")
    assert await saved.count() == 0


@pytest.mark.parametrize("key", ["Control+Enter", "Meta+Enter"])
async def test_statement_is_run_by_keyboard(site: Client, page: Page, key: str) -> None:
    await page.goto(str(site.make_url("/sql")))
    await page.press("body", "/")
    await page.keyboard.type("SELECT 40 + 2 AS x")

    await page.keyboard.press(key)

    await page.wait_for_url("**/sql?q=SELECT%2040*")
    assert await page.locator(".result td").all_inner_texts() == ["42"]
