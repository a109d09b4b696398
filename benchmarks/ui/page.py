"""Generator of benchmarks/UI.md."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from statistics import median, quantiles

from benchmarks.report import row
from benchmarks.ui.results import PageRun, Results, TraceResult

DRAWN_SPANS, DRAWN_MS = 50_000, 500.0
"""Goal for the browser's part of a trace of this size."""
FRAME_MS = 16.8
"""Goal for the 95th percentile of frames: 60 a second. The browser's clock has steps of 0.1 ms."""

_HEAD = f"""\
# Benchmarks of the pages

Written by `make bench-ui`; `ui.json` has every run. `ARGS="--help"` lists the options.

A receiver with the embedded store and Chromium (headless, 1280 × 800 pixels) run on one machine. It has no
GPU, so the processor draws; a frame costs less on a reader's machine. Each cell is the median of the
runs, then the lowest and the highest. The load average shows how busy the machine was with other work: above
its number of cores, the times by the clock are longer than those of an idle machine, so the CPU time of the
page's thread stands beside them.

The goals: a trace of {DRAWN_SPANS:,} spans is drawn within {DRAWN_MS:.0f} ms after the first byte of its
spans; the 95th percentile of the frames of a scrolled waterfall is {FRAME_MS} ms (60 a second)."""


def page(results: Results) -> str:
    """Return the text of UI.md."""
    lines = [_HEAD]
    if results.traces or results.pages:
        lines.append(
            f"\nMachine: {results.machine}, load average {results.load:.1f}. Chromium {results.chromium}."
        )
    if results.traces:
        lines += _of_traces(results.traces)
    if results.pages:
        lines += _of_pages(results.pages)
    return "\n".join(lines) + "\n"


def spread(numbers: Iterable[float]) -> str:
    """Return the median, the lowest and the highest of some numbers."""
    found = sorted(numbers)
    low, middle, high = (_text(number) for number in (found[0], median(found), found[-1]))
    return f"{middle} ({low}; {high})"


def _text(number: float) -> str:
    return f"{number:,.1f}" if number < 100 else f"{number:,.0f}"  # noqa: PLR2004 - three digits


def _verdict(number: float, goal: float) -> str:
    return "met" if number <= goal else f"missed: {number / goal:.2f} times"


def _of_traces(traces: list[TraceResult]) -> Iterator[str]:
    yield "\n## Waterfall\n"
    yield (
        "**Browser** is the time from the first byte of the spans to the first drawn rows; **whole** is the\n"
        "time from the first byte of the page, with the queries and the tree on the server.\n"
    )
    yield row(["spans", "browser, ms", "goal", "whole, ms", "page's thread, CPU ms", "spans, compressed KiB"])
    yield row(["---"] * 6)
    for trace in traces:
        browser_ms = [run.spans_ms for run in trace.drawn]
        goal = f"{DRAWN_MS:.0f}, {_verdict(median(browser_ms), DRAWN_MS)}"
        yield row(
            [
                f"{trace.spans:,}",
                spread(browser_ms),
                goal if trace.spans == DRAWN_SPANS else "",
                spread(run.page_ms for run in trace.drawn),
                spread(run.cpu_ms for run in trace.drawn),
                _text(trace.drawn[0].kib),
            ]
        )
    yield "\n## Scrolling\n"
    yield (
        "A waterfall of more than 100,000 spans begins with three levels, so it has few rows to scroll: its\n"
        "late frames are those that the other work on the machine delays.\n"
    )
    yield row(["spans", "frames", "p50, ms", "p95, ms", "goal", "page's thread, CPU ms a frame"])
    yield row(["---"] * 6)
    for trace in traces:
        p95_ms = [quantiles(run.frames_ms, n=20)[-1] for run in trace.scrolled]
        yield row(
            [
                f"{trace.spans:,}",
                f"{sum(len(run.frames_ms) for run in trace.scrolled):,}",
                spread(median(run.frames_ms) for run in trace.scrolled),
                spread(p95_ms),
                f"{FRAME_MS}, {_verdict(median(p95_ms), FRAME_MS)}",
                spread(run.cpu_ms_per_frame for run in trace.scrolled),
            ]
        )


def _of_pages(pages: dict[str, list[PageRun]]) -> Iterator[str]:
    yield "\n## Pages\n"
    yield (
        "Time of a page of the shop's last hour, without a browser, and of the queries within it. The rest\n"
        "is the page's own work: parsing answers, charts, the template.\n"
    )
    yield row(["page", "page, ms", "its queries, ms", "rest, ms", "KiB"])
    yield row(["---"] * 5)
    for path, runs in pages.items():
        yield row(
            [
                f"`{path}`",
                spread(run.page_ms for run in runs),
                spread(run.queries_ms for run in runs),
                spread(run.page_ms - run.queries_ms for run in runs),
                _text(runs[0].kib),
            ]
        )
