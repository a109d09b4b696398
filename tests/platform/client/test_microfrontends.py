"""Update of a microfrontends group."""

from __future__ import annotations

from typing import Any

import pytest

from receiver.platform.client import errors
from receiver.platform.client.connection import PlatformClient
from receiver.platform.client.microfrontends import update_group
from tests.support.platform_server import Answer, PlatformServer, platform_server

GROUP = {"updatedMicrofrontendsGroup": {"id": "mfe_1", "name": "Shop", "slug": "shop", "new": {"a": 1}}}


def client_of(server: PlatformServer) -> PlatformClient:
    return PlatformClient(server.url, "token", team="team_1", timeout_s=5.0)


async def test_p10_update_of_a_group_sends_the_given_fields() -> None:
    async with platform_server(Answer(GROUP)) as server, client_of(server) as client:
        group, fields = await update_group(client, "mfe_1", name="Shop", fallback_environment="SAME_ENV")
        await update_group(client, "mfe_1", name="Shop")
        with pytest.raises(errors.InvalidCall, match="nothing to change"):
            await update_group(client, "mfe_1")

    first, second = server.received
    assert (first.method, first.path) == ("PATCH", "/v1/teams/team_1/microfrontends/mfe_1")
    assert first.headers["Content-Type"] == "application/json"
    assert first.body == b'{"name":"Shop","fallbackEnvironment":"SAME_ENV"}'
    assert second.body == b'{"name":"Shop"}'
    assert (group.id, group.slug, group.fallback_environment) == ("mfe_1", "shop", None)
    assert fields["new"] == {"a": 1}


@pytest.mark.parametrize(
    "body", [[], {}, {"updatedMicrofrontendsGroup": {}}, {"updatedMicrofrontendsGroup": 1}]
)
async def test_p11_answer_without_the_group_is_an_error(body: Any) -> None:  # noqa: ANN401 - any JSON
    async with platform_server(Answer(body)) as server, client_of(server) as client:
        with pytest.raises(errors.WrongShape):
            await update_group(client, "mfe_1", name="Shop")
