"""Tests of commands that query a receiver whose store process is down."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import pytest

from receiver.cli import EXIT_INTERRUPTED
from receiver.cli.shell.readiness import STORE_START_S, note_when_slow, require_store_process
from receiver.errors import CommandFailed
from receiver.supervisor.state import ReceiverState, read_state
from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import QuietHandler, serving, write_state


class Admin(QuietHandler):
    """Fake admin port: answers with the next state of the store process, and repeats the last."""

    processes: ClassVar[list[str]]
    ends = ""

    def do_GET(self) -> None:  # noqa: N802 - the standard library's name
        process = self.processes.pop(0) if len(self.processes) > 1 else self.processes[0]
        reasons = {"process": process, "ends": self.ends}
        checks = [
            {"process": "store", "name": name, "reason": reason, "decides": False}
            for name, reason in reasons.items()
        ]
        body = json.dumps({"ready": True, "checks": checks}).encode()
        self.send_whole(200, body, "application/json")


class Clock:
    """Clock that advances only by sleeping."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def now(self) -> float:
        return self.now_s

    def sleep(self, delay_s: float) -> None:
        self.now_s += delay_s


@pytest.fixture
def admin() -> Iterator[str]:
    Admin.processes, Admin.ends = [""], ""
    with serving(Admin) as url:
        yield url


@pytest.fixture
def state(admin: str, tmp_path: Path) -> ReceiverState:
    """Return the state of a running receiver, which is this process with the fake admin port."""
    write_state(tmp_path, "http://127.0.0.1:1", admin)
    return read_state(tmp_path)


def test_store_process_that_exits_repeatedly_fails_the_command_at_once(state: ReceiverState) -> None:
    Admin.processes, Admin.ends = ["not running"], "ended 3 times in the last 10 minutes"
    clock = Clock()

    with pytest.raises(CommandFailed) as caught:
        require_store_process(state, now=clock.now, sleep=clock.sleep)

    assert clock.now_s == 0
    assert str(caught.value) == (
        f"the receiver runs (process {state.pids.supervisor}), but its store process is not running "
        f"(ended 3 times in the last 10 minutes); see its log; "
        f"{state.urls['admin']}/readyz?verbose has its state"
    )


def test_command_waits_for_a_starting_store_process(state: ReceiverState) -> None:
    Admin.processes = ["not running", "starting", "starting", ""]
    clock = Clock()

    require_store_process(state, now=clock.now, sleep=clock.sleep)

    assert 0 < clock.now_s < STORE_START_S


def test_wait_for_a_starting_store_process_is_limited(state: ReceiverState) -> None:
    Admin.processes = ["starting"]
    clock = Clock()

    with pytest.raises(CommandFailed, match="its store process is starting; see its log"):
        require_store_process(state, now=clock.now, sleep=clock.sleep)

    assert clock.now_s == STORE_START_S


def test_query_is_sent_if_the_admin_port_does_not_answer(state: ReceiverState) -> None:
    state.urls["admin"] = "http://127.0.0.1:1"

    require_store_process(state)


@each_case("command", ["spans", f"trace {'1' * 32}", "ledger", "dead ls", "schema status"])
def test_every_command_that_queries_reports_which_process_is_down(
    command: str, state: ReceiverState, tmp_path: Path
) -> None:
    Admin.processes, Admin.ends = ["not running"], "ended 9 times in the last 10 minutes"

    result = run(*command.split(), "--data", str(tmp_path))

    assert result.exit_code == 1
    assert "its store process is not running (ended 9 times" in result.output
    assert state.pids.store == 0


def test_only_a_command_that_waits_long_prints_what_readyz_reports(
    state: ReceiverState, capsys: pytest.CaptureFixture[str]
) -> None:
    Admin.processes = ["starting"]

    with note_when_slow(state, after_s=3_600) as timely:
        pass
    timely.join()
    assert capsys.readouterr().err == ""

    with note_when_slow(state, after_s=0) as note:
        note.join()
    assert capsys.readouterr().err == "no answer yet, still waiting; /readyz reports process: starting\n"


def interrupt(process: subprocess.Popen[str]) -> str:
    """Send SIGINT every 10 s until the process exits: Python drops an interrupt inside a finalizer."""
    for _ in range(6):
        process.send_signal(signal.SIGINT)
        with suppress(subprocess.TimeoutExpired):
            return process.communicate(timeout=10)[1]
    raise AssertionError("the command still runs after six interrupts; expected it to exit")


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    """Let child processes receive SIGINT, which is ignored if a shell started the tests in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupts")
def test_ctrl_c_ends_a_waiting_command_with_130(state: ReceiverState, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as api:
        write_state(tmp_path, f"http://127.0.0.1:{api.getsockname()[1]}", state.urls["admin"])
        command = [sys.executable, "-m", "receiver.cli", "spans", "--data", str(tmp_path)]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            connection, _ = api.accept()
            with connection:
                connection.recv(65_536)
                printed = interrupt(process)

    assert process.returncode == EXIT_INTERRUPTED
    assert "Traceback" not in printed
