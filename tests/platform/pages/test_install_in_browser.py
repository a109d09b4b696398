"""Installation in a browser, which does not send the session cookie with the redirect of another site."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import urlsplit

from aiohttp.test_utils import unused_port

from receiver.settings import Platform
from tests.support.access import ADMIN, receiver_with
from tests.support.browser import WAIT_MS, accessibility_violations, chromium, needs_chromium
from tests.support.emulator import emulator
from tests.support.installing import stored

pytestmark = needs_chromium


async def test_p31_installation_returns_from_another_site_to_the_page(tmp_path: Path) -> None:
    # `localhost` and 127.0.0.1, where the emulator is, are different sites.
    port = unused_port()
    origin = f"http://localhost:{port}"
    directory = tmp_path / "receiver"
    directory.mkdir()
    async with emulator(tmp_path) as emulated, chromium() as browser:
        settings = Platform(
            base_url=emulated.facts["base_url"],
            client_id=emulated.facts["client_id"],
            client_secret=emulated.facts["client_secret"],
            install_url=f"{emulated.facts['install_url']}?next=https://platform.test/done",
            redirect_url=f"{origin}/platform/installed",
        )
        async with receiver_with(directory, platform=settings, port=port):
            page = await browser.new_page()
            page.set_default_timeout(WAIT_MS)
            await page.goto(f"{origin}/platform")
            await page.fill("#token", ADMIN.token)
            await page.click("button")
            await page.click("text=Install the integration")
            await page.wait_for_selector("text=The integration is installed as icfg_")

            (added,) = stored(directory)
            url, text = page.url, await page.inner_text("main")
            assert urlsplit(url)._replace(query="").geturl() == f"{origin}/platform"
            assert set(urlsplit(url).query.split("=")) & {"code", "state"} == set()
            assert added.id in text
            assert await page.get_attribute("a[rel=noreferrer]", "href") == "https://platform.test/done"
            assert await accessibility_violations(page) == []

            await page.go_back()
            await page.wait_for_load_state()

            assert len(stored(directory)) == 1
