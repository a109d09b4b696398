"""Results of the benchmarks of the pages, as stored in ui.json."""

from __future__ import annotations

import msgspec

from benchmarks.results_file import ResultsFile


class Drawn(msgspec.Struct):
    """A waterfall until its first rows are drawn."""

    page_ms: float
    """Since the first byte of the page, with the queries and the tree on the server."""
    spans_ms: float
    """Since the first byte of the spans: the browser's part."""
    kib: float
    """Compressed spans."""
    cpu_ms: float
    """CPU time of the page's thread."""


class Scrolled(msgspec.Struct):
    """Frames of a scrolled waterfall."""

    frames_ms: list[float]
    cpu_ms_per_frame: float


class TraceResult(msgspec.Struct):
    """Runs with a trace."""

    spans: int
    drawn: list[Drawn]
    scrolled: list[Scrolled]


class PageRun(msgspec.Struct):
    """A request for a page."""

    page_ms: float
    queries_ms: float
    kib: float


class Results(ResultsFile):
    """Content of ui.json."""

    machine: str = ""
    load: float = 0.0
    """Load average of the machine at the end."""
    chromium: str = ""
    traces: list[TraceResult] = msgspec.field(default_factory=list)
    pages: dict[str, list[PageRun]] = msgspec.field(default_factory=dict)
