"""`trace-drain trace ID`: one trace as a waterfall, or compared with another trace."""

from __future__ import annotations

import gc
import json
import os
import shutil
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Literal

import click

from receiver.cli.console.questions import json_lines
from receiver.cli.console.waterfall import View, indentation, span_text, waterfall
from receiver.cli.shell.api_client import (
    NothingFound,
    NotReady,
    parsed_rows,
    query_receiver,
    receiver_or_store,
)
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, loaded_with
from receiver.cli.shell.table import ms_text
from receiver.console.queries.limits import SPANS_MAX
from receiver.console.queries.traces import traces as question
from receiver.console.queries.traces.otlp import OtlpFormat, encoded
from receiver.console.queries.traces.trace_model import Row, trace_of
from receiver.engine.store import Store
from receiver.errors import CommandFailed, OperatorError
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.supervisor.state import ReceiverState, running_receiver

Format = Literal["table", "json", "jsonl", "otlp"]

ARRIVAL_S = 3.0
"""How long the command waits for a trace that is not stored yet."""
POLL_S = 0.25
COMPARISON_COLUMNS = 80
"""Width of the text of a compared span."""
COLUMNS_DEFAULT = 100


@click.command(
    epilog=examples(
        "trace-drain trace 5b8efff798038103d269b633813fc60c",
        "trace-drain trace 5b8efff798038103d269b633813fc60c --errors",
        "trace-drain trace 5b8efff798038103d269b633813fc60c --against 0af7651916cd43dd8448eb211c80319c",
        "trace-drain trace 5b8efff798038103d269b633813fc60c --format json | jq '.[].SpanName'",
    )
)
@click.argument("trace_id", metavar="ID")
@config_option
@data_option
@click.option(
    "--errors", "errors_only", is_flag=True, help="Only spans with errors, and the spans above them."
)
@click.option("--depth", type=click.IntRange(min=1), metavar="N", help="Only the first N levels of the tree.")
@click.option("--against", metavar="ID2", help="Compare with the trace ID2: missing, new and slower spans.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "jsonl", "otlp"]),
    default="table",
    help="table: a waterfall; json: one array, jsonl: one object per line, with every stored column; "
    "otlp: OTLP JSON.",
)
def trace(  # noqa: PLR0913 - one parameter an option
    trace_id: str,
    config: str | None,
    data: str | None,
    *,
    errors_only: bool,
    depth: int | None,
    against: str | None,
    form: Format,
) -> None:
    """Print the spans of the trace ID, 32 hex digits, as a tree with the times of each span.

    Waits a few seconds for a trace that was just sent: spans are readable a second or two after their 200.
    """
    settings = loaded_with(config, data).settings
    plain = question.normalized_trace_id(trace_id)
    if (errors_only or depth) and (form != "table" or against):
        raise OperatorError("--errors and --depth shorten the waterfall; expected them without other options")
    if against is not None:
        if form == "otlp":
            raise OperatorError("--against: expected --format table, json or jsonl")
        other = question.normalized_trace_id(against)
        path = f"/api/v1/traces/{plain}/compare/{other}"
        ids = f"{plain} or of trace {other}"
        rows = _rows(settings, path, lambda store: question.comparison(store, plain, other), ids)
        _print(rows, form, lambda rows: _comparison_lines(rows, plain, other))
        return
    path = f"/api/v1/traces/{plain}"
    rows = _rows(settings, path, lambda store: question.trace(store, plain).pieces(), plain)
    if form == "otlp":
        _print_otlp(rows)
        return
    _print(rows, form, lambda rows: waterfall(trace_of(rows), terminal_view(depth, errors_only=errors_only)))
    if len(rows) >= SPANS_MAX:
        click.echo(f"the first {counted(len(rows), 'row')} by start; the trace may have more", err=True)


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector, which would scan the rows of a large trace again and again."""
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@_collector_paused()
def _rows(
    settings: Settings, path: str, of_store: Callable[[Store], Iterator[bytes]], trace_id: str
) -> list[Row]:
    """Return the rows of a result. If a receiver runs, wait a few seconds for rows to appear."""

    def of_receiver(state: ReceiverState) -> Iterator[Row]:
        return query_receiver(settings, state, path, {})

    # Without a receiver nothing arrives, so waiting would be in vain.
    running = running_receiver(settings) is not None
    deadline = time.monotonic() + (ARRIVAL_S if running else 0)
    while True:
        missing = CommandFailed(f"no span of trace {trace_id} is stored; it has expired or has not arrived")
        try:
            if rows := list(
                receiver_or_store(settings, of_receiver, lambda store: parsed_rows(of_store(store)))
            ):
                return rows
        except NothingFound:
            pass
        except NotReady as error:
            # A receiver that has just started creates its tables first.
            missing = error
        if time.monotonic() >= deadline:
            raise missing
        time.sleep(POLL_S)


@_collector_paused()
def _print(rows: list[Row], form: Format, table: Callable[[list[Row]], Iterable[str]]) -> None:
    if form == "json":
        click.echo(json.dumps(rows, indent=2))
        return
    lines = table(rows) if form == "table" else json_lines(rows)
    # A write per line is slow: click flushes each.
    click.echo("\n".join(lines))


def _print_otlp(rows: list[Row]) -> None:
    if len(rows) >= SPANS_MAX:
        # The rows do not say whether the result was cut, and OTLP could not express it either.
        raise CommandFailed(f"the trace may have over {SPANS_MAX} spans, too many for OTLP")
    # OTLP has no field for the number of copies, and a reader would count them as spans.
    distinct = (span.row for span in trace_of(rows).spans)
    pieces = encoded(sorted(distinct, key=question.group_of), OtlpFormat.JSON)
    click.echo(b"".join(pieces))


def terminal_view(depth: int | None, *, errors_only: bool) -> View:
    """Return how to print a trace on standard output: a file gets whole lines without colors."""
    is_terminal = sys.stdout is not None and sys.stdout.isatty()  # None: it is closed
    return View(
        columns=shutil.get_terminal_size((COLUMNS_DEFAULT, 24)).columns if is_terminal else COLUMNS_DEFAULT,
        is_cut=is_terminal,
        has_colors=is_terminal and not os.environ.get("NO_COLOR"),
        errors_only=errors_only,
        depth_max=depth,
    )


def _comparison_lines(rows: list[Row], trace_id: str, other_id: str) -> Iterator[str]:
    """Yield a heading, and a line for each pair of spans and each span of one trace alone."""
    counts = Counter(row["change"] for row in rows)
    yield f"A: trace {trace_id}"
    yield f"B: trace {other_id}"
    both, removed, added = (counts[change] for change in ("none", "removed", "added"))
    yield f"{counted(both, 'span')} in both, {removed} only in A, {added} only in B"
    yield f"{'A':>8} {'B':>8} {'B - A':>9}"
    for row in rows:
        text = indentation(row["depth"], COMPARISON_COLUMNS) + span_text(row["service"], row["name"])
        times = f"{_side_duration(row['a']):>8} {_side_duration(row['b']):>8} {_change(row):>9}"
        yield f"{times} {text} {_note(row)}".rstrip()


def _side_duration(span: dict[str, Any] | None) -> str:
    return ms_text(span["duration_ms"]) if span else "-"


def _change(row: Row) -> str:
    if row["duration_change_ms"] is None:
        return "only in A" if row["b"] is None else "only in B"
    change_ms = row["duration_change_ms"]
    return f"{'-' if change_ms < 0 else '+'}{ms_text(abs(change_ms))}"


def _note(row: Row) -> str:
    statuses = [span["status"] for span in (row["a"], row["b"]) if span]
    if "Error" not in statuses:
        return ""
    if len(statuses) == 1 or statuses[0] == statuses[1]:
        return "[error]"
    return "[error only in A]" if statuses[0] == "Error" else "[error only in B]"
