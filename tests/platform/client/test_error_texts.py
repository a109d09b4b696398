"""Texts of errors: advice that fits the answer, and the fault of an argument."""

from __future__ import annotations

import pytest

from receiver.platform.client import errors
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.events import EventQuery, events
from tests.support.platform_server import Answer, PlatformServer, platform_server


async def read_events(server: PlatformServer, deployment: str) -> None:
    async with PlatformClient(server.url, "token", team="team_1") as client:
        await events(client, deployment, EventQuery())


@pytest.mark.parametrize(
    ("status", "text"),
    [(402, "plan or the payments"), (410, "does not exist any more"), (409, "the server gave no reason")],
)
async def test_error_without_a_body_does_not_refer_to_its_message(status: int, text: str) -> None:
    async with platform_server(Answer(b"", status)) as server:
        with pytest.raises(errors.Rejected, match=text) as caught:
            await read_events(server, "dpl_1")

    assert "message of the server" not in str(caught.value)


async def test_address_in_place_of_an_id_is_explained() -> None:
    async with platform_server(Answer([])) as server:
        with pytest.raises(errors.InvalidCall, match=r"expected shop\.example\.com, not https://"):
            await read_events(server, "https://shop.example.com/")

    assert not server.received
