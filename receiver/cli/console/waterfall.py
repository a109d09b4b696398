"""A trace as a waterfall for a terminal: a line for each span with its times, a bar, and its name in a tree.

Times are printed as the senders measured them: a child that starts before its parent is marked, not moved.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import click

from receiver.cli.shell.table import shown_text
from receiver.cli.shell.text_width import cut_to_width
from receiver.console.queries.traces.trace_model import Span, Trace, start_ns_of
from receiver.sizes import counted, duration_text

DEPTH_SHOWN_MAX = 40
"""Deeper spans are not indented further."""
NO_SERVICE = "(no service)"
NO_NAME = "(no name)"
EVENTS_SHOWN_MAX = 5
"""Events and links of a span that are printed, each."""
SERVICES_SHOWN_MAX = 10
IDS_SHOWN_MAX = 3
"""Projects and deployments that the heading names, each."""
SHARES_SHOWN_MAX = 3
"""Services whose share of the critical path is in the heading."""
BAR_COLUMNS_MIN = 10
TEXT_COLUMNS_MIN = 30
CRITICAL, OTHER = "█", "─"


class View(NamedTuple):
    """Options of the output: its width, and the spans that are printed."""

    columns: int = 100
    is_cut: bool = False
    """Whether lines wider than the terminal are cut."""
    has_colors: bool = False
    errors_only: bool = False
    """Whether spans are left out that have no error and no span with an error below."""
    depth_max: int | None = None
    """Levels of the tree that are printed."""

    @property
    def bar_columns(self) -> int:
        """Width of the bars."""
        return max(BAR_COLUMNS_MIN, (self.columns - 22) // 3)

    @property
    def text_columns(self) -> int:
        """Width of the text beside the bars."""
        return max(TEXT_COLUMNS_MIN, self.columns - self.bar_columns - 22)


def waterfall(trace: Trace, view: View) -> Iterator[str]:
    """Yield the lines of the waterfall. Control characters in a sender's text are escaped."""
    visible = [span for span in trace.spans if _is_shown(span, view)]
    yield from _heading(trace)
    layout = _Layout(
        trace.start_ns, max(1, trace.end_ns - trace.start_ns), view.bar_columns, view.text_columns
    )
    for span in visible:
        yield _line(span, trace, layout, view)
        if span.row.get("Events.Timestamp") or span.row.get("Links.TraceId"):
            yield from _details(span, layout, view)
    if len(visible) < len(trace.spans):
        yield f"{len(visible)} of {counted(len(trace.spans), 'span')} shown"


def service_text(service: str) -> str:
    """Return the name of the service, or a text for a missing name."""
    return shown_text(service) or NO_SERVICE


@lru_cache(maxsize=4_096)
def span_text(service: str, name: str) -> str:
    """Return the service and the name of a span."""
    return f"{service_text(service)}: {shown_text(name) or NO_NAME}"


