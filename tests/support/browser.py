"""Chromium for tests, and pages that report whatever a browser finds wrong with them."""

from __future__ import annotations

import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import pytest
from axe_playwright_python.async_playwright import Axe  # type: ignore[import-untyped]  # has no types
from playwright.async_api import (
    Browser,
    ConsoleMessage,
    Dialog,
    Page,
    Request,
    ViewportSize,
    async_playwright,
)

CHROMIUM = shutil.which("chromium")
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not installed")
NARROW = ViewportSize(width=320, height=640)
WAIT_MS = 60_000
"""How long a step may take on a busy machine."""
COLOUR_RULES = ("color-contrast", "link-in-text-block")
"""Rules whose result depends on the theme, if the layout is the same."""
REPORT_VIOLATIONS = """
addEventListener("securitypolicyviolation", (event) => {
  console.error(`violates ${event.violatedDirective}: ${event.blockedURI}`);
});
"""


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start Chromium."""
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        await browser.close()


@asynccontextmanager
async def faultless_page(browser: Browser, origin: str, **options: Any) -> AsyncIterator[Page]:  # noqa: ANN401 - options of a browser context
    """Open a page. Fails at the end if a script failed, a policy was violated, or a text was executed."""
    faults: list[str] = []

    def on_console(message: ConsoleMessage) -> None:
        if message.type in {"error", "warning"}:
            faults.append(message.text)

    async def on_dialog(dialog: Dialog) -> None:
        faults.append(f"dialog: {dialog.message}")
        await dialog.dismiss()

    def on_request(request: Request) -> None:
        if not request.url.startswith(origin):
            faults.append(f"request to another site: {request.url}")

    context = await browser.new_context(**options)
    context.set_default_timeout(WAIT_MS)
    if options.get("java_script_enabled", True):
        await context.add_init_script(REPORT_VIOLATIONS)
    page = await context.new_page()
    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", on_console)
    page.on("dialog", on_dialog)
    page.on("request", on_request)
    yield page
    await context.close()
    assert not faults, faults


async def accessibility_violations(
    page: Page, context: str | None = None, rules: Sequence[str] = ()
) -> list[str]:
    """Return the rules of accessibility that a page violates, each with the first of its elements.

    `context`: the selector of a part of the page, which is checked instead of the whole page.
    `rules`: the only rules that are checked; empty means all.
    """
    only = {"runOnly": {"type": "rule", "values": [*rules]}} if rules else {}
    found = await Axe().run(page, context=context, options={"resultTypes": ["violations"], **only})
    return [f"{each['id']}: {each['nodes'][0]['html']}" for each in found.response["violations"]]


async def excess_px(page: Page) -> int:
    """Return the number of pixels by which a page is wider than its window."""
    width: int = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
    return width


async def check_themes_and_widths(page: Page) -> None:
    """Fail if a page is not accessible or wider than the window, in a light or in a dark, narrow window."""
    problems = [*await accessibility_violations(page), await excess_px(page)]
    await page.emulate_media(color_scheme="dark")
    await page.set_viewport_size(NARROW)
    await page.evaluate("new Promise(requestAnimationFrame)")

    assert [*problems, *await accessibility_violations(page), await excess_px(page)] == [0, 0]
