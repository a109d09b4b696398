"""Page of the platform: installations, scopes against those needed, days left, and missing settings."""

from __future__ import annotations

import time
from pathlib import Path

from receiver.platform.installations.installing import NEEDED
from receiver.platform.installations.platform_records import open_records
from receiver.settings import Settings
from tests.support.access import ADMIN, receiver_with, session
from tests.support.cases import each_case
from tests.support.installations import T0_S, TOKEN, installation
from tests.support.installing import HTML, refusal, shown
from tests.support.token_server import settings_of

PLATFORM = settings_of("https://api.platform.test")


@each_case(("name", "value"), [*((name, "") for name in NEEDED), ("install_url", "javascript:alert(1)")])
async def test_setting_that_is_missing_or_no_address_is_named(tmp_path: Path, name: str, value: str) -> None:
    settings = settings_of("https://api.platform.test", **{name: value})
    async with receiver_with(tmp_path, platform=settings) as client:
        page = await shown(client)
        begun = await client.get("/platform/install", headers={**HTML, **session(ADMIN)})
        text = await refusal(begun)

    assert f"platform.{name}" in page.text
    assert "/platform/install" not in page.links
    assert f"platform.{name}" in text


def add_installation(directory: Path, **fields: object) -> None:
    records = open_records(Settings(data_dir=str(directory)))
    records.installations.add(installation(**fields), TOKEN)


async def test_p33_granted_scopes_are_compared_with_those_needed(tmp_path: Path) -> None:
    add_installation(tmp_path, scopes=("deployment:read",))
    async with receiver_with(tmp_path, platform=PLATFORM) as client:
        page = await shown(client)

    assert "Deployment events deployment:read allowed" in " ".join(page.text.split())
    assert "blocked: project:write is not granted" in page.text
    assert "Add project:write to the integration on the platform" in page.text


async def test_p33_unknown_scopes_are_not_called_missing(tmp_path: Path) -> None:
    add_installation(tmp_path, scopes=None)
    async with receiver_with(tmp_path, platform=PLATFORM) as client:
        page = await shown(client)

    assert "not known: the platform has not listed them" in page.text
    assert "is not granted" not in page.text


async def test_p42_disabled_installation_shows_the_days_left(tmp_path: Path) -> None:
    add_installation(tmp_path, installed_at_s=None, changes=())
    records = open_records(Settings(data_dir=str(tmp_path)))
    records.installations.set_state("icfg_a1", "disabled", time.time() + 3_600 - 20 * 86_400)
    async with receiver_with(tmp_path, platform=PLATFORM) as client:
        page = await shown(client)

    assert "icfg_a1 on team team_1 is disabled" in page.text
    assert "The platform deletes it in 11 days" in page.text
    assert "blocked: the platform has disabled the installation" in page.text


async def test_p30_ended_installations_stay_listed(tmp_path: Path) -> None:
    add_installation(tmp_path)
    records = open_records(Settings(data_dir=str(tmp_path)))
    records.installations.set_state("icfg_a1", "removed", T0_S + 60)
    async with receiver_with(tmp_path, platform=PLATFORM) as client:
        page = await shown(client)

    assert "The integration is not installed" in page.text
    assert "Ended installations" in page.text
    assert "icfg_a1" in page.text
