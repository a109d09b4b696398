"""`trace-drain forget`: deletes the stored spans of a project or a trace, day by day."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import click

from receiver.cli.shell.api_client import query_receiver, required_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, loaded_with
from receiver.errors import CommandFailed, OperatorError
from receiver.printable import harmless_text
from receiver.reports import DeletionBegun, DeletionReport
from receiver.sizes import counted
from receiver.time_range import day_text

POLL_S: Final = 0.5
PATH: Final = "/api/v1/store/deletion"


@click.command(
    epilog=examples(
        "trace-drain forget --project prj_1",
        "trace-drain forget --trace 4bf92f3577b34da6a3ce929d0e0e4736 --yes",
    )
)
@click.option("--project", metavar="ID", help="The project whose spans are deleted.")
@click.option("--trace", metavar="ID", help="The trace whose spans are deleted.")
@click.option("--yes", is_flag=True, help="Delete. Without it, the spans are only counted.")
@config_option
@data_option
def forget(
    project: str | None, trace: str | None, config: str | None, data: str | None, *, yes: bool
) -> None:
    """Delete the stored spans of a project or a trace, by a running receiver. This cannot be undone.

    The ledger counts them as deleted. Dead letters, quarantined bodies, backups and spans that are not stored
    yet stay: docs/operations.md lists them.
    """
    if (project is None) == (trace is None):
        raise OperatorError("expected either --project ID or --trace ID")
    settings = loaded_with(config, data).settings
    state = required_receiver(settings)
    named = {"project": project, "trace": trace}
    chosen = {name: value for name, value in named.items() if value is not None}

    def report() -> dict[str, Any]:
        return next(query_receiver(settings, state, PATH, chosen, document=DeletionReport))

    days: dict[str, int] = report()["days"]
    if not days:
        click.echo("no span of this project or trace is stored")
        return
    if not yes:
        for day, spans in days.items():
            click.echo(f"{day_text(day)}  {counted(spans, 'span')}")
        click.echo(f"{_total(days)} would be deleted; --yes deletes them")
        return
    deleted: dict[str, int] = {}
    for day in days:
        _wait(report)
        query = {**chosen, "day": day}
        begun = next(query_receiver(settings, state, PATH, query, method="POST", document=DeletionBegun))
        deleted[day] = begun["spans"]
        click.echo(f"{day_text(day)}  {counted(deleted[day], 'span')}", err=True)
    left = _wait(report)
    if left:
        raise CommandFailed(
            f"{_total(left)} are left: their segments are in the journal, or they were stored meanwhile; "
            "run the command again"
        )
    click.echo(f"{_total(deleted)} are deleted")


def _wait(report: Callable[[], dict[str, Any]]) -> dict[str, int]:
    """Wait until no deletion runs. Returns the stored spans by day."""
    trouble = ""
    while (document := report())["deleting"]:
        if document["trouble"] not in {"", trouble}:
            trouble = document["trouble"]
            click.echo(f"{day_text(document['deleting'])}  waits: {harmless_text(trouble)}", err=True)
        time.sleep(POLL_S)
    days: dict[str, int] = document["days"]
    return days


def _total(days: dict[str, int]) -> str:
    return f"{counted(sum(days.values()), 'span')} of {counted(len(days), 'day')}"
