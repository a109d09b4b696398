"""A drain with a signature is connected by following the page Connect alone."""

from __future__ import annotations

import hmac
import html
import json
import os
import re
import secrets
import signal
import time
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.receiver_process import PATIENCE_S, POLL_S, ReceiverProcess

KNOWN = '[[drain]]\nname = "known"\npath = "/known"\ntoken = "canary-known"\n'


def body_of(project: str) -> bytes:
    span = {
        "traceId": secrets.token_hex(16),
        "spanId": secrets.token_hex(8),
        "name": "GET /",
        "kind": 2,
        "startTimeUnixNano": str(time.time_ns()),
        "endTimeUnixNano": str(time.time_ns() + 1_000_000),
    }
    attribute = {"key": "platform.projectId", "value": {"stringValue": project}}
    resource = {"attributes": [attribute]}
    return json.dumps({"resourceSpans": [{"resource": resource, "scopeSpans": [{"spans": [span]}]}]}).encode()


def verdict_after(receiver: ReceiverProcess, state: str) -> dict[str, Any]:
    """Wait until the live check list has this state, and return its verdict."""
    deadline_s = time.monotonic() + PATIENCE_S
    answer: dict[str, Any] = {}
    while time.monotonic() < deadline_s:
        answer = receiver.get("/connect/checks?new=production").json()
        if answer["verdict"]["state"] == state:
            break
        time.sleep(POLL_S)
    verdict: dict[str, Any] = answer["verdict"]
    return verdict


def wait_until_configured(receiver: ReceiverProcess) -> None:
    deadline_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline_s:
        if receiver.get("/connect/checks?new=production").json()["checks"][0]["state"] == "done":
            return
        time.sleep(POLL_S)
    raise AssertionError(receiver.log())


@pytest.mark.parametrize(
    ("before", "names"),
    [
        pytest.param("# nothing set\nlog_format = 'json'\n", ["default", "production"], id="default drain"),
        pytest.param(KNOWN, ["known", "production"], id="beside another drain"),
    ],
)
def test_a_signed_drain_is_connected_by_following_the_page_alone(
    before: str, names: list[str], tmp_path: Path
) -> None:
    with ReceiverProcess(tmp_path, config=before) as receiver:
        page = receiver.get("/connect?new=production&signature=sha256&header=x-sig").body.decode()
        assert verdict_after(receiver, "waiting")["name"] == "In the settings"

        # What the page says, in its order.
        [file, *_] = re.findall(r'<code class="copy">(/[^<]+\.toml)</code>', page)
        [toml] = re.findall(r'<code class="copy" id="toml">([^<]*)</code>', page)
        [pid] = re.findall(r"kill -HUP (\d+)", page)
        [url] = re.findall(r'<code class="copy" id="new-url">([^<]+)</code>', page)
        # What a browser without scripts follows, before and after the reload.
        [again] = re.findall(r'<a href="(/connect\?wait=[^"]+)">Check again', page)
        early = receiver.get(again).body.decode()
        with Path(file).open("a") as settings:
            settings.write(html.unescape(toml))
        os.kill(int(pid), signal.SIGHUP)
        wait_until_configured(receiver)
        drain = tomllib.loads(html.unescape(toml))["drain"][-1]
        body = body_of("prj_1")
        digest = hmac.new(drain["signature_secret"].encode(), body, "sha256").hexdigest()
        bearer = {"authorization": f"Bearer {drain['token']}"}

        refused = receiver.post(body, path=drain["path"], **bearer, x_sig="0" * 64)
        failed = verdict_after(receiver, "failed")
        answer = receiver.post(body, path=drain["path"], **bearer, x_sig=digest)
        connected = verdict_after(receiver, "done")

        refusals = receiver.get("/api/v1/refusals").json()
        log, shown = receiver.log(), receiver.get(again).body.decode()

    assert "paste the settings and reload" in early
    assert "signature_secret" not in early
    assert "The drain is connected." in shown
    assert url.endswith(drain["path"])
    assert (refused.status, answer.status) == (403, 200)
    assert "signature does not match" in failed["text"]
    assert connected["text"] == "The drain is connected."
    assert [each["name"] for each in tomllib.loads(Path(file).read_text())["drain"]] == names
    assert (refusals["newest"][0]["drain"], refusals["newest"][0]["status"]) == ("production", 403)
    assert refusals["hours"][0]["count"] == 1
    assert "does not match" in shown
    for secret in (drain["token"], drain["signature_secret"]):
        assert secret not in log + shown + json.dumps(refusals)
