"""`trace-drain sql STATEMENT`.

Without a receiver the command reads the store itself, also if `api.sql` is false: its user can read the files
of the store anyway. The guard accepts the same statements in both cases.
"""

from __future__ import annotations

import json
import sys
from typing import Final

import click

from receiver.cli.console.questions import PRINTERS, line_parameters
from receiver.cli.shell.api_client import ResultRows
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, loaded_with
from receiver.console.queries.raw_sql.statement import LINES_DEFAULT, LINES_MAX, parse_sql
from receiver.console.queries.raw_sql.statement import sql as lines_of
from receiver.sizes import counted

PATH: Final = "/api/v1/sql"
STANDARD_INPUT: Final = "-"


@click.command(
    epilog=examples(
        "trace-drain sql 'SELECT ServiceName, count() FROM otel_traces GROUP BY ALL'",
        "trace-drain sql - --format csv < report.sql",
    )
)
@click.argument("statement")
@config_option
@data_option
def sql(statement: str, *, config: str | None, data: str | None, limit: str, form: str) -> None:
    """Run one SELECT statement in ClickHouse's SQL; - reads it from standard input.

    Only tables of the receiver and functions that read nothing else are allowed, with limits of time, memory
    and rows. A running receiver has to allow SQL (api.sql).
    """
    settings = loaded_with(config, data).settings
    text = sys.stdin.read() if statement == STANDARD_INPUT else statement
    members = {"query": text, "limit": limit}
    # Before the store is opened or a receiver is queried, so that a typing error is reported at once.
    query = parse_sql(members)
    rows = ResultRows(
        settings,
        PATH,
        {},
        lambda store: lines_of(store, query),
        method="POST",
        body=json.dumps(members).encode(),
    )
    for line in PRINTERS[form](rows):
        click.echo(line)
    if rows.is_cut:
        click.echo(f"the first {counted(rows.count, 'line')}; --limit N prints up to {LINES_MAX}", err=True)


sql.params.extend(line_parameters(LINES_DEFAULT, LINES_MAX))
