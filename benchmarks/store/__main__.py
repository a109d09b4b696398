"""Command line of `make bench-store`: compares both tables, or inserts at a rate for a long time."""

from __future__ import annotations

import re
from pathlib import Path

import click

from benchmarks.report import machine
from benchmarks.store.compare import compare, engine_of
from benchmarks.store.page import page
from benchmarks.store.results import Results
from benchmarks.store.segments import varied
from benchmarks.store.sustain import VARIED, sustain, sustained
from benchmarks.store.workspace import DISK_BYTES_PER_SPAN, log, temporary_directory

HERE = Path(__file__).parent.parent
DISK_BYTES_PER_SPAN_SUSTAINED = 200
"""Disk space per span of our table, including old parts, which are deleted eight minutes after a merge."""
_SECONDS_OF = {"s": 1, "m": 60, "h": 3_600}


@click.command()
@click.option("--spans", default="10000000", show_default=True, help="Table sizes, separated by commas.")
@click.option(
    "--sustain", "sustain_for", help="Instead: insert into our table at a rate for this long (30m)."
)
@click.option("--rate", default=150_000.0, show_default=True, help="Spans per second of --sustain.")
@click.option("--dir", "parent", type=click.Path(path_type=Path), default=HERE / ".last", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=HERE, help="Directory of the results.")
def main(spans: str, sustain_for: str | None, rate: float, parent: Path, out: Path) -> None:
    """Measure the embedded engine. Needs disk: 600 bytes per span, 200 bytes with --sustain."""
    results = Results.read(out / "store.json")
    if sustain_for:
        duration_s = seconds_of(sustain_for)
        with temporary_directory(
            parent, rate * duration_s * DISK_BYTES_PER_SPAN_SUSTAINED, VARIED
        ) as directory:
            environment = machine(), engine_of(directory)
            measured = sustain(rate, duration_s, directory, log)
            results.sustained[f"{rate:.0f}"] = sustained(rate, duration_s, measured, environment)
    else:
        sizes = [int(size) for size in spans.split(",")]
        with temporary_directory(parent, max(sizes) * DISK_BYTES_PER_SPAN, varied(max(sizes))) as directory:
            results.machine, results.engine = machine(), engine_of(directory)
            for size in sizes:
                results.sizes[str(size)] = compare(size, directory, log)
    out.mkdir(exist_ok=True)
    results.write(out / "store.json")
    (out / "STORE.md").write_text(page(results))
    log(f"results written to {out / 'STORE.md'}")


def seconds_of(text: str) -> float:
    """Parse a duration such as `30m`, `90s` or `1h`."""
    match = re.fullmatch(r"([0-9]+)([smh])", text)
    if not match:
        raise click.BadParameter(f"'{text}' is not a duration; expected a number and s, m or h, like 30m")
    return int(match[1]) * _SECONDS_OF[match[2]]


if __name__ == "__main__":
    main()
