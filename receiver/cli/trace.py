"""`trace-drain trace ID`."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Literal

import click

from receiver.cli.asking import NothingFound, answered, rows_in, running_on, store_of
from receiver.cli.group import examples
from receiver.cli.options import config_option, data_option, loaded_with
from receiver.cli.table import counted, duration_text, shown_text
from receiver.errors import CommandFailed, OperatorError, Refused
from receiver.query import traces as question
from receiver.settings import Settings

Row = dict[str, Any]

ARRIVAL_S = 3.0
"""How long a trace that is not stored yet is waited for."""
POLL_S = 0.25


@click.command(
    epilog=examples(
        "trace-drain trace 5b8efff798038103d269b633813fc60c",
        "trace-drain trace 5b8efff798038103d269b633813fc60c --format json | jq '.[].SpanName'",
    )
)
@click.argument("trace_id", metavar="ID")
@config_option
@data_option
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json", "jsonl"]),
    default="table",
    help="table: a tree; json: one array, jsonl: one object per line, with every stored column.",
)
def trace(
    trace_id: str, config: str | None, data: str | None, *, form: Literal["table", "json", "jsonl"]
) -> None:
    """Print the spans of the trace ID, 32 hex digits.

    A trace that was sent just now is waited for: spans are readable a second or two after their 200.
    """
    settings = loaded_with(config, data).settings
    try:
        plain = question.normalized_trace_id(trace_id)
    except Refused as reason:
        raise OperatorError(str(reason)) from reason
    rows = _rows(settings, plain)
    if not rows:
        raise CommandFailed(f"no span of trace {plain} is stored; it may have expired, or not have arrived")
    if form == "json":
        click.echo(json.dumps(rows, ensure_ascii=False, indent=2))
        return
    lines = tree(rows) if form == "table" else (json.dumps(row, ensure_ascii=False) for row in rows)
    for line in lines:
        click.echo(line)


def _rows(settings: Settings, trace_id: str) -> list[Row]:
    """Return all its rows, once there are any. Wait only where a receiver runs."""
    running = running_on(settings) is not None
    deadline = time.monotonic() + (ARRIVAL_S if running else 0)
    while True:
        try:
            return list(_found(settings, trace_id))
        except NothingFound:
            if time.monotonic() >= deadline:
                raise
        time.sleep(POLL_S)


def _found(settings: Settings, trace_id: str) -> Iterator[Row]:
    state = running_on(settings)
    if state is not None:
        yield from answered(settings, state, f"/api/v1/traces/{trace_id}", {})
        return
    with store_of(settings) as store:
        yield from rows_in(question.trace(store, trace_id))


def tree(rows: list[Row]) -> Iterator[str]:
    """Yield a line for each span under its parent. A span whose parent is not stored is at the top, marked.

    Senders make cycles, spans that are their own parents, two spans with one id: each row is printed once.
    """
    ids = {row["SpanId"] for row in rows}
    children: dict[str, list[int]] = defaultdict(list)
    for place, row in enumerate(rows):
        children[row["ParentSpanId"]].append(place)
    services = sorted({service_text(row["ServiceName"]) for row in rows})
    yield f"trace {rows[0]['TraceId']}: {counted(len(rows), 'span')} of {', '.join(services)}"
    tops = [place for place, row in enumerate(rows) if row["ParentSpanId"] not in ids]
    printed: set[int] = set()
    for top in [*tops, *range(len(rows))]:
        waiting = [(top, 0)]
        while waiting:
            place, depth = waiting.pop()
            if place in printed:
                continue
            printed.add(place)
            yield _line(rows[place], depth, is_orphan=depth == 0 and bool(rows[place]["ParentSpanId"]))
            below = children[rows[place]["SpanId"]]
            waiting.extend((child, depth + 1) for child in reversed(below))


def _line(row: Row, depth: int, *, is_orphan: bool) -> str:
    marks = [
        f"[{row['StatusCode'].lower()}]" if row["StatusCode"] == "Error" else "",
        shown_text(row["StatusMessage"]) if row["StatusCode"] == "Error" else "",
        "(parent not stored)" if is_orphan else "",
    ]
    indent = "  " * min(depth, DEPTH_SHOWN_MAX)
    notes = " ".join(mark for mark in marks if mark)
    return (
        f"{row['Timestamp'][11:23]}  {duration_text(row['Duration']):>8}  "
        f"{indent}{service_text(row['ServiceName'])}: {shown_text(row['SpanName']) or NO_NAME} {notes}"
    ).rstrip()


def service_text(service: str) -> str:
    """Return the service's name, or that there is none."""
    return shown_text(service) or NO_SERVICE


DEPTH_SHOWN_MAX = 40
"""Deeper spans are not indented further."""
NO_SERVICE = "(no service)"
NO_NAME = "(no name)"
