"""Installation of the integration on the emulated platform, in every form that the platform leaves open."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from aiohttp import ClientResponse

from receiver.settings import Platform
from tests.support.access import ADMIN, Client, receiver_with, session
from tests.support.cases import each_case
from tests.support.emulator import RunningEmulator, emulator
from tests.support.installing import HTML, refusal, stored, token_of
from trace_drain_testing.emulator.installations import Installation
from trace_drain_testing.emulator.switches import UNSTATED

REDIRECT_URL = "http://receiver.test/platform/installed"


@pytest.fixture
async def emulated(tmp_path: Path) -> AsyncIterator[RunningEmulator]:
    async with emulator(tmp_path) as running:
        yield running


@pytest.fixture
async def client(emulated: RunningEmulator, tmp_path: Path) -> AsyncIterator[Client]:
    facts = emulated.facts
    settings = Platform(
        base_url=facts["base_url"],
        client_id=facts["client_id"],
        client_secret=facts["client_secret"],
        install_url=f"{facts['install_url']}?scopes=deployment:read",
        redirect_url=REDIRECT_URL,
    )
    async with receiver_with(tmp_path / "receiver", platform=settings) as client:
        yield client


async def confirm(client: Client, emulated: RunningEmulator) -> str:
    """Begin an installation and confirm it on the platform. Return the path of the redirect back."""
    begun = await client.get("/platform/install", headers=session(ADMIN), allow_redirects=False)
    async with emulated.session.get(begun.headers["Location"], allow_redirects=False) as confirmed:
        back = confirmed.headers["Location"]
    assert back.startswith(REDIRECT_URL)
    return f"/platform/installed?{urlsplit(back).query}"


def made_by_us(emulated: RunningEmulator) -> Installation:
    """Return the newest installation on the platform; the emulator starts with another."""
    newest = list(emulated.state.installations.by_id.values())[-1]
    assert newest.code.redirect_uri == REDIRECT_URL
    return newest


async def follow(client: Client, path: str) -> ClientResponse:
    return await client.get(path, headers={**HTML, **session(ADMIN)}, allow_redirects=False)


@each_case("of_answer", UNSTATED["P32"])
@each_case("of_redirect", UNSTATED["P31"])
async def test_p31_integration_is_installed_with_every_form_of_redirect_and_token(
    client: Client, emulated: RunningEmulator, tmp_path: Path, of_redirect: str, of_answer: str
) -> None:
    before = {each.id for each in stored(tmp_path / "receiver")}
    await emulated.control("POST", "/unstated", {"P31": of_redirect, "P32": of_answer})

    answer = await follow(client, await confirm(client, emulated))

    known = made_by_us(emulated)
    (added,) = [each for each in stored(tmp_path / "receiver") if each.id not in before]
    assert answer.headers["Location"].startswith("/platform?result=")
    assert added.team_id == emulated.facts["team_id"]
    assert token_of(tmp_path / "receiver", added.id) == known.token
    is_named = of_answer != "minimal" or of_redirect == "common"
    assert added.id == known.id if is_named else added.id.startswith("unnamed-")


@each_case("shape", UNSTATED["P32-errors"])
async def test_p31_code_that_expired_on_the_platform_is_explained(
    client: Client, emulated: RunningEmulator, tmp_path: Path, shape: str
) -> None:
    await emulated.control("POST", "/unstated", {"P32-errors": shape})
    path = await confirm(client, emulated)
    await emulated.control("POST", "/clock", {"advance_s": 31 * 60})

    text = await refusal(await follow(client, path), 502)

    assert "The platform gave no token" in text
    assert "begin again on the page Platform" in text
    assert stored(tmp_path / "receiver") == []
