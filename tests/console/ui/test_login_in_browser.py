"""Login in a browser, which decides what `Origin`, `Sec-Fetch-Site` and the cookie are."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from playwright.async_api import Page

from receiver.console.api.access import COOKIE, LOGIN
from tests.console.ui.conftest import StartReceiver
from tests.support.access import VIEWER, Client
from tests.support.browser import WAIT_MS, accessibility_violations, chromium, needs_chromium

pytestmark = needs_chromium


@pytest.fixture
async def browser() -> AsyncIterator[Page]:
    async with chromium() as running:
        page = await running.new_page()
        page.set_default_timeout(WAIT_MS)
        yield page


def url_of(client: Client, path: str) -> str:
    return f"http://127.0.0.1:{client.port}{path}"


async def log_in(browser: Page, client: Client, path: str) -> None:
    await browser.goto(url_of(client, path))
    assert LOGIN in browser.url
    await browser.fill("#token", VIEWER.token)
    await browser.click("button")
    await browser.wait_for_url("**/errors?**")


async def test_user_logs_in_returns_to_the_page_and_logs_out(start: StartReceiver, browser: Page) -> None:
    client = await start()

    await log_in(browser, client, "/errors?since=6h")
    (cookie,) = await browser.context.cookies()
    await browser.click("text=Log out vera")
    await browser.wait_for_url(f"**{LOGIN}")

    assert (cookie["name"], cookie["httpOnly"], cookie["sameSite"]) == (COOKIE, True, "Strict")
    assert await browser.context.cookies() == []
    await browser.goto(url_of(client, "/errors"))
    assert LOGIN in browser.url


async def test_wrong_token_is_reported_on_an_accessible_page(start: StartReceiver, browser: Page) -> None:
    client = await start()
    await browser.goto(url_of(client, "/"))

    await browser.fill("#token", "wrong")
    await browser.press("#token", "Enter")

    await browser.wait_for_selector("text=This token is not valid.")
    assert await accessibility_violations(browser) == []


async def test_link_of_another_site_opens_the_page_in_the_session_of_the_user(
    start: StartReceiver, browser: Page
) -> None:
    client = await start()
    await log_in(browser, client, "/errors?since=6h")
    link = f'<a href="{url_of(client, "/errors?since=15m")}">link</a>'

    async def linking(_request: web.Request) -> web.Response:
        return web.Response(text=link, content_type="text/html")

    other = web.Application()
    other.router.add_get("/", linking)
    # `localhost` and 127.0.0.1 are different sites.
    async with TestServer(other, host="localhost") as server:
        await browser.goto(f"http://localhost:{server.port}/")
        await browser.click("a")
        await browser.wait_for_selector("text=Log out vera")

    assert "since=" in browser.url
    assert LOGIN not in browser.url
