"""`trace-drain schema print | status | apply`: the tables of the store."""

from __future__ import annotations

import time
from pathlib import Path

import click
import msgspec

from receiver import transcode
from receiver.cli.shell.api_client import query_receiver, store_of
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import cluster_option, config_option, data_option, loaded_with
from receiver.cli.shell.table import lines_of, wide_option
from receiver.engine import promoted
from receiver.engine import schema as tables
from receiver.engine.store import Version
from receiver.errors import CommandFailed, OperatorError
from receiver.ledger.ledger import is_first_on, read_sums
from receiver.sizes import counted
from receiver.store_process.lost_tables import LostTables
from receiver.supervisor.state import running_receiver

policy_option = click.option(
    "--storage-policy", metavar="NAME", help="Storage policy of the spans. [store.storage_policy]"
)
DIGITS_MAX = 4
"""Maximum number of digits in each part of a version."""


@click.group(cls=CommandGroup)
def schema() -> None:
    """Print, compare and apply the schema of the store."""


@schema.command(
    "print",
    epilog=examples(
        "trace-drain schema print --engine 26.3 > otel_traces.sql",
        "trace-drain schema print --cluster production",
    ),
)
@config_option
@data_option
@cluster_option
@policy_option
@click.option("--engine", default="26.9", show_default=True, metavar="VERSION", help="Version of ClickHouse.")
def print_statements(
    config: str | None, data: str | None, cluster: str | None, storage_policy: str | None, engine: str
) -> None:
    """Print the statements that create the tables, as for this version of ClickHouse.

    Connects to no server.
    """
    settings = loaded_with(config, data, cluster=cluster, storage_policy=storage_policy).settings
    version = _version(engine)
    (days, attributes, event_days), layout = tables.wanted(settings), tables.layout_of(settings)
    kind = tables.Engine(version, embedded=settings.store.url == "embedded" and not layout.cluster)
    if layout.cluster:
        click.echo(f"CREATE DATABASE IF NOT EXISTS {layout.database} ON CLUSTER '{layout.cluster}';\n")
    for statement in tables.emit(transcode.SCHEMAS, kind, days, event_days, layout):
        click.echo(f"-- {statement.name}\n{statement.sql};\n")
    for columns in promoted.statements(promoted.definitions(attributes, version), layout):
        click.echo(f"-- {tables.PROMOTED}\n{columns};\n")


@schema.command()
@wide_option
@config_option
@data_option
@cluster_option
def status(config: str | None, data: str | None, cluster: str | None) -> None:
    """Print which statements are applied and which are missing, and the store's fsync settings.

    On a cluster, prints the tables that each node lacks, and the nodes that do not answer.

    Exits with 1 if a statement is missing or the table cannot be used.
    """
    settings = loaded_with(config, data, cluster=cluster).settings
    state = running_receiver(settings)
    # A receiver knows the cluster of its own settings only.
    if state is not None and not cluster:
        document = next(query_receiver(settings, state, "/api/v1/schema", {}, document=tables.Status))
        status_now = msgspec.convert(document, tables.Status)
    else:
        with store_of(settings) as store:
            status_now = tables.status(
                store, transcode.SCHEMAS, *tables.wanted(settings), layout=tables.layout_of(settings)
            )
    for line in lines_of(("item", "state"), rows_of(status_now)):
        click.echo(line)
    if status_now.unusable:
        raise CommandFailed(f"{status_now.unusable}; `trace-drain schema apply` says what to do")
    if status_now.missing:
        missing = counted(len(status_now.missing), "statement")
        raise CommandFailed(f"the schema lacks {missing}; expected `trace-drain schema apply`")


@schema.command()
@config_option
@data_option
@cluster_option
@policy_option
def apply(config: str | None, data: str | None, cluster: str | None, storage_policy: str | None) -> None:
    """Create the tables or bring them up to date. `serve` does the same when it starts.

    On a cluster the tables are created on every node, also on those that were added. `serve` needs
    store.cluster in its settings for the same tables.

    A table that was dropped is created again, empty, and DATA/store.lost reports its loss.
    """
    settings = loaded_with(config, data, cluster=cluster, storage_policy=storage_policy).settings
    # Only one process can open the embedded engine.
    if running_receiver(settings) is not None and settings.store.url == "embedded":
        raise CommandFailed(
            "a receiver runs and has the embedded store open; it applied the schema when it started"
        )
    data_dir = Path(settings.data_dir)
    lost_tables = LostTables(data_dir)
    with store_of(settings) as store:
        sums, _ = read_sums(data_dir / "ledger", settings.ledger, is_first=is_first_on(data_dir))
        lost_tables.detect(store, transcode.SCHEMAS, sums, time.time())
        done = tables.apply(
            store, transcode.SCHEMAS, *tables.wanted(settings), layout=tables.layout_of(settings)
        )
    for name in done:
        click.echo(f"applied {name}")
    if not done:
        click.echo("up to date")


def rows_of(status_now: tables.Status) -> list[tuple[str, str]]:
    days = status_now.retention_days
    return [
        ("engine", f"{'embedded' if status_now.engine.embedded else 'server'} {status_now.engine.version}"),
        ("retention", "no table" if days is None else f"{days} days" if days else "forever"),
        *((name, "applied") for name in status_now.applied),
        *((name, "MISSING") for name in status_now.missing),
        *status_now.nodes,
        *status_now.settings,
    ]


def _version(text: str) -> Version:
    major, _, minor = text.partition(".")
    if not all(part.isascii() and part.isdigit() and len(part) <= DIGITS_MAX for part in (major, minor)):
        raise OperatorError("--engine is not a version; expected a version like 26.3")
    return Version(int(major), int(minor))
