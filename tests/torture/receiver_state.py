"""The receiver under torture: its configuration, and its processes and files as the kernel reports them."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.receiver_process import ReceiverProcess
from tests.torture.oracle import DRAINS

INTAKES = 2
JOURNAL_BYTES_MAX = 1 << 19
"""Small, so that it is full after the store was stopped for some seconds."""
SEGMENT_BYTES_MAX = 1 << 17
MODULES = {"receiver.processes.intake": "intake", "receiver.processes.store_console": "store"}
Role = str
"""`supervisor`, `intake` or `store`."""


def configuration(data: Path, *, disk_free_min: int) -> str:
    """Return the configuration file; write the secrets that it names."""
    lines = [
        f"intakes = {INTAKES}",
        "[store]",
        "retention_days = 20000",
        "[journal]",
        f"bytes_max = {JOURNAL_BYTES_MAX}",
        f"segment_bytes_max = {SEGMENT_BYTES_MAX}",
        f"disk_free_min = {disk_free_min}",
    ]
    for drain in DRAINS:
        secret = data / f"secret-{drain.name}"
        secret.write_text(drain.token or drain.secret)
        secret.chmod(0o600)
        lines.append(
            f'[[drain]]\nname = "{drain.name}"\npath = "{drain.path}"\nacknowledge = "{drain.acknowledge}"'
        )
        if drain.token:
            lines.append(f'token_file = "{secret}"')
        if drain.secret:
            lines.append(f'signature_header = "x-signature"\nsignature_secret_file = "{secret}"')
    return "\n".join(lines) + "\n"


def free_port(first: int) -> int:
    """Return a free port that can be reused after a restart: below the kernel's ephemeral ports."""
    for port in range(20_000 + first % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@dataclass(frozen=True)
class Usage:
    """Resources that a process uses."""

    rss_bytes: int
    descriptors: int
    threads: int


def processes(running: ReceiverProcess) -> dict[int, Role]:
    """Return the roles of the supervisor and its living children by process id."""
    if running.process is None or running.process.poll() is not None:
        return {}
    supervisor = running.process.pid
    roles = {supervisor: "supervisor"}
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        roles |= {int(pid): role for pid in children if (role := role_of(int(pid)))}
    return roles


def role_of(pid: int) -> Role:
    """Return the role of a child of the supervisor; empty: it has ended or not yet started its module."""
    try:
        arguments = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ""
    return next((role for module, role in MODULES.items() if module in arguments), "")


def usage(pid: int) -> Usage | None:
    """Measure a process, or return None if it has ended."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names only, and many of them
        return Usage(int(status["VmRSS"].split()[0]) * 1024, descriptors, int(status["Threads"]))
    except (OSError, KeyError):
        return None


def journal_files(data: Path) -> dict[str, int]:
    """Return every file of the journal, as `epoch/name`, with its size."""
    sizes = {}
    for path in (data / "journal").rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                sizes[str(path.relative_to(data / "journal"))] = path.stat().st_size
    return sizes


def segments_in(data: Path) -> set[str]:
    """Return the segments in the journal, as `epoch/counter`."""
    return {
        name.split(".", 1)[0]
        for name in journal_files(data)
        if name.endswith((".open", ".native.lz4", ".native.zst"))
    }
