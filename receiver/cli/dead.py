"""`trace-drain dead ls | show | replay | drop`: dead letters and quarantined bodies.

`ls` and `show` also work while no receiver runs; `replay` and `drop` ask the running receiver.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import Any, Literal
from urllib.parse import quote

import click
import msgspec

from receiver.cli.asking import NotDone, NothingFound, answered, running_on
from receiver.cli.group import Group, examples
from receiver.cli.options import config_option, data_dir_of, data_option, loaded_with, serving
from receiver.cli.table import counted, lines_of
from receiver.dead_letters.listing import DeadLetterList
from receiver.errors import CommandFailed, OperatorError
from receiver.logs import harmless_text
from receiver.settings import Settings

format_option = click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="json: one object a line."
)
Row = dict[str, Any]


@click.group(cls=Group)
def dead() -> None:
    """List, show, replay and drop dead letters."""


@dead.command(
    epilog=examples("trace-drain dead ls", "trace-drain dead ls --format json --config trace-drain.toml")
)
@config_option
@data_option
@format_option
def ls(config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """List dead letters: rows that the store refuses for good, and bodies that crashed the decoder."""
    rows = _listed(loaded_with(config, data).settings)
    for line in _table(rows) if form == "table" else map(json.dumps, rows):
        click.echo(line)


@dead.command()
@click.argument("name", metavar="ID")
@config_option
@data_option
@format_option
def show(name: str, config: str | None, data: str | None, form: Literal["table", "json"]) -> None:
    """Print why ID is a dead letter, whose rows it holds, and the path of its bytes."""
    listed = _listed(loaded_with(config, data).settings)
    row = next((row for row in listed if row["id"] == name), None)
    if row is None:
        raise _not_there(name)
    for line in _card(row) if form == "table" else [json.dumps(row)]:
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
    """Move ID, or --all, back into the journal, from where it is stored.

    A dead letter that the store still refuses is kept; then the exit code is 1.
    """
    settings = loaded_with(config, data).settings
    if is_all == bool(name):
        raise OperatorError("expected an ID or --all, not both")
    names = [row["id"] for row in _listed(settings)] if is_all else [str(name)]
    if not names and form == "table":
        click.echo("no dead letters")
    is_any_kept = False
    for replayed_id in names:
        row = _replayed(settings, replayed_id)
        is_any_kept |= "kept" in row
        click.echo(json.dumps(row) if form == "json" else _told(row))
    if is_any_kept:
        raise SystemExit(1)


@dead.command()
@click.argument("name", metavar="ID")
@click.option("--yes", is_flag=True, help="Do not ask for confirmation.")
@config_option
@data_option
def drop(name: str, config: str | None, data: str | None, *, yes: bool) -> None:
    """Delete ID for good: its spans are lost."""
    settings = loaded_with(config, data).settings
    if not name:
        raise OperatorError("ID is empty; expected an id that `dead ls` prints")
    _asked(settings, name, "GET")
    if not yes:
        click.confirm(f"delete '{harmless_text(name)}' and its spans for good", abort=True)
    _asked(settings, name, "DELETE")
    click.echo(f"{name}: dropped")


def _listed(settings: Settings) -> list[Row]:
    state = running_on(settings)
    if state is not None:
        return list(answered(settings, state, "/api/v1/dead", {}))
    dead_letter_list = DeadLetterList(data_dir_of(settings))
    return [msgspec.to_builtins(one) for one in dead_letter_list.entries()]


def _not_there(name: str) -> CommandFailed:
    return CommandFailed(f"no dead letter is called '{name}'; expected an id that `dead ls` prints")


def _asked(settings: Settings, name: str, method: str, below: str = "") -> list[Row]:
    state = running_on(settings)
    if state is None:
        raise CommandFailed(f"no receiver runs on '{settings.data_dir}'; expected one: `{serving(settings)}`")
    path = f"/api/v1/dead/{quote(name, safe='')}{below}"
    try:
        return list(answered(settings, state, path, {}, method=method))
    except NothingFound as reason:
        raise _not_there(name) from reason


def _replayed(settings: Settings, name: str) -> Row:
    try:
        (row,) = _asked(settings, name, "POST", "/replay")
    except NotDone as reason:
        return {"id": name, "kept": str(reason)}
    return row


def _told(row: Row) -> str:
    if "kept" in row:
        return harmless_text(f"{row['id']}: kept: {row['kept']}")
    if not row["segment"]:
        return f"{row['id']}: it held no row to store"
    return f"{row['id']}: {counted(row['rows'], 'row')} put into the journal as segment {row['segment']}"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    head = ("id", "cause", "rows", "bytes", "kept since (UTC)", "drain", "project", "why")
    cells = [_cells(row) for row in rows]
    yield from lines_of(head, cells) if cells else ["no dead letters"]


def _cells(row: Row) -> list[str]:
    rows = "?" if row["rows"] is None else str(row["rows"])
    drains, projects = _whose(row)
    return [row["id"], row["cause"], rows, str(row["bytes"]), row["at"][:19], drains, projects, row["text"]]


def _whose(row: Row) -> tuple[str, str]:
    drains = {one["drain"] for one in row["deliveries"]}
    projects = {project for one in row["deliveries"] for project in one["projects"]}
    return ", ".join(sorted(drains)), ", ".join(sorted(projects))


def _card(row: Row) -> Iterator[str]:
    yield from (
        f"{what:<10} {harmless_text('?' if value is None else str(value))}"
        for what, value in row.items()
        if what != "deliveries"
    )
    for one in row["deliveries"]:
        projects = ", ".join(f"'{project}'" for project in one["projects"]) or "not known yet"
        rows = counted(one["rows"], "row") if one["rows"] else "? rows"
        whose = f"of drain '{one['drain']}', project {projects}, {rows}"
        yield harmless_text(f"delivery   {one['digest']} {whose}")
