"""`make bench-long`: growth and backlog, each by itself if asked; writes long.json and LONG.md."""

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
from benchmarks.long.backlog import Trial, disk_bytes_for, settings_for
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
@click.option("--minutes", default=30.0, show_default=True, help="Of growth.")
@click.option("--rate", default=100_000.0, show_default=True, help="Spans a second of growth.")
@click.option("--gb", default=10.0, show_default=True, help="Of backlog.")
@click.option("--slice", "slice_s", type=float, help="Seconds between looks. [60 at growth, 10 at backlog]")
@click.option("--dir", "parent", type=click.Path(path_type=Path), default=HERE / ".last", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=HERE, help="Where the page goes.")
@click.option("--beside", default="", help="What else runs on this machine meanwhile: the page tells it.")
def main(  # noqa: PLR0913 - options
    parts: tuple[str, ...],
    *,
    minutes: float,
    rate: float,
    gb: float,
    slice_s: float | None,
    parent: Path,
    out: Path,
    beside: str,
) -> None:
    """Measure what only shows after a while. A part that is not run, or is interrupted, stays as it was."""
    signal.signal(signal.SIGTERM, _interrupted)
    sinks.build()
    OURS.build()
    for path in (parent, out):
        path.mkdir(parents=True, exist_ok=True)
    results, cores = Results.read(out / "long.json"), Cores.of_this_machine()
    if not parts or "growth" in parts:
        results.growth = Growth(
            about=_about(beside), rate=rate, minutes=minutes, slice_s=slice_s or GROWTH_SLICE_S
        )
        with room(parent, cores) as environment:
            grow(OURS, environment, cores, results.growth, log)
        _write(results, out)
    if (not parts or "backlog" in parts) and has_disk(parent, disk_bytes_for(gb * 1e9)):
        results.backlog = Backlog(
            about=_about(beside), bytes_wanted=gb * 1e9, rate=LOW_RATE, slice_s=slice_s or BACKLOG_SLICE_S
        )
        with room(parent, cores, settings_for(gb * 1e9)) as environment:
            Trial(OURS, environment, cores, results.backlog, log).run()
        _write(results, out)


@contextmanager
def room(parent: Path, cores: Cores, settings: str = "") -> Iterator[Environment]:
    """A directory and a sink, gone afterwards."""
    with (
        tempfile.TemporaryDirectory(prefix="long-", dir=parent) as directory,
        sinks.running(cores.others) as sink,
    ):
        yield Environment(Path(directory), sink, cores.receiver, settings=settings)


def has_disk(parent: Path, wanted_bytes: float) -> bool:
    """Whether so much is free; says so when not."""
    free_bytes = shutil.disk_usage(parent).free
    if free_bytes >= wanted_bytes:
        return True
    free, wanted = f"{free_bytes / 1e9:.1f} GB", f"{wanted_bytes / 1e9:.1f}"
    log(f"backlog is left out: '{parent}' has {free} free; expected {wanted}")
    return False


def _about(beside: str) -> About:
    command = " ".join(["python -m benchmarks.long", *sys.argv[1:]])
    versions = f"Receiver {receiver.__version__}, Python {platform.python_version()}"
    return About(machine(), versions, command, beside)


def _write(results: Results, out: Path) -> None:
    results.write(out / "long.json")
    (out / "LONG.md").write_text(page(results))
    log(f"written to {out / 'LONG.md'}")


def _interrupted(*_: object) -> None:
    """End as Ctrl-C does: whatever was started is ended on the way out."""
    raise KeyboardInterrupt


def log(text: str) -> None:
    """How it goes."""
    click.echo(text, err=True)


if __name__ == "__main__":
    main()
