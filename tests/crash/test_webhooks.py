"""Tests that kill a process, or fail its call, at every system call that keeps or applies a webhook."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.platform.installations.platform_records import records_in
from receiver.platform.webhooks.changes import Applier
from receiver.platform.webhooks.inbox import Inbox
from tests.crash.keep_webhooks import NAMES
from tests.support.strace import injection, needs_strace, run_child, was_injected
from tests.support.webhooks import NOW_MS

CALLS_MAX = 60
"""More calls of any kind than the child makes."""

pytestmark = needs_strace


def acknowledged_by_child(root: Path, call: str, fault: str) -> set[str]:
    """Run a child with a fault. Returns the webhooks that it acknowledged."""
    child = "tests.crash.keep_webhooks"
    done = run_child(child, str(root), log=root / "strace", rules=injection(call, fault))
    lines = [line.split() for line in done.stdout.splitlines(keepends=True) if line.endswith("\n")]
    return {words[1] for words in lines if words[:1] == ["acknowledged"]}


def applied_by_next_process(root: Path) -> set[str]:
    """Let the next process apply what waits. Returns the projects whose names are known then."""
    records = records_in(root / "platform")
    applier = Applier(Inbox(root), records, lambda: NOW_MS / 1_000)
    applier.forget_old(60.0)
    applier.apply_waiting()
    assert applier.waiting_count == 0
    return {project.id for project in records.projects.all() if project.name}


@pytest.mark.fault("kill -9 at every system call that keeps or applies a webhook")
@pytest.mark.parametrize("call", ["mkdir", "pwrite64", "fsync", "rename", "unlink"])
def test_process_killed_at_any_call_loses_no_acknowledged_webhook(tmp_path: Path, call: str) -> None:
    for count in range(1, CALLS_MAX):
        root = tmp_path / str(count)
        root.mkdir()

        acknowledged = acknowledged_by_child(root, call, f"signal=SIGKILL:when={count}")

        assert acknowledged <= applied_by_next_process(root)
        if not was_injected(root / "strace"):
            assert acknowledged == set(NAMES)
            assert count > 1
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected fewer")


@pytest.mark.fault("ENOSPC or EIO at every system call that keeps or applies a webhook, once or permanently")
@pytest.mark.parametrize("suffix", ["", "+"], ids=["once", "permanently"])
@pytest.mark.parametrize(("call", "error"), [("pwrite64", "ENOSPC"), ("fsync", "EIO"), ("rename", "EIO")])
def test_process_that_meets_an_error_at_any_call_loses_no_acknowledged_webhook(
    tmp_path: Path, call: str, error: str, suffix: str
) -> None:
    for count in range(1, CALLS_MAX):
        root = tmp_path / str(count)
        root.mkdir()

        acknowledged = acknowledged_by_child(root, call, f"error={error}:when={count}{suffix}")

        assert acknowledged <= applied_by_next_process(root)
        if not was_injected(root / "strace"):
            assert acknowledged == set(NAMES)
            return
    pytest.fail(f"more than {CALLS_MAX} calls of {call}; expected fewer")
