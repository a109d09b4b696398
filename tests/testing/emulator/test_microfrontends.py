"""Tests of the update of a microfrontends group."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.cases import each_case
from tests.support.emulator import RunningEmulator


async def update(
    platform: RunningEmulator, body: object, *, query: str = "", group: str = "", token: str | None = None
) -> tuple[int, Any]:
    group = group or next(iter(platform.state.groups))
    path = f"/v1/teams/{platform.facts['team_id']}/microfrontends/{group}{query}"
    return await platform.call("PATCH", path, json=body, token=token)


@pytest.mark.parametrize("fallback", ["SAME_ENV", "PRODUCTION", "staging"])
async def test_p10_fallback_environment_is_same_production_or_a_custom_one(
    platform: RunningEmulator, fallback: str
) -> None:
    status, body = await update(platform, {"fallbackEnvironment": fallback}, query="?slug=acme")

    assert status == 200
    assert body["updatedMicrofrontendsGroup"]["fallbackEnvironment"] == fallback
    assert body["updatedMicrofrontendsGroup"]["name"] == "Web shop", "the name is optional"


async def test_p10_body_is_optional_and_json(platform: RunningEmulator) -> None:
    group = next(iter(platform.state.groups))
    path = f"/v1/teams/{platform.facts['team_id']}/microfrontends/{group}"

    status, body = await platform.call("PATCH", path)

    assert (status, body["updatedMicrofrontendsGroup"]["slug"]) == (200, "web-shop")
    assert (await platform.call("PATCH", path, data=b'{"name": "x"}'))[0] == 400


@each_case(("name", "slug"), [("Big Shop 2", "big-shop-2"), pytest.param("日本", "", id="no Latin letters")])
async def test_p11_new_name_changes_the_slug(platform: RunningEmulator, name: str, slug: str) -> None:
    status, body = await update(platform, {"name": name})

    group = body["updatedMicrofrontendsGroup"]
    assert (status, group["id"], group["name"]) == (200, next(iter(platform.state.groups)), name)
    assert group["slug"] == slug if slug else group["slug"]


async def test_p11_answer_may_have_the_id_only(platform: RunningEmulator) -> None:
    await platform.control("POST", "/unstated", {"P11": "minimal"})

    _, body = await update(platform, {"name": "x"})

    assert list(body["updatedMicrofrontendsGroup"]) == ["id"]


@each_case(
    "body",
    [
        {"name": 1},
        {"name": ""},
        {"name": "–"},
        {"name": None},
        {"fallbackEnvironment": "production"},
        {"fallbackEnvironment": ""},
        [],
    ],
)
async def test_p12_invalid_value_is_answered_400_and_changes_nothing(
    platform: RunningEmulator, body: object
) -> None:
    status, answer = await update(platform, body)

    assert (status, answer["error"]["code"]) == (400, "bad_request")
    (group,) = platform.state.groups.values()
    assert (group.name, group.fallback_environment) == ("Web shop", "SAME_ENV")


async def test_p12_other_failures_have_the_statuses_401_403_and_404(platform: RunningEmulator) -> None:
    made = await platform.install(scopes=["project:read"])
    _, reader = await platform.exchange(made["code"])

    assert (await update(platform, {}, token="unknown"))[0] == 401
    assert (await update(platform, {}, token=reader["access_token"]))[0] == 403
    assert (await update(platform, {}, query="?slug=other"))[0] == 403
    assert (await platform.call("PATCH", "/v1/teams/team_other/microfrontends/mfe_1"))[0] == 403
    assert (await update(platform, {}, group="mfe_missing"))[0] == 404
