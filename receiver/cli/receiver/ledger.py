"""`trace-drain ledger`: every received span by outcome. Exits with 1 if a span is unaccounted for."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

import click
import msgspec

from receiver.cli.receiver.ledger_sum import sum_of_receivers
from receiver.cli.shell.api_client import query_receiver, store_of
from receiver.cli.shell.options import config_option, data_dir_of, data_option, loaded_with
from receiver.cli.shell.table import lines_of, wide_option
from receiver.ledger import query as ledger_query
from receiver.ledger.balance import OfflineBalanceSource
from receiver.reports import LEDGER_SINCE, LedgerReport
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.supervisor.state import running_receiver

COUNTS = (
    "received",
    "stored",
    "sampled_out",
    "rejected",
    "duplicate",
    "dead",
    "deleted",
    "journal",
    "difference",
)


@click.command()
@config_option
@data_option
@click.option(
    "--since",
    default=LEDGER_SINCE,
    show_default=True,
    metavar="AGE",
    help="Start of the period: an age (24h, 7d) or a time (2026-01-31T10:00Z); in whole hours.",
)
@click.option("--project", metavar="ID", help="Only this project.")
@click.option("--drain", metavar="NAME", help="Only this drain.")
@wide_option
@click.option(
    "--receiver",
    "receivers",
    multiple=True,
    metavar="URL",
    help="Instead: API of one of several receivers, whose counts are added up; repeatable.",
)
@click.option("--verify", is_flag=True, help="Count the table, too, and report any difference.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Output format."
)
def ledger(  # noqa: PLR0913 - one parameter an option
    config: str | None,
    data: str | None,
    *,
    since: str,
    project: str | None,
    drain: str | None,
    receivers: tuple[str, ...],
    verify: bool,
    form: Literal["table", "json"],
) -> None:
    """Print the number of received spans by outcome, per drain, project and hour of receipt (UTC)."""
    settings = loaded_with(config, data).settings
    filters = {"since": since, "project": project, "drain": drain, "verify": "1" if verify else None}
    given = {name: value for name, value in filters.items() if value is not None}
    report = sum_of_receivers(settings, receivers, given) if receivers else _ledger(settings, given)
    if form == "json":
        click.echo(json.dumps(report, separators=(",", ":")))
    else:
        for line in _table(report, verify=verify):
            click.echo(line)
    if _is_something_lost(report):
        raise SystemExit(1)


def _is_something_lost(report: dict[str, Any]) -> bool:
    lines = report["lines"]
    return (
        bool(report["trouble"])
        or any(line["difference"] or line["verdict"] == "different" for line in lines)
        or any(epoch["is_lost"] for epoch in report["unknown"])
    )


def _ledger(settings: Settings, filters: dict[str, str]) -> dict[str, Any]:
    state = running_receiver(settings)
    if state is not None:
        return next(query_receiver(settings, state, "/api/v1/ledger", filters, document=LedgerReport))
    row_lifetime_hours = ledger_query.row_lifetime_hours(settings.store)
    query = ledger_query.parse_ledger_query(filters, now_s=time.time(), row_lifetime_hours=row_lifetime_hours)
    balances = OfflineBalanceSource(data_dir_of(settings), settings.ledger)
    # The store is opened only if the ledger asks for it: without --verify it may be down.
    with ExitStack() as resources:
        report = ledger_query.ledger(balances, lambda: resources.enter_context(store_of(settings)), query)
    document: dict[str, Any] = msgspec.to_builtins(report)
    return document


def _table(report: dict[str, Any], *, verify: bool) -> Iterator[str]:
    lines = report["lines"]
    names = (*COUNTS, "table") if verify else COUNTS
    totals = {name: sum(line[name] or 0 for line in lines) for name in names}
    rows = [_cells(line, names, verify=verify) for line in lines]
    total = ("total", "", "", *(str(totals[name]) for name in names))
    head = ("hour (UTC)", "drain", "project", *(name.replace("_", " ") for name in names))
    extra = (("verdict",), ("",)) if verify else ((), ())
    numbers = range(3, 3 + len(names))
    zeros = [name.replace("_", " ") for name in names[1:] if not totals[name]]
    yield from lines_of(
        (*head, *extra[0]),
        [*rows, (*total, *extra[1])],
        numbers=numbers,
        optional=(*zeros, "project", "drain"),
    )
    if report["complete_from"] > report["since"]:
        yield f"complete from {report['complete_from']} on; earlier hours may be incomplete"
    if report["trouble"]:
        yield f"{report['trouble']}"
        yield "when you know the cause, delete ledger.lost in the data directory; see docs/operations.md"
    for epoch in report["unknown"]:
        yield _unknown(epoch)
    if verify:
        yield _error_of(lines)


def _unknown(epoch: dict[str, Any]) -> str:
    origin = (
        "the ledger lost their entries"
        if epoch["is_lost"]
        else "another receiver stored them, or they are older than the ledger"
    )
    rows = counted(epoch["rows"], "row")
    when = f"received {epoch['first']} to {epoch['last']}"
    return f"{rows} of intake start {epoch['epoch']}, {when}, belong to no segment of this ledger: {origin}"


def _cells(line: dict[str, Any], names: tuple[str, ...], *, verify: bool) -> tuple[str, ...]:
    cells = (
        line["hour"] or "older",
        line["drain"],
        line["project"],
        *(str(line[name] or 0) for name in names),
    )
    return (*cells, ": ".join(filter(None, (line["verdict"], line["problem"])))) if verify else cells


def _error_of(lines: list[dict[str, Any]]) -> str:
    verdicts = [line["verdict"] for line in lines]
    different = verdicts.count("different")
    if different:
        return f"{counted(different, 'line')} {'differs' if different == 1 else 'differ'} from the table"
    maybe = verdicts.count("unverifiable")
    note = (
        f"; {maybe} cannot be verified: rows expired or are being deleted, or another receiver stored them"
        if maybe
        else ""
    )
    same = verdicts.count("same")
    return f"{counted(same, 'line')} {'agrees' if same == 1 else 'agree'} with the table{note}"
