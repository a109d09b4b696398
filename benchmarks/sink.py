"""The sink as a process: started empty for every measurement, asked how many rows it took."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SOURCE = Path(__file__).parent / "sink"
PROGRAM = SOURCE / "target/release/sink"
POLL_S = 0.02


@dataclass(frozen=True)
class Sink:
    """Where receivers store."""

    http_port: int
    tcp_port: int
    pid: int

    def rows(self) -> int:
        """How many it took."""
        return int(self.counts()["rows"])

    def counts(self) -> dict[str, int]:
        """Rows, INSERTs, bytes as they came."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/_counts", timeout=30) as answer:
            counts: dict[str, int] = json.load(answer)
        return counts

    def hang(self) -> None:
        """Answer nobody from here on; connections are still taken."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Answer again, what came meanwhile first."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_for(self, rows: int, timeout_s: float) -> float:
        """Wait until it has them; seconds it took. What does not come in time is missed by the caller."""
        began_s = time.monotonic()
        while self.rows() < rows and time.monotonic() - began_s < timeout_s:
            time.sleep(POLL_S)
        return time.monotonic() - began_s


def build() -> None:
    """Compile it, if it is not."""
    subprocess.run(  # noqa: S603 - our own command
        ["cargo", "build", "--locked", "--release", "--quiet", "--manifest-path", str(SOURCE / "Cargo.toml")],  # noqa: S607 - the user's toolchain
        check=True,
    )


@contextmanager
def running(core: str) -> Iterator[Sink]:
    """An empty sink, until the block ends."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        ["taskset", "-c", core, str(PROGRAM)],  # noqa: S607 - a standard tool
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if process.stdout is None or process.stdin is None:
            raise AssertionError("no pipes to the sink; expected those that were asked for")
        http_port, tcp_port = map(int, process.stdout.readline().split())
        yield Sink(http_port, tcp_port, process.pid)
        process.stdin.close()
        process.wait(10)
    finally:
        process.kill()
        process.wait()
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                pipe.close()
