"""The receiver under torture: its configuration, its processes as the kernel shows them, its ports."""

from __future__ import annotations

import contextlib
import os
import socket
from dataclasses import dataclass
from pathlib import Path

from tests.e2e.running import Running
from tests.torture.oracle import DRAINS

INTAKES = 2
JOURNAL_BYTES_MAX = 1 << 19
"""Small, so that a store that stands still for some seconds fills it."""
SEGMENT_BYTES_MAX = 1 << 17
MODULES = {"receiver.intake": "intake", "receiver.store_process": "store"}
Role = str
"""`supervisor`, `intake` or `store`."""


def configuration(data: Path, *, disk_free_min: int) -> str:
    """The configuration file; writes the secrets it names."""
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
    """A port that stays the same over restarts: below those the kernel lends to outgoing connections."""
    for port in range(20_000 + first % 10_000, 32_000):
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no free port")


@dataclass(frozen=True)
class Usage:
    """What one process takes."""

    rss_bytes: int
    descriptors: int
    threads: int


def processes(running: Running) -> dict[int, Role]:
    """The supervisor that we started and its living children, by process id."""
    if running.process is None or running.process.poll() is not None:
        return {}
    supervisor = running.process.pid
    found = {supervisor: "supervisor"}
    with contextlib.suppress(OSError):
        children = Path(f"/proc/{supervisor}/task/{supervisor}/children").read_text().split()
        found |= {int(pid): role for pid in children if (role := role_of(int(pid)))}
    return found


def role_of(pid: int) -> Role:
    """What a child of the supervisor is; empty: it is nothing yet, or gone."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_text().split("\0")
    except OSError:
        return ""
    return next((role for module, role in MODULES.items() if module in words), "")


def usage(pid: int) -> Usage | None:
    """Measure a process; none: it is gone."""
    try:
        status = dict(
            line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines() if ":" in line
        )
        descriptors = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208 - names only, and many of them
        return Usage(int(status["VmRSS"].split()[0]) * 1024, descriptors, int(status["Threads"]))
    except (OSError, KeyError):
        return None


def journal_files(data: Path) -> dict[str, int]:
    """Every file of the journal with its size: `start/name`."""
    sizes = {}
    for path in (data / "journal").rglob("*"):
        with contextlib.suppress(OSError):
            if path.is_file():
                sizes[str(path.relative_to(data / "journal"))] = path.stat().st_size
    return sizes


def segments_in(data: Path) -> set[str]:
    """Segments that are promised and not let go of: `epoch/counter`, as the files are called."""
    return {
        name.split(".", 1)[0]
        for name in journal_files(data)
        if name.endswith((".open", ".native.lz4", ".native.zst"))
    }
