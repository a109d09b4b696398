"""`make bench-store`: both tables side by side, or a long feed; writes store.json and STORE.md."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from benchmarks.report import machine
from benchmarks.store.compare import compare, engine_of
from benchmarks.store.page import page
from benchmarks.store.results import Results
from benchmarks.store.segments import BYTES_PER_VARIED_SPAN, varied
from benchmarks.store.sustain import VARIED, sustain, sustained

HERE = Path(__file__).parent.parent
DISK_BYTES_PER_SPAN = 600
"""Both tables before and after a merge, the old parts not yet gone."""
DISK_BYTES_PER_SPAN_FED = 200
"""Ours alone, with what its merges leave behind for eight minutes."""
ENGINE_BYTES = 3 << 30
"""Memory that the engine comes to while it inserts and merges."""
_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600}


@click.command()
@click.option("--spans", default="10000000", show_default=True, help="Sizes, comma between.")
@click.option("--sustain", "feed_for", help="Instead: feed our table for so long (30m).")
@click.option("--rate", default=150_000.0, show_default=True, help="Spans a second of --sustain.")
@click.option("--dir", "parent", type=click.Path(path_type=Path), default=HERE / ".last", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=HERE, help="Where the page goes.")
def main(spans: str, feed_for: str | None, rate: float, parent: Path, out: Path) -> None:
    """Measure the storage side with the embedded engine. Needs disk: 600 bytes a span, 200 to sustain."""
    results = Results.read(out / "store.json")
    if feed_for:
        duration_s = seconds_of(feed_for)
        with room(parent, rate * duration_s * DISK_BYTES_PER_SPAN_FED, VARIED) as directory:
            where = machine(), engine_of(directory)
            told = sustain(rate, duration_s, directory, log)
            results.fed[f"{rate:.0f}"] = sustained(rate, duration_s, told, where)
    else:
        sizes = [int(size) for size in spans.split(",")]
        with room(parent, max(sizes) * DISK_BYTES_PER_SPAN, varied(max(sizes))) as directory:
            results.machine, results.engine = machine(), engine_of(directory)
            for size in sizes:
                results.sizes[str(size)] = compare(size, directory, log)
    out.mkdir(exist_ok=True)
    results.write(out / "store.json")
    (out / "STORE.md").write_text(page(results))
    log(f"written to {out / 'STORE.md'}")


def seconds_of(text: str) -> float:
    """Read `30m`, `90s`, `1h`."""
    found = re.fullmatch(r"([0-9]+)([smh])", text)
    if not found:
        raise click.BadParameter(f"'{text}' is no time; expected a number and s, m or h, like 30m")
    return int(found[1]) * _SECONDS_OF[found[2]]


@contextmanager
def room(parent: Path, disk_bytes: float, varied_spans: int) -> Iterator[Path]:
    """A directory with that much space, gone afterwards; and memory for the engine and what is varied."""
    parent.mkdir(parents=True, exist_ok=True)
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes < disk_bytes:
        raise click.ClickException(
            f"'{parent}' has {free_bytes >> 30} GiB free; expected {disk_bytes / 2**30:.0f}"
        )
    wanted, found = ENGINE_BYTES + varied_spans * BYTES_PER_VARIED_SPAN, memory_free_bytes()
    if found < wanted:
        raise click.ClickException(f"{found >> 30} GiB of memory are free; expected {wanted / 2**30:.0f}")
    with tempfile.TemporaryDirectory(prefix="store-", dir=parent) as directory:
        yield Path(directory)


def memory_free_bytes() -> int:
    """What Linux would give."""
    lines = Path("/proc/meminfo").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("MemAvailable"))


def log(text: str) -> None:
    """How it goes."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
