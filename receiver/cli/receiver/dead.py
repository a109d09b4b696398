"""`trace-drain dead ls | show | replay | drop`: dead letters and quarantined bodies.

`ls` and `show` also work while no receiver runs; `replay` and `drop` need a running receiver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Literal, TypedDict
from urllib.parse import quote

import click
import msgspec

from receiver.cli.shell.api_client import NotDone, NothingFound, Row, query_receiver, required_receiver
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import config_option, data_dir_of, data_option, format_option, loaded_with
from receiver.cli.shell.table import lines_of, wide_option
from receiver.dead_letters.directory import DeadLetterList
from receiver.errors import CommandFailed, OperatorError
from receiver.printable import harmless_text
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.supervisor.state import running_receiver


class _Named(TypedDict):
    id: str


class _Replayed(_Named):
    segment: str
    rows: int


@click.group(cls=CommandGroup)
def dead() -> None:
    """List, show, replay and drop dead letters."""


@dead.command(
    epilog=examples("trace-drain dead ls", "trace-drain dead ls --format json --config trace-drain.toml")
)
@config_option
@data_option
@format_option
@wide_option
def ls(config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """List dead letters: rows that the store refuses permanently, and bodies that crashed the decoder."""
    rows = _listed(loaded_with(config, data).settings)
    for line in _table(rows) if form == "table" else map(json.dumps, rows):
        click.echo(line)


@dead.command()
@click.argument("name", metavar="ID")
@config_option
@data_option
@format_option
def show(name: str, config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """Print why ID is a dead letter, which drains and projects sent its rows, and the path of its file."""
    listed = _listed(loaded_with(config, data).settings)
    row = next((row for row in listed if row["id"] == name), None)
    if row is None:
        raise _no_such_dead_letter(name)
    for line in _details(row) if form == "table" else [json.dumps(row)]:
        click.echo(line)


@dead.command()
@click.argument("name", metavar="[ID]", required=False)
@click.option("--all", "is_all", is_flag=True, help="All dead letters.")
@config_option
@data_option
@format_option
def replay(
    name: str | None, config: str | None, data: str | None, form: Literal["table", "json"], *, is_all: bool
) -> None:
    """Move ID, or --all, back into the journal, to be stored again.

    A dead letter that the store still refuses is kept; then the exit code is 1.
    """
    settings = loaded_with(config, data).settings
    if is_all == bool(name):
        raise OperatorError("expected an ID or --all, but not both")
    # Listed once: a dead letter that is kept again must not be replayed without end.
    names = [row["id"] for row in _listed(settings)] if is_all else [str(name)]
    if not names and form == "table":
        click.echo("no dead letters")
    is_any_kept = False
    for replayed_id in names:
        row = _replay(settings, replayed_id)
        is_any_kept |= "kept" in row
        click.echo(json.dumps(row) if form == "json" else _replay_text(row))
    if is_any_kept:
        raise SystemExit(1)


@dead.command()
@click.argument("name", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@config_option
@data_option
def drop(name: str, config: str | None, data: str | None, *, yes: bool) -> None:
    """Delete ID permanently: its spans are lost."""
    settings = loaded_with(config, data).settings
    if not name:
        raise OperatorError("ID is empty; expected an id that `dead ls` prints")
    # Report an unknown id before asking for confirmation.
    _send(settings, name, "GET")
    if not yes:
        click.confirm(f"delete '{harmless_text(name)}' and its spans permanently", abort=True)
    _send(settings, name, "DELETE")
    click.echo(f"{name}: dropped")


def _listed(settings: Settings) -> list[Row]:
    state = running_receiver(settings)
    if state is not None:
        return list(query_receiver(settings, state, "/api/v1/dead", {}))
    dead_letter_list = DeadLetterList(data_dir_of(settings))
    return [msgspec.to_builtins(entry) for entry in dead_letter_list.entries()]


def _no_such_dead_letter(name: str) -> CommandFailed:
    return CommandFailed(f"no dead letter has the id '{name}'; expected an id that `dead ls` prints")


def _send(
    settings: Settings, name: str, method: str, subpath: str = "", document: type = _Named
) -> list[Row]:
    state = required_receiver(settings)
    # Also a slash is quoted: an id must not address another route.
    path = f"/api/v1/dead/{quote(name, safe='')}{subpath}"
    try:
        return list(query_receiver(settings, state, path, {}, method=method, document=document))
    except NothingFound as error:
        raise _no_such_dead_letter(name) from error


def _replay(settings: Settings, name: str) -> Row:
    try:
        (row,) = _send(settings, name, "POST", "/replay", _Replayed)
    except NotDone as error:
        return {"id": name, "kept": str(error)}
    return row


def _replay_text(row: Row) -> str:
    if "kept" in row:
        return harmless_text(f"{row['id']}: kept: {row['kept']}")
    if not row["segment"]:
        return f"{row['id']}: deleted, because it contained no rows"
    return f"{row['id']}: {counted(row['rows'], 'row')} moved into the journal as segment {row['segment']}"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    head = ("id", "cause", "rows", "bytes", "kept since (UTC)", "drain", "project", "why")
    cells = [_cells(row) for row in rows]
    optional = ("bytes", "project", "drain", "kept since (UTC)")
    yield from lines_of(head, cells, optional=optional) if cells else ["no dead letters"]


def _cells(row: Row) -> list[str]:
    rows = "?" if row["rows"] is None else str(row["rows"])
    drains, projects = _owner(row)
    return [row["id"], row["cause"], rows, str(row["bytes"]), row["at"][:19], drains, projects, row["text"]]


def _owner(row: Row) -> tuple[str, str]:
    drains = {delivery["drain"] for delivery in row["deliveries"]}
    projects = {project for delivery in row["deliveries"] for project in delivery["projects"]}
    return ", ".join(sorted(drains)), ", ".join(sorted(projects))


def _details(row: Row) -> Iterator[str]:
    yield from (
        f"{what:<10} {harmless_text('?' if value is None else str(value))}"
        for what, value in row.items()
        if what != "deliveries"
    )
    for delivery in row["deliveries"]:
        projects = ", ".join(f"'{project}'" for project in delivery["projects"]) or "not known yet"
        rows = counted(delivery["rows"], "row") if delivery["rows"] else "? rows"
        origin = f"of drain '{delivery['drain']}', project {projects}, {rows}"
        yield harmless_text(f"delivery   {delivery['digest']} {origin}")
