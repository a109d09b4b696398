"""Pages of a running receiver: they know what its intakes, its ledger and its store know."""

from __future__ import annotations

import json
from pathlib import Path

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import SPANS_PER_REQUEST, trace_body


def page(running: ReceiverProcess, path: str) -> str:
    reply = running.get(path)
    assert reply.status == 200
    return reply.body.decode()


def page_with(running: ReceiverProcess, path: str, text: str) -> str:
    """Return a page once it has a text: tables are created, and counters collected, within seconds."""
    running.wait_until(lambda: text in page(running, path), f"{path} does not contain '{text}'")
    return page(running, path)


def test_pages_follow_a_first_delivery_until_it_is_readable(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path) as running:
        before = json.loads(page(running, "/connect/checks"))
        start = page_with(running, "/", "No span is stored yet.")
        assert running.post(b"no JSON").status == 400
        refused = json.loads(page_with(running, "/connect/checks", "1 request refused with 400"))
        assert running.post(trace_body(1)).status == 200
        running.wait_until_stored()
        listed = running.command("spans", "--since", "1h", "--format", "jsonl")
        checks = json.loads(page_with(running, "/connect/checks", "No span names its project"))["checks"]
        receiver, tail = page(running, "/receiver"), page(running, "/tail")

    assert (before["verdict"]["name"], before["verdict"]["state"]) == ("Reached", "waiting")
    assert "What to enter at the sender" in start
    assert (refused["verdict"]["name"], refused["verdict"]["state"]) == ("Decoded", "failed")
    assert {check["name"] for check in checks if check["state"] != "done"} == {"Project found"}
    assert "every received span has an outcome" in receiver
    assert str(tmp_path) in receiver
    assert tail.count(">span 0<") == 1
    assert listed.count('"SpanId"') == SPANS_PER_REQUEST
