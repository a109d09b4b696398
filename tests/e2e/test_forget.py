"""`trace-drain forget` on running receivers: under load, killed meanwhile, and restored from a backup."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from receiver.deletion.rows import Chosen, Deletion
from tests.e2e.receiver_process import ReceiverProcess, environment
from tests.faults.bodies import SPANS, trace_body
from tests.faults.load import load

CONFIG = """
[[drain]]
name = "default"
[[drain]]
name = "forgotten"
path = "/forgotten"
"""
DELIVERIES = 20
KILLS = 6
FIRST = 1_000_000
"""Number of the first trace that is deleted."""


def send_project(running: ReceiverProcess, first: int) -> int:
    """Send deliveries of the project that is deleted. Returns the number of spans."""
    attribute = b'{"key":"platform.projectId","value":{"stringValue":"prj_forgotten"}}'
    resource = b'{"resource":{"attributes":[%s]},"scopeSpans"' % attribute
    for trace in range(first, first + DELIVERIES):
        body = trace_body(trace).replace(b'{"scopeSpans"', resource, 1)
        assert running.post(body, path="/forgotten").status == 200
    return DELIVERIES * SPANS


def ledger_of(running: ReceiverProcess) -> dict[str, int]:
    """Return the counts of the deleted project; the ledger must agree with the table."""
    done = running.run_command("ledger", "--project", "prj_forgotten", "--verify", "--format", "json")
    lines = json.loads(done.stdout)["lines"]
    assert {line["verdict"] for line in lines} == {"same"}, done.stdout
    return {name: sum(line[name] for line in lines) for name in ("received", "stored", "deleted")}


def is_deleting(running: ReceiverProcess) -> bool:
    return (running.data / "deletion.json").exists()


def kill_while_deleting(running: ReceiverProcess) -> None:
    """Kill the store process as soon as a deletion has begun, or has ended already."""
    command = [sys.executable, "-m", "receiver.cli", "forget", "--project", "prj_forgotten", "--yes"]
    forget = subprocess.Popen(
        [*command, "--data", str(running.data)], stderr=subprocess.DEVNULL, env=environment()
    )
    while not is_deleting(running) and forget.poll() is None:
        pass
    running.kill(running.state()["pids"]["store"])
    forget.wait()


@pytest.mark.timeout(240)
def test_spans_of_a_project_are_deleted_while_deliveries_go_on(tmp_path: Path) -> None:
    with ReceiverProcess(tmp_path, config=CONFIG) as running:
        sent = send_project(running, FIRST)
        with load(running) as senders:
            senders.wait_for(DELIVERIES)
            running.wait_until_readable(FIRST + DELIVERIES - 1)
            counted = running.command("forget", "--project", "prj_forgotten")
            deleted = running.command("forget", "--project", "prj_forgotten", "--yes")
            senders.wait_for(DELIVERIES)
        running.wait_until_stored()

        assert f"{sent} spans of 1 day would be deleted; --yes deletes them" in counted
        assert f"{sent} spans of 1 day are deleted" in deleted
        assert ledger_of(running) == {"received": sent, "stored": 0, "deleted": sent}
        assert not running.is_readable(FIRST)
        assert "no span of this project or trace is stored" in running.command(
            "forget", "--project", "prj_forgotten"
        )


@pytest.mark.fault("the store process is killed while spans are deleted")
@pytest.mark.timeout(240)
def test_deletion_is_finished_after_a_kill_and_no_other_span_is_lost(tmp_path: Path) -> None:
    sent = 0
    with ReceiverProcess(tmp_path, config=CONFIG) as running:
        with load(running) as senders:
            for kill in range(KILLS):
                sent += send_project(running, FIRST + kill * DELIVERIES)
                running.wait_until_readable(FIRST + kill * DELIVERIES + DELIVERIES - 1)
                kill_while_deleting(running)
                senders.wait_for(DELIVERIES)
        running.wait_until_stored()
        running.wait_until(lambda: not is_deleting(running), "the deletion is not finished")
        running.command("forget", "--project", "prj_forgotten", "--yes")

        assert ledger_of(running) == {"received": sent, "stored": 0, "deleted": sent}
        assert not running.is_readable(FIRST)


@pytest.mark.fault("a backup of a data directory with a deletion that is not finished")
@pytest.mark.timeout(240)
def test_restored_receiver_finishes_the_deletion_of_the_backup(tmp_path: Path) -> None:
    data, other, directory = tmp_path / "data", tmp_path / "other", tmp_path / "backup"
    data.mkdir()
    other.mkdir()
    with ReceiverProcess(data, config=CONFIG) as running:
        sent = send_project(running, FIRST)
        running.wait_until_stored()
        rows = running.spans()
    epochs = {int(row["SegmentEpoch"]): 1_000 for row in rows}
    (day,) = {row["Timestamp"][:10].replace("-", "") for row in rows}
    # As after a kill at the first step of the deletion.
    deletion = Deletion(7, day, (Chosen(project="prj_forgotten"),), epochs, ())
    (data / "deletion.json").write_bytes(msgspec.json.encode(deletion))
    running.command("store", "backup", str(directory))
    restored = ReceiverProcess(other, config=CONFIG)
    restored.command("store", "restore", str(directory))

    with restored:
        restored.wait_until(lambda: not is_deleting(restored), "the deletion is not finished")

        assert ledger_of(restored) == {"received": sent, "stored": 0, "deleted": sent}
        assert not restored.is_readable(FIRST)
