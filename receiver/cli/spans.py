"""`trace-drain spans`."""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import click

from receiver.cli.asking import answered, rows_in, running_on, store_of
from receiver.cli.options import config_option, data_option, loaded_with
from receiver.cli.table import duration_text, lines_of
from receiver.errors import OperatorError, Refused
from receiver.query import spans as question
from receiver.settings import Settings


@click.command()
@config_option
@data_option
@click.option("--since", default="1h", show_default=True, metavar="AGE", help="15m, 24h, 7d: how far back.")
@click.option("--project", metavar="ID", help="Of this project only.")
@click.option("--service", metavar="NAME", help="Of this service only.")
@click.option("--limit", default="100", show_default=True, metavar="N", help="The newest so many.")
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "jsonl"]),
    default="table",
    help="jsonl: every stored column, one span a line.",
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
    """Search spans, newest first."""
    settings = loaded_with(config, data).settings
    filters = {"since": since, "project": project, "service": service, "limit": limit}
    given = {name: value for name, value in filters.items() if value is not None}
    shown = _table if form == "table" else _json_lines
    for line in shown(_found(settings, given)):
        click.echo(line)


def _found(settings: Settings, given: dict[str, str]) -> Iterator[dict[str, Any]]:
    try:
        wanted = question.Wanted(
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
    """ASCII only: many readers take U+2028 and its like for the end of a line, and names are the sender's."""
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
    return lines_of(("started (UTC)", "project", "service", "span", "took", "status", "trace"), cells)
