"""The sink process, a ClickHouse stand-in: started empty for every measurement, counts rows."""

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
    """A running sink."""

    http_port: int
    tcp_port: int
    pid: int

    def rows(self) -> int:
        """Return the number of rows received."""
        return int(self.counts()["rows"])

    def counts(self) -> dict[str, int]:
        """Return the numbers of rows, INSERTs and bytes (as transferred) received."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/_counts", timeout=30) as answer:
            counts: dict[str, int] = json.load(answer)
        return counts

    def hang(self) -> None:
        """Stop the process: the kernel still accepts connections, but no request is answered."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the process, which first answers the requests that arrived meanwhile."""
        os.kill(self.pid, signal.SIGCONT)

    def wait_for(self, rows: int, timeout_s: float) -> float:
        """Wait until the sink has this many rows or the time is over. Return the seconds waited."""
        began_s = time.monotonic()
        while self.rows() < rows and time.monotonic() - began_s < timeout_s:
            time.sleep(POLL_S)
        return time.monotonic() - began_s


def build() -> None:
    """Compile the sink if it is out of date."""
    subprocess.run(  # noqa: S603 - our own command
        ["cargo", "build", "--locked", "--release", "--quiet", "--manifest-path", str(SOURCE / "Cargo.toml")],  # noqa: S607 - the user's toolchain
        check=True,
    )


@contextmanager
def running(core: str) -> Iterator[Sink]:
    """Run an empty sink until the block ends."""
    process = subprocess.Popen(  # noqa: S603 - our own command
        ["taskset", "-c", core, str(PROGRAM)],  # noqa: S607 - a standard tool
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        if process.stdout is None or process.stdin is None:
            raise AssertionError("the sink has no stdin or stdout pipe; expected both")
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
