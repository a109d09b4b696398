"""`trace-drain platform projects | keep-project`: projects that were removed on the platform."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal
from urllib.parse import quote

import click

from receiver.cli.shell.api_client import Row, query_receiver, required_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, format_option, loaded_with
from receiver.cli.shell.table import lines_of, wide_option
from receiver.time_range import instant_text

PATH = "/api/v1/platform/projects"


@click.command(
    epilog=examples("trace-drain platform projects", "trace-drain platform projects --format json")
)
@config_option
@data_option
@format_option
@wide_option
def projects(config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """List the projects that were removed on the platform, and when their spans are due for deletion."""
    settings = loaded_with(config, data).settings
    rows = list(query_receiver(settings, required_receiver(settings), PATH, {}))
    for line in _table(rows) if form == "table" else map(json.dumps, rows):
        click.echo(line)


@click.command("keep-project", epilog=examples("trace-drain platform keep-project prj_123"))
@config_option
@data_option
@click.argument("project")
def keep_project(config: str | None, data: str | None, project: str) -> None:
    """Keep the spans of a removed PROJECT: they do not become due for deletion."""
    settings = loaded_with(config, data).settings
    path = f"{PATH}/{quote(project, safe='')}/keep"
    # The request is sent when the response is read.
    list(query_receiver(settings, required_receiver(settings), path, {}, method="POST", document=dict))
    click.echo(f"the spans of {project} are kept")


def _table(rows: Iterable[Row]) -> Iterator[str]:
    head = ("project", "name", "removed (UTC)", "spans")
    cells = [
        (
            row["id"],
            row["name"] or "-",
            _time(row["removed_at_s"]),
            "kept" if row["is_kept"] else f"due for deletion from {_time(row['due_at_s'])}",
        )
        for row in rows
    ]
    return lines_of(head, cells) if cells else iter(["no project was removed"])


def _time(at_s: float) -> str:
    return instant_text(at_s, "minutes", sep=" ", zone="")
