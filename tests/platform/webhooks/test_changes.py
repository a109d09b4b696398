"""Tests of what webhooks change: each type, unstated forms of payloads, any order, more than once."""

from __future__ import annotations

import errno
import json
from itertools import permutations
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

from receiver.platform.installations import projects as projects_module
from receiver.platform.installations.platform_records import PlatformRecords, records_in
from receiver.platform.installations.projects import Deployments
from receiver.platform.webhooks.changes import Applier, apply
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.webhook import FUTURE_MS_MAX, Webhook, parse
from tests.support.cases import each_case
from tests.support.installations import TOKEN, installation
from tests.support.memory_disk import MemoryDisk
from tests.support.webhooks import NOW_MS, SETTINGS, document

CREATED, REMOVED = "project.created", "project.removed"
ENDED = "integration-configuration.removed"
CONFIRMED = "integration-configuration.scope-change-confirmed"


def records_on(disk: MemoryDisk) -> PlatformRecords:
    return records_in(Path("/data/platform"), files=disk)


@pytest.fixture
def disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(Path("/data"))
    disk.sync_directory(Path("/"))
    return disk


def webhook(kind: str, payload: object, webhook_id: str = "wh_1", created_at_ms: int = NOW_MS) -> Webhook:
    return parse(document(webhook_id, kind, payload, created_at_ms), NOW_MS)


def apply_all(disk: MemoryDisk, *webhooks: Webhook) -> PlatformRecords:
    """Deliver one webhook after another, each to a process that starts and applies it."""
    for each in webhooks:
        inbox, records = Inbox(Path("/data"), disk), records_on(disk)
        inbox.keep(each, SETTINGS)
        Applier(inbox, records, lambda: NOW_MS / 1_000).apply_waiting()
    return records


@pytest.mark.parametrize(
    "payload",
    [
        {"deployment": {"id": "dpl_1"}, "project": {"id": "prj_1"}},
        {"deploymentId": "dpl_1", "projectId": "prj_1"},
        {"deployment": {"id": "dpl_1", "projectId": "prj_1"}},
    ],
)
def test_webhook_about_a_deployment_names_its_project(disk: MemoryDisk, payload: object) -> None:
    records = apply_all(disk, webhook("deployment.created", payload))

    assert records.deployments.project("dpl_1") == "prj_1"
    assert Deployments(Path("/data/platform"), disk).project("dpl_1") == "prj_1"


def test_deployment_has_the_project_of_its_newest_webhook_in_any_order(disk: MemoryDisk) -> None:
    webhooks = [
        webhook(
            "deployment.ready",
            {"deploymentId": "dpl_1", "projectId": project},
            webhook_id=f"wh_{number}",
            created_at_ms=NOW_MS + number * 10,
        )
        for number, project in enumerate(("prj_1", "prj_2", "prj_1"))
    ]
    for order in permutations(webhooks):
        records = records_in(Path(f"/data/{uuid4().hex}"), files=disk)
        for each in order:
            apply(each, records)
        assert records.deployments.project("dpl_1") == "prj_1"


@pytest.mark.parametrize("payload", [{"deploymentId": "dpl_1"}, {"id": "dpl_1", "projectId": "prj_1"}])
def test_webhook_without_a_deployment_or_a_project_assigns_nothing(disk: MemoryDisk, payload: object) -> None:
    records = records_on(disk)

    assert apply(webhook("deployment.created", payload), records) == "unknown"


