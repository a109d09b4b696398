"""`trace-drain spans`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import click

from receiver.cli.asking import answered, rows_in, running_on, store_of
from receiver.cli.group import examples
from receiver.cli.options import config_option, data_option, loaded_with
from receiver.cli.table import counted, duration_text, lines_of
from receiver.errors import OperatorError, Refused
from receiver.logs import harmless_text
from receiver.query import spans as question
from receiver.query.limits import SPANS_DEFAULT, SPANS_MAX
from receiver.settings import Settings


@click.command(
    epilog=examples(
        "trace-drain spans --since 15m --project prj_1 --service web",
        "trace-drain spans --since 24h --limit 1000000 --format jsonl > spans.jsonl",
    )
)
@config_option
@data_option
@click.option("--since", default="1h", show_default=True, metavar="AGE", help="How far back: 15m, 24h, 7d.")
@click.option("--project", metavar="ID", help="Only spans of this project.")
@click.option("--service", metavar="NAME", help="Only spans of this service.")
@click.option(
    "--limit",
    default=str(SPANS_DEFAULT),
    show_default=True,
    metavar="N",
    help=f"Print at most the newest N spans; up to {SPANS_MAX}.",
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    help="jsonl: every stored column, one JSON object per span.",
)
def spans(  # noqa: PLR0913 - one parameter an option
    config: str | None,
    data: str | None,
    *,
    since: str,
    project: str | None,
    service: str | None,
    limit: str,
    form: Literal["table", "jsonl"],
) -> None:
    """Search spans, newest first.

    If more spans match than --limit, or none, a note on standard error says so.
    """
    settings = loaded_with(config, data).settings
    try:
        shown_max = question.parse_limit(limit)
    except Refused as reason:
        raise OperatorError(str(reason)) from reason
    filters = {"since": since, "project": project, "service": service}
    given = {name: value for name, value in filters.items() if value is not None}
    given["limit"] = str(min(shown_max + 1, SPANS_MAX))
    rows = _Counted(_found(settings, given), shown_max)
    printed = _table if form == "table" else _json_lines
    for line in printed(rows):
        click.echo(line)
    if note := _note(rows, since):
        click.echo(note, err=True)


class _Counted:
    """Yields the first rows of an answer, counts them, and notes whether more may follow."""

    def __init__(self, rows: Iterator[dict[str, Any]], rows_max: int) -> None:
        self._rows = rows
        self.rows_max = rows_max
        self.count = 0
        self.has_more = False

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for row in self._rows:
            if self.count == self.rows_max:
                self.has_more = True
                continue  # read on: an answer that is not read to its end counts as broken off
            self.count += 1
            yield row
        self.has_more |= self.count == SPANS_MAX


def _note(rows: _Counted, since: str) -> str:
    """Say what the answer leaves out; empty: nothing."""
    if not rows.count:
        return f"no span of the last {harmless_text(since)} matches; --since AGE looks further back"
    if not rows.has_more:
        return ""
    what = f"the newest {counted(rows.count, 'span')} of the last {harmless_text(since)}"
    if rows.rows_max == SPANS_MAX:
        return f"{what}, the most that one answer holds; --since, --project and --service narrow the search"
    return f"{what}; there are more: --limit N prints up to {SPANS_MAX}"


def _found(settings: Settings, given: dict[str, str]) -> Iterator[dict[str, Any]]:
    try:
        wanted = question.SpanFilter(
            since_s=question.parse_since(given["since"]),
            project=given.get("project"),
            service=given.get("service"),
            limit=question.parse_limit(given["limit"]),
        )
    except Refused as reason:
        raise OperatorError(str(reason)) from reason
    state = running_on(settings)
    if state is not None:
        yield from answered(settings, state, "/api/v1/spans", given)
        return
    with store_of(settings) as store:
        yield from rows_in(question.spans(store, wanted, now_s=time.time()))


def _json_lines(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    """Print ASCII only: many readers take U+2028 and similar characters in a name for the end of a line."""
    return (json.dumps(row, separators=(",", ":")) for row in rows)


def _table(rows: Iterable[dict[str, Any]]) -> Iterator[str]:
    cells = [
        (
            row["Timestamp"][:23],
            row["ProjectId"],
            row["ServiceName"],
            row["SpanName"],
            duration_text(row["Duration"]),
            row["StatusCode"],
            row["TraceId"],
        )
        for row in rows
    ]
    head = ("started (UTC)", "project", "service", "span", "duration", "status", "trace")
    return lines_of(head, cells) if cells else iter(())