def indentation(depth: int, columns: int) -> str:
    """Return the indentation of a span, which leaves `TEXT_COLUMNS_MIN` columns for its text."""
    return "  " * min(depth, DEPTH_SHOWN_MAX, max(0, columns - TEXT_COLUMNS_MIN) // 2)


class _Layout(NamedTuple):
    """Scale and width of the bars, and width of the text beside them."""

    start_ns: int
    duration_ns: int
    columns: int
    text_columns: int

    def bar(self, span: Span) -> str:
        """Return the bar of a span with the sections of the critical path in it."""
        first, end = self._cells(span.start_ns, span.end_ns)
        bar = " " * first + OTHER * (end - first) + " " * (self.columns - end)
        for start_ns, end_ns in span.critical:
            first, end = self._cells(start_ns, end_ns)
            bar = bar[:first] + CRITICAL * (end - first) + bar[end:]
        return bar

    def _cells(self, start_ns: int, end_ns: int) -> tuple[int, int]:
        """Return the first column and the end column of a period, at least one column."""
        first = min((start_ns - self.start_ns) * self.columns // self.duration_ns, self.columns - 1)
        # Rounded up, so that a short span has a column.
        end = -((self.start_ns - end_ns) * self.columns // self.duration_ns)
        return first, max(first + 1, min(end, self.columns))


def _is_shown(span: Span, view: View) -> bool:
    is_deep = view.depth_max is not None and span.depth >= view.depth_max
    return not is_deep and (span.has_error_below or not view.errors_only)


def _heading(trace: Trace) -> Iterator[str]:
    services = sorted({service_text(span.row["ServiceName"]) for span in trace.spans})
    names = ", ".join(services[:SERVICES_SHOWN_MAX])
    if len(services) > SERVICES_SHOWN_MAX:
        names += f" and {counted(len(services) - SERVICES_SHOWN_MAX, 'more service')}"
    errors = sum(span.is_error for span in trace.spans)
    started = min(span.row["Timestamp"] for span in trace.spans)[:23]
    took = duration_text(trace.end_ns - trace.start_ns)
    yield f"trace {trace.root.row['TraceId']}: {counted(len(trace.spans), 'span')} of {names}{_origin(trace)}"
    summary = f"started {started} UTC, took {took}, {counted(errors, 'error')}"
    yield f"{summary}; critical path (* {CRITICAL}): {_shares(trace)}"


def _origin(trace: Trace) -> str:
    """Return the first projects and deployments, each with the number of the others."""
    origin = ""
    for noun, column in (("project", "ProjectId"), ("deployment", "DeploymentId")):
        ids = sorted({shown_text(span.row.get(column, "")) for span in trace.spans} - {""})
        if ids:
            plural = "s" if len(ids) > 1 else ""
            origin += f"; {noun}{plural} {', '.join(ids[:IDS_SHOWN_MAX])}"
        if len(ids) > IDS_SHOWN_MAX:
            origin += f" and {len(ids) - IDS_SHOWN_MAX} more"
    return origin


def _shares(trace: Trace) -> str:
    """Return the services with the most time on the critical path, with their parts of it."""
    times: Counter[str] = Counter()
    for span in trace.spans:
        times[service_text(span.row["ServiceName"])] += span.critical_ns
    # A root without a duration has an empty path.
    total_ns = max(1, times.total())
    shares = [f"{name} {time_ns / total_ns:.0%}" for name, time_ns in times.most_common(SHARES_SHOWN_MAX)]
    return ", ".join(shares)


def _line(span: Span, trace: Trace, layout: _Layout, view: View) -> str:
    text = indentation(span.depth, layout.text_columns) + span_text(
        span.row["ServiceName"], span.row["SpanName"]
    )
    text = " ".join([text, *_notes(span, trace, view)])
    mark = "*" if span.critical else " "
    offset = f"+{duration_text(span.start_ns - layout.start_ns)}"
    if view.is_cut:
        text = cut_to_width(text, layout.text_columns)
    bar = layout.bar(span)
    if view.has_colors:
        bar = click.style(bar, fg="red" if span.is_error else "cyan")
        text = click.style(text, fg="red") if span.is_error else text
    return f"{offset:>9} {duration_text(span.end_ns - span.start_ns):>8} {bar} {mark} {text}".rstrip()


def _notes(span: Span, trace: Trace, view: View) -> Iterator[str]:
    if span.is_error:
        yield "[error]"
        if span.row["StatusMessage"]:
            yield shown_text(span.row["StatusMessage"])
    if span in trace.cyclic:
        yield "(its parent is below it)"
    elif span.is_orphan:
        yield "(parent not stored)"
    if span.skew_ns:
        yield f"(starts {duration_text(span.skew_ns)} before its parent)"
    if span.copies > 1:
        yield f"({span.copies} copies)"
    if span.spans > 1 and span.depth + 1 == view.depth_max:
        yield f"(+{counted(span.spans - 1, 'span')} below)"


def _details(span: Span, layout: _Layout, view: View) -> Iterator[str]:
    """Yield a line for each of the first events and links of a span."""
    events = list(_events(span))
    links = [f"linked to trace {shown_text(trace_id)}" for trace_id in span.row.get("Links.TraceId", ())]
    margin = " " * (9 + 1 + 8 + 1 + layout.columns + 3)
    indent = indentation(span.depth + 1, layout.text_columns)
    for noun, texts in (("event", events), ("link", links)):
        more = len(texts) - EVENTS_SHOWN_MAX
        notes = [f"and {counted(more, f'more {noun}')}"] if more > 0 else []
        for text in [*texts[:EVENTS_SHOWN_MAX], *notes]:
            line = f"{indent}- {text}"
            yield margin + (cut_to_width(line, layout.text_columns) if view.is_cut else line)


def _events(span: Span) -> Iterator[str]:
    row = span.row
    columns = (row.get(f"Events.{column}", ()) for column in ("Timestamp", "Name", "Attributes"))
    for timestamp, name, attributes in zip(*columns, strict=True):
        offset_ns = start_ns_of(timestamp) - span.start_ns
        sign = "-" if offset_ns < 0 else "+"
        parts = [attributes.get("exception.type", ""), attributes.get("exception.message", "")]
        message = ": ".join(shown_text(part) for part in parts if part)
        head = f"{shown_text(name) or NO_NAME} {sign}{duration_text(abs(offset_ns))}"
        yield f"{head} {message}".rstrip()
