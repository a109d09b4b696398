"""Tests of the control API and the control page: clock, switches, seeds, forms, refusals and limits."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from tests.support.cases import each_case
from tests.support.emulator import REDIRECT_URI, RunningEmulator, emulator
from tests.support.webhook_receiver import webhook_receiver
from trace_drain_testing.emulator import deployments, installations, webhooks
from trace_drain_testing.emulator import platform as platforms
from trace_drain_testing.emulator.clock import STARTED_AT_S, Clock
from trace_drain_testing.emulator.platform import FAULTS, UNSTATED
from trace_drain_testing.emulator.webhooks import TYPES

DAY_S = 86_400


async def post(platform: RunningEmulator, path: str, **options: Any) -> aiohttp.ClientResponse:  # noqa: ANN401 - aiohttp's
    url = platform.facts["control_url"] + path
    async with platform.session.post(url, allow_redirects=False, **options) as answer:
        await answer.read()
        return answer


async def refusal(platform: RunningEmulator, path: str, body: object) -> tuple[int, str]:
    """Post to the control API, which refuses it. Return the status and the message."""
    async with platform.session.post(platform.facts["control_url"] + path, json=body) as answer:
        return answer.status, (await answer.json())["error"]["message"]


async def test_manual_clock_moves_only_by_the_control_api(platform: RunningEmulator) -> None:
    before = await platform.control("GET", "/state")
    again = await platform.control("GET", "/state")
    moved = await platform.control("POST", "/clock", {"advance_s": 60})

    assert before["now"] == again["now"] == STARTED_AT_S
    assert moved["now"] == STARTED_AT_S + 60


async def test_json_with_the_content_type_of_a_form_is_accepted(platform: RunningEmulator) -> None:
    url = f"{platform.facts['control_url']}/projects"
    headers = {"Content-Type": "application/x-www-form-urlencoded"}
    async with platform.session.post(url, data=b'{"id": "prj_9", "name": "Nine"}', headers=headers) as answer:
        assert answer.status == 200
        assert (await answer.json())["name"] == "Nine"


def test_real_clock_moves_by_itself_and_by_the_control_api() -> None:
    running_s = iter([5.0, 5.0, 7.5, 7.5])
    clock = Clock(1_000, is_manual=False, running_s=lambda: next(running_s))

    assert (clock.now_s(), clock.now_s()) == (1_000, 1_002.5)
    clock.advance(60)
    assert clock.now_s() == 1_062.5


async def test_same_seed_generates_the_same_ids(tmp_path: Path) -> None:
    facts = []
    for seed, name in ((1, "a"), (1, "b"), (2, "c")):
        async with emulator(tmp_path / name, seed=seed) as platform:
            made = await platform.install()
            facts.append([platform.facts["token"], platform.facts["team_id"], made["id"], made["code"]])

    assert facts[0] == facts[1]
    assert not set(facts[0]) & set(facts[2])


@each_case(
    ("path", "body", "message"),
    [
        ("/unstated", {"P99": "x"}, "no such switch"),
        ("/unstated", {"P25": "xml"}, "no such shape; expected one of json-lines"),
        ("/unstated", {"P25": 1}, "not valid"),
        ("/faults", {"name": "flood"}, "no such fault"),
        ("/faults", {"name": "api-500", "count": -1}, "not valid"),
        ("/faults", {"name": "api-500", "until": 3}, "not valid"),
        ("/clock", {"advance_s": -1}, "not valid"),
        ("/clock", {}, "not valid"),
        ("/projects", {"name": ""}, "name is empty"),
        ("/projects", {"name": "x", "id": "dpl_1"}, "id is not valid"),
        ("/projects", {"name": "x", "id": "prj_<b>"}, "id is not valid"),
        ("/deployments", {"project": "prj_missing"}, "no such project"),
        ("/installations", {"redirect_uri": "ftp://x"}, "redirect_uri is not valid"),
        ("/installations", {"redirect_uri": REDIRECT_URI, "webhook_url": "x"}, "webhook_url is not valid"),
        ("/installations/icfg_missing/disable", {}, "no such installation"),
        ("/webhooks", {"type": "project.created", "url": "file:///etc/hosts"}, "url is not valid"),
    ],
)
async def test_unknown_switch_or_invalid_value_is_refused(
    platform: RunningEmulator, path: str, body: object, message: str
) -> None:
    status, reason = await refusal(platform, path, body)

    assert status in {400, 404}
    assert message in reason


async def test_refused_switch_changes_no_other_switch(platform: RunningEmulator) -> None:
    await post(platform, "/unstated", json={"P25": "array", "P99": "x"})

    assert (await platform.control("GET", "/state"))["unstated"]["P25"] == "json-lines"


@each_case(("rule", "shape"), [(rule, each) for rule, names in UNSTATED.items() for each in names])
async def test_every_shape_can_be_switched_on(platform: RunningEmulator, rule: str, shape: str) -> None:
    assert (await platform.control("POST", "/unstated", {rule: shape}))[rule] == shape


async def test_every_fault_can_be_injected_and_cancelled(platform: RunningEmulator) -> None:
    for name in set(FAULTS) - {"ownership-lost"}:
        assert (await platform.control("POST", "/faults", {"name": name}))["due"] == {name: 1}
        assert (await platform.control("POST", "/faults", {"name": name, "count": 0}))["due"] == {}


async def test_used_ids_and_hosts_are_refused(platform: RunningEmulator) -> None:
    project = next(iter(platform.state.projects))
    await platform.control("POST", "/deployments", {"project": project, "id": "dpl_1", "url": "a.example"})

    for body in ({"id": "dpl_1"}, {"url": "a.example"}):
        assert (await post(platform, "/deployments", json={"project": project, **body})).status == 409


async def test_removing_a_project_removes_its_deployments(platform: RunningEmulator) -> None:
    project = next(iter(platform.state.projects))
    await platform.control("DELETE", f"/projects/{project}")

    state = await platform.control("GET", "/state")
    assert project not in {each["id"] for each in state["projects"]}
    assert project not in {each["project"] for each in state["deployments"]}


async def test_overdue_installation_is_deleted_without_the_control_api(platform: RunningEmulator) -> None:
    async with webhook_receiver() as receiver:
        made = await platform.install(webhook_url=receiver.url)
        await platform.control("POST", f"/installations/{made['id']}/disable")
        platform.state.clock.advance(30 * DAY_S)
        await platform.call("GET", "/v3/deployments/dpl_1/events")
        while not receiver.requests:
            await platform.session.get(platform.facts["control_url"] + "/style.css")

    assert receiver.types == ["integration-configuration.removed"]


async def test_page_of_another_site_cannot_use_the_control_api(platform: RunningEmulator) -> None:
    headers = {"Origin": "https://elsewhere.example"}

    refused = await post(platform, "/clock", data={"advance_s": "5"}, headers=headers)
    rebound = await post(platform, "/clock", data={"advance_s": "5"}, headers={"Host": "a.example"})

    assert (refused.status, rebound.status) == (403, 403)
    assert platform.state.clock.now_s() == STARTED_AT_S


async def page_of(platform: RunningEmulator) -> tuple[str, str]:
    """Return the page, and its policy."""
    async with platform.session.get(platform.facts["control_url"]) as answer:
        assert answer.status == 200
        return await answer.text(), answer.headers["Content-Security-Policy"]


async def test_control_page_has_no_script_and_escapes_text(platform: RunningEmulator) -> None:
    await platform.control("POST", "/projects", {"name": "<script>alert(1)</script>"})

    page, policy = await page_of(platform)

    assert "default-src 'none'" in policy
    assert "<script" not in page
    assert "&lt;script&gt;" in page


async def test_every_form_of_the_control_page_has_an_endpoint(platform: RunningEmulator) -> None:
    await platform.control("POST", "/faults", {"name": "ownership-lost"})
    await platform.install()
    page, _ = await page_of(platform)
    base = platform.facts["control_url"].removesuffix("/control")

    actions = set(re.findall(r'<form method="post" action="([^"]+)"', page))

    assert len(actions) >= 12
    for action in actions:
        # Refused because of the body, not because of the address.
        async with platform.session.post(base + action, json={"unknown": 1}) as answer:
            assert answer.status == 400, (action, await answer.text())


async def test_forms_install_deploy_disable_and_send_webhooks(platform: RunningEmulator) -> None:
    async with webhook_receiver() as receiver:
        install = {
            "redirect_uri": REDIRECT_URI,
            "webhook_url": receiver.url,
            "scopes": "deployment, project:read",
        }
        installed = await post(platform, "/installations", data=install)
        await post(platform, "/projects", data={"name": "by form"})
        await post(platform, "/deployments", data={"project": next(iter(platform.state.projects))})
        deployment = list(platform.state.deployments)[-1]
        await post(platform, f"/deployments/{deployment}/events", data={"type": "stderr", "text": "failed"})
        await post(platform, f"/deployments/{deployment}/state", data={"state": "ERROR"})
        await post(platform, "/webhooks", data={"type": TYPES[1], "url": ""})
        await post(platform, "/clock", data={"advance_s": "1.5"})
        await post(platform, "/faults", data={"name": "api-500", "count": "3"})
        (*_, newest) = platform.state.installations.by_id
        page, _ = await page_of(platform)
        await post(platform, f"/installations/{newest}/disable", data={})

    assert (installed.status, installed.headers["Location"]) == (303, "/control")
    assert receiver.types == ["project.created", "project.removed"]
    state = await platform.control("GET", "/state")
    assert state["installations"][-1]["state"] == "disabled"
    assert state["installations"][-1]["scopes"] == ["deployment:write", "project:read"]
    assert [event["type"] for event in platform.state.deployments[deployment].events] == [
        "stderr",
        "deployment-state",
    ]
    assert (state["now"], state["faults"]) == (STARTED_AT_S + 1.5, {"api-500": 3})
    assert f'<a href="{REDIRECT_URI}?code=' in page


async def test_deployment_has_a_maximum_of_events(
    platform: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "EVENTS_MAX", 2)
    deployment = await platform.deployment()
    path = f"/deployments/{deployment}/events"
    await platform.control("POST", path, [{}, {}])

    assert await refusal(platform, path, [{}]) == (400, "the deployment would have over 2 events")


async def test_projects_deployments_and_installations_have_a_maximum(
    platform: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(platforms, "OBJECTS_MAX", 1)
    project = next(iter(platform.state.projects))

    for path, body in (
        ("/projects", {"name": "x"}),
        ("/deployments", {"project": project}),
        ("/installations", {"redirect_uri": REDIRECT_URI}),
    ):
        assert (await refusal(platform, path, body))[0] == 409


async def test_oldest_webhooks_and_emails_are_dropped(
    platform: RunningEmulator, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(webhooks, "KEPT_MAX", 4)
    for number in range(5):
        body = {"type": f"type.{number}", "url": "http://127.0.0.1:1/"}
        await platform.control("POST", "/webhooks", body)
    installation = next(iter(platform.state.installations.by_id))
    for _ in range(installations.EMAILS_MAX + 1):
        for action in ("disable", "transfer"):
            target = platform.state.installations.find(installation)
            getattr(platform.state.installations, action)(target)

    state = await platform.control("GET", "/state")
    assert [each["type"] for each in state["webhooks"]] == ["type.2", "type.3", "type.4"]
    assert len(state["emails"]) == installations.EMAILS_MAX
