"""`trace-drain serve` as a child process: start, post, read back, kill, stop."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from receiver.console.queries.limits import SPANS_MAX

START_TIMEOUT_S = 60
STOP_TIMEOUT_S = 60
STORED_TIMEOUT_S = 60
PATIENCE_S = 90.0
POLL_S = 0.05
RETRYABLE = {429, 502, 503, 504}

Row = dict[str, Any]


@dataclass(frozen=True)
class Reply:
    """A response of the receiver."""

    status: int
    content_type: str
    body: bytes
    retry_after: str = ""

    def json(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads(self.body)
        return parsed


class ReceiverProcess:
    """A receiver that runs for the length of a `with` block."""

    def __init__(self, data: Path, *flags: str, config: str = "") -> None:
        self.data = data
        self.flags = list(flags)
        self.process: subprocess.Popen[bytes] | None = None
        if config:
            (data / "trace-drain.toml").write_text(config)
            self.flags += ["--config", str(data / "trace-drain.toml")]

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        (self.data / "receiver.json").unlink(missing_ok=True)
        command = [sys.executable, "-m", "receiver.cli", "serve", "--data", str(self.data)]
        for flag in ("--listen", "--admin-listen", "--api-listen"):
            if flag not in self.flags:
                command += [flag, "127.0.0.1:0"]
        with (self.data / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*command, *self.flags], stdout=log, stderr=log, env=environment()
            )
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until intakes accept connections and the query API answers."""
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            if self.process and self.process.poll() is not None:
                raise AssertionError(f"receiver exited: {self.log()}")
            if self._is_ready():
                return
            time.sleep(POLL_S)
        raise AssertionError(f"receiver not ready: {self.log()}")

    def _is_ready(self) -> bool:
        try:
            state = self.state()
            return (
                self._get(state["admin"], "/readyz").status == 200
                # 401: it answers, and requires credentials.
                and self._get(state["api"], "/api/v1/health").status in {200, 401}
            )
        except (OSError, ValueError, KeyError):
            return False

    def state(self) -> dict[str, Any]:
        parsed: dict[str, Any] = json.loads((self.data / "receiver.json").read_text())
        return parsed

    def log(self) -> str:
        return (self.data / "log").read_text(errors="replace")

    def stop(self) -> int:
        """Send SIGTERM and return the exit code."""
        assert self.process
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        return self.process.wait(STOP_TIMEOUT_S)

    def kill(self, pid: int | None = None) -> None:
        """Send SIGKILL to a process of the receiver, by default the supervisor."""
        assert self.process
        os.kill(pid or self.process.pid, signal.SIGKILL)
        if pid in (None, self.process.pid):
            self.process.wait(STOP_TIMEOUT_S)

    @property
    def address(self) -> tuple[str, int]:
        host, _, port = str(self.state()["listen"]).rpartition("/")[2].rpartition(":")
        return host, int(port)

    def post(
        self, body: bytes, content_type: str = "application/json", path: str = "/v1/traces", **headers: str
    ) -> Reply:
        host, port = self.address
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        request = urllib.request.Request(
            f"http://{host}:{port}{path}", body, {"content-type": content_type, **named}
        )
        return reply_of(request)

    def _get(self, address: str, path: str) -> Reply:
        base = address if "://" in address else f"http://{address}"
        return reply_of(urllib.request.Request(base.rstrip("/") + path))

    def get(self, path: str) -> Reply:
        """Request a route of the API or a page."""
        return self._get(self.state()["urls"]["api"], path)

    def metrics(self) -> str:
        return self._get(self.state()["admin"], "/metrics").body.decode()

    def checks(self) -> str:
        """Return every check of `/readyz`."""
        return self._get(self.state()["admin"], "/readyz?verbose").body.decode()

    def command(self, *arguments: str) -> str:
        """Return the output of a `trace-drain` command that must succeed."""
        done = self.run_command(*arguments)
        assert done.returncode == 0, done.stderr + done.stdout
        return done.stdout

    def run_command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a `trace-drain` command, which may fail."""
        command = [sys.executable, "-m", "receiver.cli", *arguments, "--data", str(self.data)]
        return subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=120, env=environment()
        )

    def wait_until(self, is_true: Callable[[], object], what: str, *, patience_s: float = PATIENCE_S) -> None:
        """Poll until the condition is true; fail with `what` and the receiver's state after `patience_s`."""
        deadline = time.monotonic() + patience_s
        while not is_true():
            assert time.monotonic() < deadline, f"{what}\n{self._describe()}"
            time.sleep(POLL_S)

    def _describe(self) -> str:
        try:
            checks = self.checks()
        except (OSError, ValueError, KeyError) as error:
            checks = f"no answer of the admin port: {error!r}"
        return f"{checks}\n{len(self.backlog())} segments in the journal\n{self.log()[-3_000:]}"

    def wait_for_check(self, text: str) -> None:
        """Wait until a check of `/readyz` contains this text."""
        self.wait_until(lambda: text in self.checks(), f"no check contains '{text}'")

    def wait_until_stored(self, *, patience_s: float = PATIENCE_S) -> None:
        """Wait until the journal is empty, so that every acknowledged span was counted in the store."""
        self.wait_until(
            lambda: not self.backlog(), "the journal does not become empty", patience_s=patience_s
        )

    def is_readable(self, trace: int) -> bool:
        """Return whether the API finds the trace; False while the store process restarts."""
        try:
            return self.get(f"/api/v1/traces/{trace:032x}").status == 200
        except OSError:
            return False

    def wait_until_readable(self, trace: int) -> None:
        try:
            self.wait_until(lambda: self.is_readable(trace), f"trace {trace} is not readable")
        except AssertionError as error:
            for path in (f"traces/{trace:032x}", f"spans?since=24h&limit={SPANS_MAX}", "ledger?since=2h"):
                error.add_note(f"GET {path}: {self.get(f'/api/v1/{path}')}"[:2_000])
            raise

    def spans(self) -> list[Row]:
        """Return all rows of the last day."""
        reply = self.get(f"/api/v1/spans?since=24h&limit={SPANS_MAX}")
        assert reply.status == 200, reply.body
        *rows, end = map(json.loads, reply.body.splitlines())
        assert end["end"]["count"] == len(rows)
        assert len(rows) < SPANS_MAX, f"the table may have more than {SPANS_MAX} rows; send fewer spans"
        return rows

    def spans_once_stored(self, count: int) -> list[Row]:
        """Return all rows, once the journal is empty and there are `count` rows."""
        deadline = time.monotonic() + STORED_TIMEOUT_S
        while True:
            while self.backlog() and time.monotonic() < deadline:
                time.sleep(POLL_S)
            rows = self.spans()
            if len(rows) >= count or time.monotonic() > deadline:
                return rows
            time.sleep(0.2)

    def backlog(self) -> list[Path]:
        return [
            path for path in (self.data / "journal").rglob("*") if path.suffix in {".open", ".lz4", ".zst"}
        ]


def environment() -> dict[str, str]:
    """Return this process's environment without the tests' variables, which the receiver would reject."""
    return {name: value for name, value in os.environ.items() if not name.startswith("TRACE_DRAIN_TEST_")}


def reply_of(request: urllib.request.Request) -> Reply:
    """Return the response; an error status is no exception."""
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return Reply(answer.status, answer.headers.get("content-type", ""), answer.read())
    except urllib.error.HTTPError as refused:
        with refused:
            headers = refused.headers
            return Reply(
                refused.code, headers.get("content-type", ""), refused.read(), headers.get("retry-after", "")
            )
