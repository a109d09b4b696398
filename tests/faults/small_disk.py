"""A receiver whose journal lies on a disk of 64 MB of its own, with hands on that disk."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import signal
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.running import Running

DISK_BYTES = 64 << 20
CONFIG = """
[journal]
disk_free_min = "4MiB"
[limits]
answer_deadline_s = 2.0
"""
CALM_S = 120.0
POLL_S = 0.1
ANSWERS = {200, 503}
RETRY_AFTER = {"1", "2", "3"}


def mount(*words: str) -> bool:
    """Whether the system lets us."""
    command = shutil.which("mount")
    return (
        command is not None
        and not subprocess.run([command, *words], capture_output=True, check=False).returncode
    )


def unmount(path: Path) -> None:
    """Even if somebody is in it."""
    command = shutil.which("umount")
    assert command is not None
    subprocess.run([command, "--lazy", str(path)], capture_output=True, check=True)


@dataclass
class Site:
    """The receiver, its senders, what they were told."""

    running: Running
    journal: Path
    issued: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)

    def post(self, padding_bytes: int = 0) -> int:
        """Send a trace of one span that does not compress. The status; 0: a reset."""
        trace = secrets.token_hex(16)
        self.issued.add(trace)
        host, port = self.running.address
        connection = http.client.HTTPConnection(host, port, timeout=30)
        try:
            head = {"content-type": "application/json"}
            connection.request("POST", "/v1/traces", body_of(trace, padding_bytes), head)
            answer = connection.getresponse()
            answer.read()
        except (OSError, http.client.HTTPException):
            return 0
        finally:
            connection.close()
        assert answer.status in ANSWERS
        assert answer.status == 200 or answer.headers["retry-after"] in RETRY_AFTER
        if answer.status == 200:
            self.acknowledged.add(trace)
        return answer.status

    def post_until(self, status: int, padding_bytes: int = 0, every_s: float = POLL_S) -> None:
        """Go on until it answers so."""
        deadline = time.monotonic() + CALM_S
        while self.post(padding_bytes) != status:
            assert time.monotonic() < deadline, f"no {status} in {CALM_S} s: {self.running.log()[-2_000:]}"
            time.sleep(every_s)

    def rest(self) -> None:
        """Wait until everything is stored."""
        deadline = time.monotonic() + CALM_S
        while self.running.backlog():
            assert time.monotonic() < deadline, f"journal is not empty: {self.running.backlog()}"
            time.sleep(POLL_S)

    def spans_by_trace(self) -> Counter[str]:
        """What is stored of what was sent, once the journal is empty."""
        self.rest()
        rows = Counter(str(row["TraceId"]) for row in self.running.spans())
        assert set(rows) <= self.issued
        return rows

    def pid_of_intake(self) -> int:
        return int(self.running.state()["pids"]["intake"][0])

    def wait_for_another_intake(self, pid: int) -> None:
        """The old one gave up, as it should."""
        deadline = time.monotonic() + CALM_S
        while self.pid_of_intake() == pid:
            assert time.monotonic() < deadline, f"intake {pid} goes on: {self.running.log()[-2_000:]}"
            time.sleep(POLL_S)

    @contextmanager
    def filled(self, left_bytes: int) -> Iterator[None]:
        """Something else takes the disk's space, but for these bytes."""
        ballast = self.journal / "ballast"
        room = os.statvfs(self.journal)
        free_bytes = room.f_bavail * room.f_frsize
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            for _ in range(max(0, free_bytes - left_bytes) // 4096):
                file.write(bytes(4096))
        try:
            yield
        finally:
            ballast.unlink()

    @contextmanager
    def injected(self, rule: str, log: Path) -> Iterator[bool]:
        """Calls of the intake meet a fault; false: strace may not attach here."""
        rules = ["-e", f"trace={rule.partition(':')[0]}", "-e", f"inject={rule}"]
        command = ["strace", "-f", "-p", str(self.pid_of_intake()), *rules, "-o", str(log)]
        with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
            assert strace.stderr is not None
            is_attached = b"attached" in strace.stderr.readline()
            try:
                yield is_attached
            finally:
                strace.send_signal(signal.SIGINT)

    @contextmanager
    def read_only(self) -> Iterator[bool]:
        """Nothing new can be opened for writing; false: the system does not let us."""
        where = str(self.journal)
        is_over = mount("--bind", where, where)
        try:
            yield is_over and mount("-o", "remount,bind,ro", where)
        finally:
            if is_over:
                unmount(self.journal)


def body_of(trace: str, padding_bytes: int) -> bytes:
    """One span, with random hex in an attribute."""
    span = {
        "traceId": trace,
        "spanId": "00000000000000ab",
        "name": "span",
        "startTimeUnixNano": str(time.time_ns()),
        "attributes": [{"key": "k", "value": {"stringValue": secrets.token_hex(padding_bytes // 2)}}],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
