"""The control page in a browser: accessible, without scripts, readable at 320 px, and usable."""

from __future__ import annotations

from tests.support.browser import accessibility_violations, chromium, faultless_page, needs_chromium
from tests.support.emulator import REDIRECT_URI, RunningEmulator


@needs_chromium
async def test_control_page_is_accessible_and_installs_and_disables(platform: RunningEmulator) -> None:
    url = platform.facts["control_url"]
    viewport = {"width": 320, "height": 640}
    async with (
        chromium() as browser,
        faultless_page(browser, url.removesuffix("/control"), viewport=viewport) as page,
    ):
        await page.goto(url)
        for scheme in ("dark", "light"):
            await page.emulate_media(color_scheme=scheme)
            assert await accessibility_violations(page) == [], scheme
        assert await page.evaluate("document.documentElement.scrollWidth") <= viewport["width"]
        await page.fill("input[name=redirect_uri]", REDIRECT_URI)
        await page.get_by_role("button", name="Install", exact=True).click()
        await page.get_by_role("link", name="Continue to the integration").wait_for()
        await page.get_by_role("button", name="Disable").last.click()
        await page.get_by_role("button", name="Transfer ownership").wait_for()

    states = [each.state for each in platform.state.installations.by_id.values()]
    assert states == ["active", "disabled"]
