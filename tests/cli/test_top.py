"""`trace-drain top` fills a terminal, follows its size, and restores it however the command ends."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from receiver.cli.console.top import lines
from tests.support.cases import each_case
from tests.support.commands import run
from tests.support.fake_api import ApiHandler, receiver_with

TIMES = {"p50_ms": 0.5, "p95_ms": 250.0, "p99_ms": 1_500.0}
ROWS: list[dict[str, Any]] = [
    {"group": "web\x1b[2J", "rate_per_s": 10.0, "error_rate": 0.005, **TIMES},
    {"group": "api", "rate_per_s": 1.0, "error_rate": 0.5, **TIMES},
    {"group": "zoo", "rate_per_s": 50.0, "error_rate": 0, **TIMES, "p95_ms": 900.0},
]
ENTER, LEAVE = b"\x1b[?1049h", b"\x1b[?1049l"
DEADLINE_S = 60


class Handler(ApiHandler):
    """API with the services above."""

    def lines_for(self, query: dict[str, str]) -> list[str]:
        assert query["since"] == "1m"
        return [json.dumps(row) for row in [*ROWS, {"end": {"count": len(ROWS), "cut": False}}]]


class Terminal:
    """Terminal of a process."""

    def __init__(self, *arguments: str) -> None:
        self._master, self._slave = pty.openpty()
        # Not `select.select`: a test process may have more than 1,024 open files.
        self._output_poll = select.poll()
        self._output_poll.register(self._master, select.POLLIN)
        self.resize(100, 30)
        self.before = termios.tcgetattr(self._slave)
        self.process = subprocess.Popen(
            [sys.executable, "-m", "receiver.cli", *arguments],
            stdin=self._slave,
            stdout=self._slave,
            stderr=self._slave,
        )
        self.output = b""

    def resize(self, columns: int, rows: int) -> None:
        fcntl.ioctl(self._slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def type(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, text: bytes) -> bytes:
        """Return the output up to this text and discard it."""
        deadline_s = time.monotonic() + DEADLINE_S
        while text not in self.output:
            assert time.monotonic() < deadline_s, self.output
            if self._output_poll.poll(1_000):
                self.output += os.read(self._master, 65_536)
        before, _, self.output = self.output.partition(text)
        return before

    def attributes(self) -> list[Any]:
        return termios.tcgetattr(self._slave)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._master)
        os.close(self._slave)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    with receiver_with(Handler, tmp_path) as directory:
        opened = Terminal("top", "--data", directory, "--since", "1m")
        yield opened
        opened.close()


@pytest.mark.parametrize(
    ("end", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129)], ids=str
)
def test_terminal_is_restored_after_a_signal(terminal: Terminal, end: signal.Signals, code: int) -> None:
    terminal.wait_for(ENTER)
    terminal.wait_for(b"zoo")
    assert terminal.attributes() != terminal.before

    terminal.process.send_signal(end)

    terminal.wait_for(LEAVE)
    assert terminal.process.wait(DEADLINE_S) == code
    assert terminal.attributes() == terminal.before


def test_keys_sort_until_q_and_a_smaller_window_shortens_the_lines(terminal: Terminal) -> None:
    by_rate = terminal.wait_for(b"by requests") + terminal.wait_for(b"api")
    terminal.type("n")
    by_name = terminal.wait_for(b"by name") + terminal.wait_for(b"zoo")
    terminal.resize(9, 4)
    small = terminal.wait_for(b"3 servic\xe2\x80\xa6\x1b[K") and terminal.wait_for(b"\x1b[J")
    terminal.type("q")
    terminal.wait_for(LEAVE)

    assert terminal.process.wait(DEADLINE_S) == 0
    assert terminal.attributes() == terminal.before
    assert by_rate.index(b"zoo") < by_rate.index(b"web")
    assert by_name.index(b"api") < by_name.index(b"web")
    assert small.count(b"\r\n") == 3
    assert b"\x1b[2J" not in by_rate


@each_case(
    ("order", "services"),
    [
        ("requests", ["zoo", "web", "api"]),
        ("errors", ["api", "web", "zoo"]),
        ("p95", ["zoo", "api", "web"]),
        ("name", ["api", "web", "zoo"]),
    ],
)
def test_services_are_in_the_order_of_the_key(order: str, services: list[str]) -> None:
    assert [line[:3] for line in lines(ROWS, "1m", order, "")[3:]] == services


def test_lines_have_rates_and_durations() -> None:
    shown = lines(ROWS, "1m", "errors", "\x1b[2Jdown")

    assert shown[0].startswith("3 services, last 1m, by errors")
    assert shown[1].startswith("not up to date: ")
    assert shown[2].split() == ["service", "requests/s", "errors", "%", "p50", "p95", "p99"]
    assert shown[3].split() == ["api", "1.0", "50.0", "500", "µs", "250", "ms", "1.5", "s"]
    assert not any("\x1b" in line for line in shown)


def test_top_that_cannot_start_prints_the_reason(tmp_path: Path) -> None:
    wrong = run("top", "--data", str(tmp_path), "--since", "soon")
    alone = run("top", "--data", str(tmp_path))
    with receiver_with(Handler, tmp_path) as directory:
        redirected = run("top", "--data", directory, "--since", "1m")

    assert (wrong.exit_code, alone.exit_code, redirected.exit_code) == (2, 1, 2)
    assert "since is neither an age" in wrong.stderr
    assert "no receiver runs" in alone.stderr
    assert "expected a terminal" in redirected.stderr
    assert ENTER.decode() not in redirected.stdout
