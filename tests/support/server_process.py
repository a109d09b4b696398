"""Test server process: the ClickHouse stand-in on chDB, for tests that use a server over HTTP."""

from __future__ import annotations

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]


@dataclass
class Server:
    """A running test server."""

    port: int
    pid: int = 0

    @property
    def url(self) -> str:
        """Value for the setting `store.url`."""
        return f"http://default@127.0.0.1:{self.port}/otel"

    def inject_fault(self, kind: str, **details: object) -> None:
        """Inject a fault into the next INSERTs."""
        body = json.dumps({"kind": kind, **details}).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}/_fault", data=body)
        with urllib.request.urlopen(request, timeout=10) as answer:
            assert answer.status == 200


@contextmanager
def clickhouse_server(directory: Path) -> Iterator[Server]:
    """Run `tests/support/clickhouse_server.py` until the block ends."""
    command = [sys.executable, str(ROOT / "tests/support/clickhouse_server.py"), str(directory)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        yield Server(int(process.stdout.readline()), process.pid)
        process.stdin.close()
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            # Nothing is asked of the engine any more, and closing it takes long on a busy machine.
            process.kill()
