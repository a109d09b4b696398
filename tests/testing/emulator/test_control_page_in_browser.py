"""The control page in a browser: accessible, without scripts, readable at 320 px, and usable."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.browser import accessibility_violations, chromium, faultless_page
from tests.support.emulator import REDIRECT_URI, emulator


@pytest.mark.parametrize("scheme", ["dark", "light"])
async def test_control_page_is_accessible_and_installs_and_disables(tmp_path: Path, scheme: str) -> None:
    viewport = {"width": 320, "height": 640}
    async with emulator(tmp_path) as platform, chromium() as browser:
        url = platform.facts["control_url"]
        origin = url.removesuffix("/control")
        options = {"viewport": viewport, "color_scheme": scheme}
        async with faultless_page(browser, origin, **options) as page:
            await page.goto(url)
            violations = await accessibility_violations(page)
            width = await page.evaluate("document.documentElement.scrollWidth")
            await page.fill("input[name=redirect_uri]", REDIRECT_URI)
            await page.get_by_role("button", name="Install", exact=True).click()
            await page.get_by_role("link", name="Continue to the integration").wait_for()
            await page.get_by_role("button", name="Disable").last.click()
            await page.get_by_role("button", name="Transfer ownership").wait_for()

        states = [each.state for each in platform.state.installations.by_id.values()]

    assert violations == []
    assert width <= viewport["width"]
    assert states == ["active", "disabled"]
