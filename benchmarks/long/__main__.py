"""Command line of `make bench-long`: measures growth and backlog; writes long.json and LONG.md."""

from __future__ import annotations

import platform
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

import receiver
from benchmarks import sink as sinks
from benchmarks.long.backlog import BacklogRun, disk_bytes_for, settings_for
from benchmarks.long.growth import grow
from benchmarks.long.page import page
from benchmarks.long.results import About, Backlog, Growth, Results
from benchmarks.peers import PEERS, Environment
from benchmarks.processes import Cores
from benchmarks.report import machine

HERE = Path(__file__).parent.parent
OURS = PEERS[0]
LOW_RATE = 20_000
GROWTH_SLICE_S, BACKLOG_SLICE_S = 60.0, 10.0


@click.command()
@click.option("--part", "parts", multiple=True, type=click.Choice(["growth", "backlog"]), help="[both]")
@click.option("--minutes", default=30.0, show_default=True, help="Duration of the growth part.")
@click.option("--rate", default=100_000.0, show_default=True, help="Spans per second of the growth part.")
@click.option("--gb", default=10.0, show_default=True, help="Size of the backlog.")
@click.option("--slice", "slice_s", type=float, help="Seconds per slice. [60 for growth, 10 for backlog]")
@click.option("--dir", "parent", type=click.Path(path_type=Path), default=HERE / ".last", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=HERE, help="Directory of the results.")
@click.option(
    "--beside", "concurrent_work", default="", help="Other work on this machine, mentioned on the page."
)
def main(  # noqa: PLR0913 - options
    parts: tuple[str, ...],
    *,
    minutes: float,
    rate: float,
    gb: float,
    slice_s: float | None,
    parent: Path,
    out: Path,
    concurrent_work: str,
) -> None:
    """Measure growth and backlog. Results of a part that is not run, or is interrupted, stay unchanged."""
    signal.signal(signal.SIGTERM, _interrupted)
    sinks.build()
    OURS.build()
    for path in (parent, out):
        path.mkdir(parents=True, exist_ok=True)
    results, cores = Results.read(out / "long.json"), Cores.of_this_machine()
    if not parts or "growth" in parts:
        results.growth = Growth(
            about=_about(concurrent_work), rate=rate, minutes=minutes, slice_s=slice_s or GROWTH_SLICE_S
        )
        with temporary_environment(parent, cores) as environment:
            grow(OURS, environment, cores, results.growth, log)
        _write(results, out)
    if (not parts or "backlog" in parts) and has_disk(parent, disk_bytes_for(gb * 1e9)):
        results.backlog = Backlog(
            about=_about(concurrent_work),
            bytes_wanted=gb * 1e9,
            rate=LOW_RATE,
            slice_s=slice_s or BACKLOG_SLICE_S,
        )
        with temporary_environment(parent, cores, settings_for(gb * 1e9)) as environment:
            BacklogRun(OURS, environment, cores, results.backlog, log).run()
        _write(results, out)


@contextmanager
def temporary_environment(parent: Path, cores: Cores, settings: str = "") -> Iterator[Environment]:
    """Provide a directory and a running sink; remove both at the end."""
    with (
        tempfile.TemporaryDirectory(prefix="long-", dir=parent) as directory,
        sinks.running(cores.others) as sink,
    ):
        yield Environment(Path(directory), sink, cores.receiver, settings=settings)


def has_disk(parent: Path, required_bytes: float) -> bool:
    """Return whether this much disk is free; log it if not."""
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes >= required_bytes:
        return True
    free, required = f"{free_bytes / 1e9:.1f} GB", f"{required_bytes / 1e9:.1f}"
    log(f"backlog skipped: '{parent}' has {free} free; expected {required}")
    return False


def _about(concurrent_work: str) -> About:
    command = " ".join(["python -m benchmarks.long", *sys.argv[1:]])
    versions = f"Receiver {receiver.__version__}, Python {platform.python_version()}"
    return About(machine(), versions, command, concurrent_work)


def _write(results: Results, out: Path) -> None:
    results.write(out / "long.json")
    (out / "LONG.md").write_text(page(results))
    log(f"results written to {out / 'LONG.md'}")


def _interrupted(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C, so that context managers end the started processes."""
    raise KeyboardInterrupt


def log(text: str) -> None:
    """Write a progress line to standard error."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
