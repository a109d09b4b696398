"""`trace-drain views list | export | import`: saved views of pages. They need a running receiver."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, BinaryIO, Literal, TypedDict

import click

from receiver.cli.shell.api_client import query_receiver, required_receiver
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import config_option, data_option, format_option, loaded_with
from receiver.cli.shell.table import lines_of
from receiver.console.ui.views.store import ViewsDocument
from receiver.printable import harmless_text
from receiver.sizes import counted

_PATH = "/api/v1/views"


class _Saved(TypedDict):
    """Number of the views that were saved."""

    saved: int


@click.group(cls=CommandGroup)
def views() -> None:
    """List, export and import the saved views of the pages."""


@views.command("list")
@config_option
@data_option
@format_option
def list_views(config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """List the saved views."""
    found = _document(config, data)["views"]
    cells = [(harmless_text(each["name"]), harmless_text(each["url"])) for each in found]
    table = lines_of(("name", "page"), cells) if cells else ["no saved views"]
    for line in map(json.dumps, found) if form == "json" else table:
        click.echo(line)


@views.command(epilog=examples("trace-drain views export > views.json"))
@config_option
@data_option
def export(config: str | None, data: str | None) -> None:
    """Print all saved views as one JSON document, sorted by name."""
    click.echo(json.dumps(_document(config, data), indent=2))


@views.command("import", epilog=examples("trace-drain views import views.json"))
@click.argument("file", type=click.File("rb"))
@config_option
@data_option
def import_views(file: BinaryIO, config: str | None, data: str | None) -> None:
    """Save the views of FILE, or of standard input if it is -. A view replaces the one of the same name."""
    settings = loaded_with(config, data).settings
    state = required_receiver(settings)
    (row,) = query_receiver(settings, state, _PATH, {}, method="POST", body=file.read(), document=_Saved)
    click.echo(f"{counted(row['saved'], 'view')} saved")


def _document(config: str | None, data: str | None) -> Mapping[str, Any]:
    settings = loaded_with(config, data).settings
    (document,) = query_receiver(settings, required_receiver(settings), _PATH, {}, document=ViewsDocument)
    return document
