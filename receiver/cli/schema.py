"""`trace-drain schema print | status | apply`."""

from __future__ import annotations

import click
import msgspec

from receiver import transcode
from receiver.cli.asking import answered, running_on, store_of
from receiver.cli.group import Group, examples
from receiver.cli.options import config_option, data_option, loaded_with
from receiver.cli.table import counted, lines_of
from receiver.errors import CommandFailed, OperatorError
from receiver.storage import schema as tables
from receiver.storage.store import Version

DIGITS_MAX = 4
"""Of each part of a version."""


@click.group(cls=Group)
def schema() -> None:
    """Print, compare and apply the schema of the store."""


@schema.command("print", epilog=examples("trace-drain schema print --engine 26.3 > otel_traces.sql"))
@config_option
@data_option
@click.option("--engine", default="26.9", show_default=True, metavar="VERSION", help="Version of ClickHouse.")
def print_statements(config: str | None, data: str | None, engine: str) -> None:
    """Print the statements that create the tables, as this version of ClickHouse gets them."""
    settings = loaded_with(config, data).settings
    embedded = settings.store.url == "embedded"
    statements = tables.emit(
        transcode.SCHEMAS, tables.Engine(_version(engine), embedded), settings.store.retention_days
    )
    for statement in statements:
        click.echo(f"-- {statement.name}\n{statement.sql};\n")


@schema.command()
@config_option
@data_option
def status(config: str | None, data: str | None) -> None:
    """Print which statements are applied and which are missing, and the store's fsync settings.

    Exits with 1 if a statement is missing or the table is not ours.
    """
    settings = loaded_with(config, data).settings
    state = running_on(settings)
    if state is not None:
        answer = next(answered(settings, state, "/api/v1/schema", {}))
        found = msgspec.convert(answer, tables.Status)
    else:
        with store_of(settings) as store:
            found = tables.status(store, transcode.SCHEMAS, settings.store.retention_days)
    for line in lines_of(("item", "state"), rows_of(found)):
        click.echo(line)
    if found.foreign:
        raise CommandFailed(f"{found.foreign}; `trace-drain schema apply` says how to adopt it")
    if found.missing:
        missing = counted(len(found.missing), "statement")
        raise CommandFailed(f"the schema lacks {missing}; expected `trace-drain schema apply`")


@schema.command()
@config_option
@data_option
def apply(config: str | None, data: str | None) -> None:
    """Create the tables or bring them up to date. `serve` does the same when it starts."""
    settings = loaded_with(config, data).settings
    if running_on(settings) is not None and settings.store.url == "embedded":
        raise CommandFailed(
            "a receiver runs and has the embedded store open; it applied the schema when it started"
        )
    with store_of(settings) as store:
        done = tables.apply(store, transcode.SCHEMAS, settings.store.retention_days)
    for name in done:
        click.echo(f"applied {name}")
    if not done:
        click.echo("up to date")


def rows_of(found: tables.Status) -> list[tuple[str, str]]:
    """The lines of `schema status`."""
    days = found.retention_days
    return [
        ("engine", f"{'embedded' if found.engine.embedded else 'server'} {found.engine.version}"),
        ("retention", "no table" if days is None else f"{days} days" if days else "forever"),
        *((name, "applied") for name in found.applied),
        *((name, "MISSING") for name in found.missing),
        *found.settings,
    ]


def _version(text: str) -> Version:
    major, _, minor = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= DIGITS_MAX for part in (major, minor)):
        raise OperatorError("--engine is not a version; expected one like 26.3")
    return Version(int(major), int(minor))
