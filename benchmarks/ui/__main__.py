"""Command line of `make bench-ui`: measures the pages and writes ui.json and UI.md."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from secrets import token_hex

import click
from playwright.sync_api import Browser

from benchmarks.report import machine
from benchmarks.store.workspace import log
from benchmarks.ui.browse import chromium, draw
from benchmarks.ui.page import page
from benchmarks.ui.page_times import page_times
from benchmarks.ui.receiver import Receiver, running_receiver
from benchmarks.ui.results import Results, TraceResult
from benchmarks.ui.shop import large_trace, shop

HERE = Path(__file__).parent.parent
SHOP_TRACES = 3_000


@click.command()
@click.option(
    "--spans",
    default="1000,10000,50000,200000",
    show_default=True,
    help="Sizes of traces, separated by commas.",
)
@click.option(
    "--runs", default=5, show_default=True, type=click.IntRange(1), help="Runs of each measurement."
)
@click.option("--dir", "parent", type=click.Path(path_type=Path), default=HERE / ".last", show_default=True)
@click.option("--out", type=click.Path(path_type=Path), default=HERE, help="Directory of the results.")
def main(*, spans: str, runs: int, parent: Path, out: Path) -> None:
    """Measure waterfalls in Chromium, and the pages over a web shop's spans."""
    for directory in (parent, out):
        directory.mkdir(parents=True, exist_ok=True)
    results = Results(machine())
    with tempfile.TemporaryDirectory(prefix="ui-", dir=parent) as name:
        small = token_hex(16)
        with running_receiver(Path(name)) as receiver, chromium() as browser:
            results.chromium = browser.version
            receiver.send(shop(SHOP_TRACES))
            receiver.send(large_trace(small, 1_000))
            for size in map(int, spans.split(",")):
                results.traces.append(_measured(receiver, browser, size, runs))
        log("times of the pages")
        results.pages = page_times(Path(name), small, runs)
    results.load = os.getloadavg()[0]
    results.write(out / "ui.json")
    (out / "UI.md").write_text(page(results))
    log(f"results written to {out / 'UI.md'}")


def _measured(receiver: Receiver, browser: Browser, spans: int, runs: int) -> TraceResult:
    trace_id = token_hex(16)
    receiver.send(large_trace(trace_id, spans))
    receiver.wait_until_stored(trace_id, spans)
    result = TraceResult(spans, [], [])
    for _ in range(runs):
        drawn, scrolled = draw(browser, f"{receiver.pages}/trace/{trace_id}")
        result.drawn.append(drawn)
        result.scrolled.append(scrolled)
        log(f"{spans} spans: drawn {drawn.spans_ms:.0f} ms after their first byte")
    return result


if __name__ == "__main__":
    main()
