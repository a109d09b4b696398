"""`trace-drain platform installations`: installations that the running receiver has."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal

import click

from receiver.cli.shell.api_client import Row, query_receiver, required_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, format_option, loaded_with
from receiver.cli.shell.table import lines_of, wide_option


@click.command(
    epilog=examples("trace-drain platform installations", "trace-drain platform installations --format json")
)
@config_option
@data_option
@format_option
@wide_option
def installations(config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """List the installations of the integration, with the state, the scopes and the token of each."""
    settings = loaded_with(config, data).settings
    # Not read from the files: another user's command must not change their owner.
    rows = list(query_receiver(settings, required_receiver(settings), "/api/v1/platform/installations", {}))
    for line in _table(rows) if form == "table" else map(json.dumps, rows):
        click.echo(line)


def _table(rows: Iterable[Row]) -> Iterator[str]:
    head = ("installation", "state", "since (UTC)", "team", "scopes", "token", "deleted at (UTC)")
    cells = [
        (
            row["id"],
            row["state"],
            row["since"],
            row["team"] or "(account)",
            "not known" if row["scopes"] is None else " ".join(row["scopes"]) or "none",
            row["token"] or "none",
            row["deleted_at"] or "-",
        )
        for row in rows
    ]
    if not cells:
        return iter(["no installations; the page /platform installs"])
    return lines_of(head, cells, optional=("scopes", "deleted at (UTC)", "team"))
