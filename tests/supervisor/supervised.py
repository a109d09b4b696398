"""A supervisor process for tests, with its own data directory."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.intake.test_process import one_span
from tests.support.intake import request

ROOT = Path(__file__).parents[2]
WAIT_S = 30.0
BASE_CONFIG = (
    'listen = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"\napi_listen = "127.0.0.1:0"\nlog_format = "json"\n'
)


def wait_until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s, f"the condition did not hold within {WAIT_S:g} s"
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


class Supervised:
    """A supervisor process with its own data directory."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.process: subprocess.Popen[str] | None = None
        self.configure()

    @property
    def log(self) -> str:
        """Everything that the supervisor and its children have written."""
        return (self.directory / "log").read_text()

    def configure(self, toml: str = "") -> None:
        (self.directory / "trace-drain.toml").write_text(BASE_CONFIG + toml)

    def start(self, silence_s: float = 30.0, **environ: str) -> None:
        self.launch(silence_s, **environ)
        wait_until(self.is_ready)

    def launch(self, silence_s: float = 30.0, **environ: str) -> None:
        module = ["-P", "-m", "tests.doubles.supervised"]
        command = [sys.executable, *module, str(self.directory), str(silence_s)]
        # The children are modules of the tests.
        environ = {**os.environ, "PYTHONPATH": str(ROOT), **environ}
        with (self.directory / "log").open("a") as log:
            self.process = subprocess.Popen(
                command, stdout=log, stderr=log, text=True, env=environ, cwd=self.directory
            )

    def is_ready(self) -> bool:
        assert self.process
        assert self.process.poll() is None, (self.directory / "log").read_text()
        try:
            is_ours = self.state()["pids"]["supervisor"] == self.process.pid
            return is_ours and self.admin("/readyz")[0] == 200
        except OSError:
            return False

    def state(self) -> dict[str, Any]:
        state: dict[str, Any] = json.loads((self.directory / "receiver.json").read_text())
        return state

    def admin(self, path: str, **headers: str) -> tuple[int, str]:
        request = urllib.request.Request(self.state()["urls"]["admin"] + path, headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=WAIT_S) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as refused:
            with refused:
                return refused.code, refused.read().decode()

    def send_command(self, command: str = "pid", name: str = "listen") -> str:
        with self.connect(name) as connection:
            connection.sendall(f"{command}\n".encode())
            return connection.makefile().readline().strip()

    def connect(self, name: str) -> socket.socket:
        host, _, port = self.state()[name].rpartition(":")
        return socket.create_connection((host, int(port)), timeout=WAIT_S)

    def events(self) -> list[str]:
        events = self.directory / "events"
        return events.read_text().splitlines() if events.exists() else []

    def start_count(self, name: str) -> int:
        """Return how often a child process started and began its work."""
        return "\n".join(self.events()).count(f"{name} start")

    def stop_process(self, pid: int) -> None:
        """Stop a child as a debugger does, so that it hangs."""
        os.kill(pid, signal.SIGSTOP)
        wait_until(lambda: is_stopped(pid))

    def signal(self, number: signal.Signals) -> None:
        assert self.process
        self.process.send_signal(number)

    def exit_code(self) -> int:
        assert self.process
        return self.process.wait(WAIT_S)

    def children(self) -> list[int]:
        pids = self.state()["pids"]
        return [*pids["intake"], pids["store"]]

    def clean_up(self) -> None:
        """Kill the supervisor and its children if they still run."""
        if self.process and self.process.poll() is None:
            children = self.children()
            self.process.kill()
            self.process.wait()
            for pid in children:
                wait_until(lambda pid=pid: not is_alive(pid))  # type: ignore[misc]


def is_stopped(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"


def read_to_end(connection: socket.socket) -> bytes:
    """Read until the other end closes; a reset raises."""
    return b"".join(iter(lambda: connection.recv(65536), b""))


def status_of(answer: bytes) -> bytes:
    return answer.split(b" ")[1]


def post(supervised: Supervised) -> bytes:
    """Send a delivery on its own connection, and return the status."""
    with supervised.connect("listen") as connection:
        connection.sendall(request(one_span(), connection="close"))
        return status_of(read_to_end(connection))
