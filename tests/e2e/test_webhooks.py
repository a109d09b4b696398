"""Webhooks of a real receiver: stored before the 200 and applied, though its processes are killed."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from tests.e2e.receiver_process import ReceiverProcess, Reply
from tests.support.webhooks import PATH, SECRET, document, signature

CONFIG = f'[platform.webhook]\npath = "{PATH}"\nsecret_file = "secret"\n'


def post(receiver: ReceiverProcess, body: bytes) -> Reply:
    return receiver.post(body, path=PATH, **{"x-platform-signature": signature(body)})


def removed_projects(receiver: ReceiverProcess) -> list[dict[str, Any]]:
    return [json.loads(line) for line in receiver.get("/api/v1/platform/projects").body.splitlines()][:-1]


def removed_once_applied(receiver: ReceiverProcess, count: int) -> list[dict[str, Any]]:
    receiver.wait_until(lambda: len(removed_projects(receiver)) >= count, "the webhooks are not applied")
    return removed_projects(receiver)


def test_p50_webhooks_are_applied_though_every_process_is_killed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    now_ms = time.time_ns() // 1_000_000
    with ReceiverProcess(tmp_path, config=CONFIG) as receiver:
        created = document(
            "wh_1", payload={"project": {"id": "prj_1", "name": "shop"}}, created_at_ms=now_ms - 9
        )
        removed = document("wh_2", "project.removed", {"project": {"id": "prj_1"}}, now_ms - 5)
        # The later event first.
        assert [post(receiver, body).status for body in (removed, created, removed)] == [200, 200, 200]
        assert [project["name"] for project in removed_once_applied(receiver, 1)] == ["shop"]

        receiver.kill(receiver.state()["pids"]["store"])
        another = document("wh_3", "project.removed", {"project": {"id": "prj_2"}}, now_ms)
        assert post(receiver, another).status == 200
        for pid in receiver.state()["pids"]["intake"]:
            receiver.kill(pid)
        receiver.kill()
        receiver.start()

        assert [project["id"] for project in removed_once_applied(receiver, 2)] == ["prj_1", "prj_2"]
        assert post(receiver, another).status == 200
        assert receiver.post(created, path=PATH).status == 401
        assert "due for deletion from" in receiver.command("platform", "projects")
        assert receiver.command("platform", "keep-project", "prj_1") == "the spans of prj_1 are kept\n"
        listed = receiver.command("platform", "projects", "--format", "json")
        rows = [json.loads(line) for line in listed.splitlines()]
        assert [(row["id"], row["is_kept"]) for row in rows] == [("prj_2", False), ("prj_1", True)]
        assert receiver.run_command("platform", "keep-project", "prj_9").returncode == 1
        assert SECRET not in receiver.log()
