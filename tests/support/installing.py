"""Steps of an installation in a browser, and what is stored after it."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from aiohttp import ClientResponse

from receiver.platform.installations.platform_records import open_records
from receiver.platform.installations.records import Installation
from receiver.settings import Settings, User
from tests.console.ui.test_pages import Document
from tests.support.access import ADMIN, Client, session
from tests.support.token_server import TOKEN

HTML = {"Accept": "text/html"}


def stored(directory: Path) -> list[Installation]:
    return open_records(Settings(data_dir=str(directory))).installations.all()


def token_of(directory: Path, name: str = "icfg_a1") -> str:
    return open_records(Settings(data_dir=str(directory))).installations.token(name)


async def begin(client: Client, user: User = ADMIN) -> str:
    """Begin an installation, and return its state."""
    answer = await client.get("/platform/install", headers=session(user), allow_redirects=False)
    assert answer.status == 303, await answer.text()
    return parse_qs(urlsplit(answer.headers["Location"]).query)["state"][0]


async def come_back(client: Client, user: User = ADMIN, /, **query: str) -> ClientResponse:
    """Follow the platform's redirect."""
    return await client.get(
        "/platform/installed", params=query, headers={**HTML, **session(user)}, allow_redirects=False
    )


async def shown(client: Client, url: str = "/platform", user: User = ADMIN) -> Document:
    answer = await client.get(url, headers={**HTML, **session(user)})
    assert answer.status == 200
    return Document(await answer.text())


async def refusal(answer: ClientResponse, status: int = 400) -> str:
    page = Document(await answer.text())
    assert answer.status == status, page.text
    assert "/platform" in page.links
    assert TOKEN not in page.text
    return page.text
