"""A receiver whose journal is on its own disk of 64 MB, with operations to fill and break that disk."""

from __future__ import annotations

import http.client
import json
import os
import secrets
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.e2e.receiver_process import ReceiverProcess
from tests.e2e.test_kill import pid_of
from tests.support.strace import attached, injection

DISK_BYTES = 64 << 20
CONFIG = """
[journal]
disk_free_min = "4MiB"
[limits]
answer_deadline_s = 2.0
"""
PATIENCE_S = 120.0
POLL_S = 0.1
ANSWERS = {200, 503}
RETRY_AFTER = {"1", "2", "3"}


def mount(*words: str) -> bool:
    """Mount and return whether the system permits it."""
    command = shutil.which("mount")
    return (
        command is not None
        and not subprocess.run([command, *words], capture_output=True, check=False).returncode
    )


def unmount(path: Path) -> None:
    """Unmount, even if the file system is in use."""
    command = shutil.which("umount")
    assert command is not None
    subprocess.run([command, "--lazy", str(path)], capture_output=True, check=True)


@dataclass
class SmallDiskReceiver:
    """The receiver, and the traces that were sent to it and that it acknowledged."""

    running: ReceiverProcess
    journal: Path
    issued: set[str] = field(default_factory=set)
    acknowledged: set[str] = field(default_factory=set)

    def post(self, padding_bytes: int = 0) -> int:
        """Send a trace of one span that does not compress. Returns the status; 0: connection reset."""
        trace = secrets.token_hex(16)
        self.issued.add(trace)
        host, port = self.running.address
        connection = http.client.HTTPConnection(host, port, timeout=30)
        try:
            headers = {"content-type": "application/json"}
            connection.request("POST", "/v1/traces", body_of(trace, padding_bytes), headers)
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
        """Send traces until the response has this status."""
        deadline = time.monotonic() + PATIENCE_S
        while self.post(padding_bytes) != status:
            assert time.monotonic() < deadline, (
                f"no {status} in {PATIENCE_S} s: {self.running.log()[-2_000:]}"
            )
            time.sleep(every_s)

    def spans_by_trace(self) -> Counter[str]:
        """Count the stored spans of each trace, once the journal is empty."""
        self.running.wait_until_stored(patience_s=PATIENCE_S)
        rows = Counter(str(row["TraceId"]) for row in self.running.spans())
        assert set(rows) <= self.issued
        return rows

    @contextmanager
    def filled(self, left_bytes: int) -> Iterator[None]:
        """Fill the disk with another file, except for `left_bytes`."""
        ballast = self.journal / "ballast"
        usage = os.statvfs(self.journal)
        free_bytes = usage.f_bavail * usage.f_frsize
        with ballast.open("wb", buffering=0) as file, suppress(OSError):
            for _ in range(max(0, free_bytes - left_bytes) // 4096):
                file.write(bytes(4096))
        try:
            yield
        finally:
            ballast.unlink()

    @contextmanager
    def injected(self, calls: str, fault: str, log: Path) -> Iterator[None]:
        """Inject a fault into system calls of the intake."""
        with attached(pid_of(self.running, "intake"), log, injection(calls, fault)):
            yield

    @contextmanager
    def read_only(self) -> Iterator[None]:
        """Make the file system read-only. Skips the test where that is not permitted."""
        path = str(self.journal)
        is_mounted = mount("--bind", path, path)
        try:
            if not is_mounted or not mount("-o", "remount,bind,ro", path):
                pytest.skip("a read-only bind mount is not permitted here")
            yield
        finally:
            if is_mounted:
                unmount(self.journal)


def body_of(trace: str, padding_bytes: int) -> bytes:
    """Return a body of one span, with random hex digits in an attribute."""
    span = {
        "traceId": trace,
        "spanId": "00000000000000ab",
        "name": "span",
        "startTimeUnixNano": str(time.time_ns()),
        "attributes": [{"key": "k", "value": {"stringValue": secrets.token_hex(padding_bytes // 2)}}],
    }
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}).encode()
