"""Temporary directory of a benchmark, with checks of the free disk space and memory."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.store.segments import BYTES_PER_VARIED_SPAN

DISK_BYTES_PER_SPAN = 600
"""Disk space per span of both tables, including old parts that a merge has not yet deleted."""
ENGINE_BYTES = 3 << 30
"""Memory that the engine uses while it inserts and merges."""


@contextmanager
def temporary_directory(parent: Path, disk_bytes: float, varied_spans: int) -> Iterator[Path]:
    """Provide a temporary directory, if the disk and the memory are large enough."""
    parent.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < disk_bytes:
        raise click.ClickException(
            f"'{parent}' has {free_bytes >> 30} GiB free; expected {disk_bytes / 2**30:.0f}"
        )
    required_bytes = ENGINE_BYTES + varied_spans * BYTES_PER_VARIED_SPAN
    free_bytes = memory_free_bytes()
    if free_bytes < required_bytes:
        raise click.ClickException(
            f"{free_bytes >> 30} GiB of memory are free; expected {required_bytes / 2**30:.0f}"
        )
    with tempfile.TemporaryDirectory(prefix="store-", dir=parent) as directory:
        yield Path(directory)


def memory_free_bytes() -> int:
    """Return the memory that Linux reports as available."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def log(text: str) -> None:
    """Write a progress line to standard error."""
    click.echo(text, err=True)
