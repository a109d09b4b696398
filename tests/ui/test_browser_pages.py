"""Every page in a browser: accessible in both themes, as wide as the screen, with and without scripts and a mouse."""

from __future__ import annotations

from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import urlencode

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page

from receiver.engine.store import Store
from tests.support.browser import accessibility_violations, chromium, faultless_page, needs_chromium
from tests.support.receiver_facts import facts_of
from tests.ui.conftest import TIMES, URLS, Client, site_over

pytestmark = [needs_chromium, pytest.mark.asyncio(loop_scope="module")]

WIDE = {"width": 1280, "height": 800}
NARROW = {"width": 320, "height": 640}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shop(shop_store: Store, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """Yield one site for all tests of this file."""
    directory: Path = tmp_path_factory.mktemp("site")
    with ThreadPoolExecutor(2) as pool:
        async with site_over(shop_store, directory, facts_of(directory, pool)) as client:
            yield client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def browser() -> AsyncIterator[Browser]:
    """Yield one browser for all tests of this file."""
    async with chromium() as running:
        yield running


def origin_of(site: Client) -> str:
    return str(site.make_url("")).rstrip("/")


async def show(page: Page, site: Client, url: str) -> None:
    """Open a page and wait until its scripts have drawn."""
    separator = "&" if "?" in url else "?"
    answer = await page.goto(f"{origin_of(site)}{url}{separator}{urlencode(TIMES)}")
    assert answer is not None
    assert answer.status == 200
    await page.wait_for_selector("#theme:not([hidden])")
    if await page.locator("[data-outline]").count():
        await page.wait_for_selector("[role=treegrid] [role=row]")


async def excess_px(page: Page) -> int:
    """Return by how much a page is wider than its window."""
    width: int = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width


@pytest.mark.parametrize("url", URLS)
async def test_page_is_accessible_and_fits_in_both_themes_and_widths(
    shop: Client, browser: Browser, url: str
) -> None:
    async with faultless_page(browser, origin_of(shop), viewport=WIDE, color_scheme="light") as page:
        await show(page, shop, url)
        found = [*await accessibility_violations(page), await excess_px(page)]

        await page.emulate_media(color_scheme="dark")
        await page.set_viewport_size(NARROW)
        await page.evaluate("new Promise(requestAnimationFrame)")
        found += [*await accessibility_violations(page), await excess_px(page)]

        assert found == [0, 0]