def test_oldest_deployment_is_deleted_above_the_limit(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(projects_module, "DEPLOYMENTS_MAX", 2)
    deployments = Deployments(Path("/data/platform"), disk)
    for number in (2, 1, 3):
        deployments.assign(f"dpl_{number}", "prj_1", number)

    for known in (deployments, Deployments(Path("/data/platform"), disk)):
        assert [known.project(f"dpl_{number}") for number in (1, 2, 3)] == ["", "prj_1", "prj_1"]


def test_p50_project_removed_starts_a_clock_that_can_be_revoked(disk: MemoryDisk) -> None:
    removed = webhook(REMOVED, {"project": {"id": "prj_1"}})
    records = apply_all(disk, removed)
    project = records.projects.find("prj_1")
    assert project is not None
    assert project.is_removed
    assert project.removed_at_s == pytest.approx(NOW_MS / 1_000, abs=0.001)

    assert records.projects.revoke("prj_1")
    apply(removed, records)  # sent again after it was forgotten

    project = records.projects.find("prj_1")
    assert project is not None
    assert not project.is_removed


def test_p34_confirmed_scopes_replace_the_granted_ones(disk: MemoryDisk) -> None:
    records = records_on(disk)
    records.installations.add(installation("icfg_a", scopes=("project",)), TOKEN)

    listed = {"configuration": {"id": "icfg_a", "scopes": ["project", "deployment", 7]}}
    assert apply(webhook(CONFIRMED, listed), records) == "applied"

    assert [each.scopes for each in records.installations.all()] == [("deployment", "project")]


def test_p34_confirmation_without_a_list_unblocks_the_features(disk: MemoryDisk) -> None:
    records = records_on(disk)
    records.installations.add(installation("icfg_a", scopes=("project",)), TOKEN)

    assert apply(webhook(CONFIRMED, {"configuration": {"id": "icfg_a"}}), records) == "applied"

    assert [each.scopes for each in records.installations.all()] == [None]


EVENTS = (
    webhook(CREATED, {"project": {"id": "prj_1", "name": "first"}}, "wh_1", NOW_MS - 4_000),
    webhook(CREATED, {"project": {"id": "prj_1", "name": "second"}}, "wh_2", NOW_MS - 3_000),
    webhook(REMOVED, {"project": {"id": "prj_1"}}, "wh_3", NOW_MS - 2_000),
    webhook(CREATED, {"project": {"id": "prj_2", "name": "a"}}, "wh_4"),
    webhook(CREATED, {"project": {"id": "prj_2", "name": "b"}}, "wh_5"),
)


def test_p51_confirmations_in_any_order_leave_the_newest_scopes(disk: MemoryDisk) -> None:
    def confirmed(number: int, scope: str) -> Webhook:
        payload = {"configuration": {"id": "icfg_a", "scopes": [scope]}}
        return webhook(CONFIRMED, payload, f"wh_{number}", NOW_MS + number)

    for order in permutations((confirmed(1, "team"), confirmed(2, "user"), confirmed(3, "project"))):
        records = records_in(Path(f"/data/{uuid4().hex}"), files=disk)
        records.installations.add(installation("icfg_a"), TOKEN)

        for each in order:
            apply(each, records)

        assert [each.scopes for each in records.installations.all()] == [("project",)]


def test_p51_webhooks_in_any_order_and_twice_give_the_same_records(disk: MemoryDisk) -> None:
    results = set()
    for order in permutations(EVENTS):
        data = Path(f"/data/{uuid4().hex}")
        inbox, records = Inbox(data, disk), records_in(data / "platform", files=disk)
        applier = Applier(inbox, records, lambda: NOW_MS / 1_000)
        for each in (*order, *order):
            inbox.keep(each, SETTINGS)
            applier.apply_waiting()
        results.add(msgspec.json.encode(records.projects.all()))

    assert len(results) == 1
    first, second = json.loads(results.pop())
    assert (first["name"], first["removed_at_s"] > first["named_at_s"]) == ("second", True)
    assert second["name"] in {"a", "b"}


@pytest.mark.parametrize(
    "payload",
    [
        {"project": {"id": "prj_1", "name": "shop"}},
        {"projectId": "prj_1", "name": "shop"},
        {"project": "prj_1", "projectName": "shop"},
        {"id": "prj_1", "name": "shop", "team": {"id": "team_1"}},
    ],
)
def test_p50_p51_created_project_has_its_name_from_a_payload_of_any_form(
    disk: MemoryDisk, payload: object
) -> None:
    records = records_on(disk)

    assert apply(webhook(CREATED, payload), records) == "applied"
    for known in (records, records_on(disk)):
        assert [(project.id, project.name) for project in known.projects.all()] == [("prj_1", "shop")]


@pytest.mark.parametrize(
    "payload",
    [
        {"configuration": {"id": "icfg_a"}},
        {"configurationId": "icfg_a"},
        {"configuration": "icfg_a", "user": {"id": "icfg_of_nothing"}},
        {"integration": {"of": [{"what": "icfg_a"}, "icfg_a"]}},
    ],
)
def test_p51_installation_is_found_by_the_stated_form_of_its_id(disk: MemoryDisk, payload: object) -> None:
    records = records_on(disk)
    records.installations.add(installation("icfg_a"), TOKEN)

    assert apply(webhook(ENDED, payload), records) == "applied"
    assert [(each.id, each.state) for each in records.installations.all()] == [("icfg_a", "removed")]
    assert records.installations.token("icfg_a") == ""


@pytest.mark.parametrize(
    ("kind", "payload"),
    [
        ("project.renamed", {"project": {"id": "prj_1"}}),
        ("", {"project": {"id": "prj_1"}}),
        (CREATED, {"project": {"name": "shop"}}),
        (REMOVED, {"project": {"id": 7}}),
        (REMOVED, ["prj_1"]),
        (ENDED, {"configuration": {"id": "cfg_1"}}),
        (ENDED, {"all": ["icfg_a", "icfg_b"]}),
        (CONFIRMED, {}),
    ],
)
def test_webhook_that_names_no_known_object_is_kept_as_unknown(
    disk: MemoryDisk, kind: str, payload: object
) -> None:
    records, inbox = records_on(disk), Inbox(Path("/data"), disk)
    sent = webhook(kind, payload)
    inbox.keep(sent, SETTINGS)
    applier = Applier(inbox, records, lambda: NOW_MS / 1_000)

    applier.apply_waiting()

    assert applier.outcomes == {"unknown": 1}
    assert [(note.outcome, bytes(note.body)) for note in inbox.notes()] == [("unknown", bytes(sent.body))]
    assert records.projects.all() == []
    assert records.installations.all() == []


def test_p51_id_of_a_webhook_without_a_payload_is_not_used_as_that_of_a_project(disk: MemoryDisk) -> None:
    flat = {"id": "evt_1", "type": REMOVED, "createdAt": NOW_MS}
    records = records_on(disk)

    assert apply(parse(json.dumps(flat).encode(), NOW_MS), records) == "unknown"
    assert apply(parse(json.dumps({**flat, "projectId": "prj_1"}).encode(), NOW_MS), records) == "applied"
    assert [project.id for project in records.projects.all() if project.is_removed] == ["prj_1"]


def test_webhook_whose_record_cannot_be_written_is_tried_again_and_delays_no_other(disk: MemoryDisk) -> None:
    records, inbox = records_on(disk), Inbox(Path("/data"), disk)
    for name in ("prj_1", "prj_2"):
        inbox.keep(webhook(CREATED, {"project": {"id": name}}, name), SETTINGS)
    applier = Applier(inbox, records, lambda: NOW_MS / 1_000)

    disk.fail("write", code=errno.ENOSPC)
    applier.apply_waiting()
    assert (len(records.projects.all()), applier.waiting_count) == (1, 1)
    applier.apply_waiting()

    assert [project.id for project in records.projects.all()] == ["prj_1", "prj_2"]
    assert (applier.waiting_count, inbox.waiting()) == (0, [])


@each_case(
    ("created_at", "expected_ms"),
    [
        (NOW_MS - 7, NOW_MS - 7),
        (NOW_MS - 7.0, NOW_MS - 7),
        ((NOW_MS - 7_000) // 1_000, NOW_MS - 7_000),
        ("2023-11-14T22:13:19Z", NOW_MS - 1_000),
        ("2023-11-14T22:13:19", NOW_MS - 1_000),
        (NOW_MS + FUTURE_MS_MAX, NOW_MS + FUTURE_MS_MAX),
        (NOW_MS + FUTURE_MS_MAX + 1, NOW_MS),
        (-1, NOW_MS),
        (0, NOW_MS),
        (10**400, NOW_MS),
        (True, NOW_MS),
        ("0001-01-01", NOW_MS),
        ("soon", NOW_MS),
        (None, NOW_MS),
        ([1], NOW_MS),
    ],
)
def test_p51_time_of_any_form_is_read_or_replaced_by_the_time_of_receipt(
    created_at: object, expected_ms: int
) -> None:
    body = json.dumps({"id": "a", "type": "b", "createdAt": created_at}).encode()

    assert parse(body, NOW_MS).created_at_ms == expected_ms
