"""`trace-drain ledger`: what became of every span that was received. Exits with 1 when one is nowhere."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any, Literal

import click
import msgspec

from receiver.cli.asking import answered, running_on, store_of
from receiver.cli.options import config_option, data_dir_of, data_option, loaded_with
from receiver.cli.table import counted, lines_of
from receiver.errors import OperatorError, Refused
from receiver.ledger.balance import AccountsAtRest
from receiver.query import ledger as question
from receiver.settings import Settings

COUNTS = (
    "received",
    "stored",
    "sampled_out",
    "rejected",
    "duplicate",
    "dead",
    "journal",
    "difference",
)


@click.command()
@config_option
@data_option
@click.option(
    "--since",
    default=question.SINCE,
    show_default=True,
    metavar="AGE",
    help="24h, 7d, or 2026-01-31T10:00Z: how far back; whole hours.",
)
@click.option("--project", metavar="ID", help="Of this project only.")
@click.option("--drain", metavar="NAME", help="Of this drain only.")
@click.option("--verify", is_flag=True, help="Count the table, too, and report any difference.")
@click.option(
    "--format", "form", type=click.Choice(["table", "json"]), default="table", help="Form of the listing."
)
def ledger(  # noqa: PLR0913 - one parameter an option
    config: str | None,
    data: str | None,
    *,
    since: str,
    project: str | None,
    drain: str | None,
    verify: bool,
    form: Literal["table", "json"],
) -> None:
    """Print what became of every span received, per drain, project and hour of receipt (UTC)."""
    settings = loaded_with(config, data).settings
    filters = {"since": since, "project": project, "drain": drain, "verify": "1" if verify else None}
    answer = _asked(settings, {name: value for name, value in filters.items() if value is not None})
    if form == "json":
        click.echo(json.dumps(answer, separators=(",", ":")))
    else:
        for line in _table(answer, verify=verify):
            click.echo(line)
    if _is_something_lost(answer):
        raise SystemExit(1)


def _is_something_lost(answer: dict[str, Any]) -> bool:
    lines = answer["lines"]
    return (
        bool(answer["trouble"])
        or any(line["difference"] or line["verdict"] == "different" for line in lines)
        or any(epoch["is_lost"] for epoch in answer["unknown"])
    )


def _asked(settings: Settings, given: dict[str, str]) -> dict[str, Any]:
    state = running_on(settings)
    if state is not None:
        return next(answered(settings, state, "/api/v1/ledger", given))
    row_lifetime_hours = question.row_lifetime_hours(settings.store)
    try:
        asked = question.parse_ledger_query(given, now_s=time.time(), row_lifetime_hours=row_lifetime_hours)
    except Refused as reason:
        raise OperatorError(str(reason)) from reason
    stock = AccountsAtRest(data_dir_of(settings), settings.ledger)
    with ExitStack() as held:
        found = question.ledger(stock, lambda: held.enter_context(store_of(settings)), asked)
    told: dict[str, Any] = msgspec.to_builtins(found)
    return told


def _table(answer: dict[str, Any], *, verify: bool) -> Iterator[str]:
    lines = answer["lines"]
    names = (*COUNTS, "table") if verify else COUNTS
    totals = {name: sum(line[name] or 0 for line in lines) for name in names}
    rows = [_cells(line, names, verify=verify) for line in lines]
    total = ("total", "", "", *(str(totals[name]) for name in names))
    head = ("hour (UTC)", "drain", "project", *(name.replace("_", " ") for name in names))
    extra = (("verdict",), ("",)) if verify else ((), ())
    numbers = range(3, 3 + len(names))
    yield from lines_of((*head, *extra[0]), [*rows, (*total, *extra[1])], numbers=numbers)
    if answer["complete_from"] > answer["since"]:
        yield f"complete from {answer['complete_from']} on; before that something may be missing here"
    if answer["trouble"]:
        yield f"{answer['trouble']}"
        yield "once you know why, delete ledger.lost in the data directory; docs/operations.md says more"
    for epoch in answer["unknown"]:
        yield _unknown(epoch)
    if verify:
        yield _verdict(lines)


def _unknown(epoch: dict[str, Any]) -> str:
    whose = "the ledger lost them" if epoch["is_lost"] else "another receiver's, or from before the ledger"
    rows = counted(epoch["rows"], "row")
    when = f"received {epoch['first']} to {epoch['last']}"
    return f"{rows} of intake start {epoch['epoch']}, {when}, in no segment of this ledger: {whose}"


def _cells(line: dict[str, Any], names: tuple[str, ...], *, verify: bool) -> tuple[str, ...]:
    cells = (
        line["hour"] or "older",
        line["drain"],
        line["project"],
        *(str(line[name] or 0) for name in names),
    )
    return (*cells, ": ".join(filter(None, (line["verdict"], line["problem"])))) if verify else cells


def _verdict(lines: list[dict[str, Any]]) -> str:
    told = [line["verdict"] for line in lines]
    different = told.count("different")
    if different:
        return f"{counted(different, 'line')} {'differs' if different == 1 else 'differ'} from the table"
    maybe = told.count("unverifiable")
    said = f"; {maybe} cannot be verified: rows may have expired, or were not counted here" if maybe else ""
    same = told.count("same")
    return f"{counted(same, 'line')} {'agrees' if same == 1 else 'agree'} with the table{said}"
