"""Lists, views and the filter field in a browser: by keyboard, accessible, with the states of loading."""

from __future__ import annotations

import asyncio
import re

import pytest
from playwright.async_api import Page, Route

from tests.console.ui.conftest import Client, url_of
from tests.support.browser import check_themes_and_widths, needs_chromium

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]


async def test_id_is_copied_by_keyboard_and_announced(shop: Client, page: Page) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(url_of(shop, "/search", filter="service=web"))
    whole = await page.locator("a.id").first.get_attribute("title") or ""

    await page.locator("a.id + .copy-id").first.focus()
    await page.keyboard.press("Enter")

    await page.get_by_role("status").get_by_text(f"Copied {whole}").wait_for()
    assert len(whole) == 32
    assert await page.evaluate("navigator.clipboard.readText()") == whole


async def test_completions_have_the_numbers_of_stored_spans(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search"))
    await page.press("body", "/")
    for typed, expected in (
        ("timeout http.rou", "http.route="),
        ("te", "http.route!="),
        ('="GET', 'http.route="GET /cart"'),
    ):
        await page.keyboard.type(typed)
        await page.locator("[role=option]", has_text=expected).first.wait_for()

    assert re.fullmatch(
        r'http\.route="GET /cart"\s+\d+ spans', await page.locator("[role=option]").first.inner_text()
    )


async def test_error_of_a_filter_is_shown_below_it_while_the_page_stays(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search"))
    before = page.url
    await page.fill("#filter", "service=web duration>fast")
    await page.keyboard.press("Enter")

    error = page.locator("#filter-error")
    await error.wait_for()
    assert page.url == before
    assert await page.locator("table").count() > 0
    lines = (await error.inner_text()).splitlines()
    assert lines[0] == "service=web duration>fast"
    assert lines[1].index("^") == await page.locator("#filter").evaluate("each => each.selectionStart")
    assert await page.get_attribute("#filter", "aria-invalid") == "true"
    await page.fill("#filter", "service=web")
    assert not await error.is_visible()
    await page.keyboard.press("Enter")
    await page.wait_for_url("**filter=service%3Dweb**")


async def test_page_that_takes_long_says_so_and_can_be_cancelled(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search", filter="service=web"))
    before = page.url

    async def slowly(route: Route) -> None:
        await asyncio.sleep(5)
        await route.continue_()

    await page.route("**/errors?**", slowly)
    # In one script, because the browser's driver waits for the end of a navigation.
    seen = await page.evaluate(
        """new Promise((resolve) => {
          const main = document.querySelector("main");
          document.querySelector('header nav [data-key="e"]').click();
          setTimeout(() => {
            const bar = document.getElementById("loading");
            const during = [main.getAttribute("aria-busy"), main.querySelectorAll("tbody tr").length > 50];
            bar.querySelector("button").click();
            resolve([...during, main.getAttribute("aria-busy"), document.getElementById("loading")]);
          }, 1000);
        })"""
    )

    assert seen == ["true", True, None, None]
    assert page.url == before
    await page.unroute_all(behavior="ignoreErrors")


async def test_view_is_shared_by_a_form_and_opened_by_the_palette(shop: Client, page: Page) -> None:
    await page.goto(url_of(shop, "/search", filter="status=error", columns="started,http.route"))
    await page.click("#views summary")
    await page.click("text=Save this view…")
    await page.fill("input[name=name]", "failed carts")
    await page.click("text=Save for all")
    await page.get_by_text("The view is saved.").wait_for()
    await check_themes_and_widths(page)
    await page.keyboard.press("Control+k")
    await page.keyboard.type("failed ca")
    await page.locator("#destinations [role=option]", has_text="view").first.wait_for()
    await page.keyboard.press("Enter")

    await page.wait_for_url("**/search?**columns=started%2Chttp.route**")


async def test_list_with_columns_is_accessible_and_fits(shop: Client, page: Page) -> None:
    await page.goto(
        url_of(shop, "/search", columns="started,root,duration,http.route,trace", sort="-duration")
    )
    await page.click("#columns summary")

    await check_themes_and_widths(page)


async def test_text_pasted_beside_the_fields_is_searched(shop: Client, page: Page) -> None:
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    await page.goto(url_of(shop, "/"))
    await page.wait_for_selector("#go:not([hidden])", state="attached")
    await page.evaluate("navigator.clipboard.writeText('card declined\\n  after 5000 ms')")

    async with page.expect_navigation():
        await page.keyboard.press("Control+V")

    assert await page.locator("#filter").input_value() == "card declined after 5000 ms"
    await page.locator("#filter").fill("")
    await page.keyboard.press("Control+V")
    assert "card declined" in await page.locator("#filter").input_value()  # no search yet: it is in a field
