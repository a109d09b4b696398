"""`trace-drain rollup status | rebuild`: the hourly counts that answer queries over many hours."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import click
import msgspec

from receiver.cli.shell.api_client import Row, query_receiver, receiver_or_store, store_of
from receiver.cli.shell.group import CommandGroup, examples
from receiver.cli.shell.options import config_option, data_option, format_option, loaded_with
from receiver.cli.shell.table import lines_of, wide_option
from receiver.console.queries.rollup import status as rollup_status
from receiver.console.queries.rollup.derivation import Closing, derive_due
from receiver.console.queries.rollup.slots import invalidate
from receiver.console.queries.rollup.tables import HOUR_S
from receiver.engine.store import Store
from receiver.errors import CommandFailed, OperatorError
from receiver.settings import Settings
from receiver.sizes import counted, size_text
from receiver.supervisor.state import ReceiverState, running_receiver
from receiver.time_range import day_text, parse_since

POLL_S = 1.0
WITHOUT_PROGRESS_S = 600.0
"""Time without progress after which the command stops waiting; the receiver continues."""


@click.group(cls=CommandGroup)
def rollup() -> None:
    """Print the state of the rollups, or build them again.

    Rollups are hourly counts of the spans. Queries read them only where they provably equal the spans.
    """


@rollup.command(epilog=examples("trace-drain rollup status", "trace-drain rollup status --format json"))
@config_option
@data_option
@format_option
@wide_option
def status(config: str | None, data: str | None, *, form: Literal["table", "json"]) -> None:
    """Print how many hours of each day are rolled up, and the size of the tables."""
    settings = loaded_with(config, data).settings
    rows = _status_rows(settings)
    for line in map(json.dumps, rows) if form == "json" else _table(rows):
        click.echo(line)
    if not settings.store.rollup:
        click.echo("rollups are off (store.rollup): new hours are not derived", err=True)


@rollup.command(epilog=examples("trace-drain rollup rebuild", "trace-drain rollup rebuild --since 7d"))
@config_option
@data_option
@click.option("--since", metavar="AGE", help="Only hours of this age or newer: 24h, 7d. [all]")
def rebuild(config: str | None, data: str | None, *, since: str | None) -> None:
    """Derive the rollups from the spans again. Answers stay right meanwhile, and take longer."""
    settings = loaded_with(config, data).settings
    if not settings.store.rollup:
        raise OperatorError("rollups are off; expected store.rollup = true")
    from_hour = None if since is None else max(0, int(time.time()) - parse_since(since)) // HOUR_S
    state = running_receiver(settings)
    if state is not None:
        _rebuild_in_receiver(settings, state, {} if since is None else {"since": since})
        return
    with store_of(settings) as store:
        invalidate(store, from_hour)
        closing = _closing(settings)
        total = sum(day.due for day in rollup_status.days(store, closing))
        done = 0
        for hours in derive_due(store, closing):
            done += len(hours)
            _print_progress(done, total)
        click.echo(f"{counted(done, 'hour')} derived")


def _rebuild_in_receiver(settings: Settings, state: ReceiverState, query: dict[str, str]) -> None:
    # The request is sent when the first row is read.
    list(query_receiver(settings, state, "/api/v1/rollup/rebuild", query, method="POST", document=dict))

    def due_count() -> int:
        rows = query_receiver(settings, state, "/api/v1/rollup", {})
        return sum(row["due"] for row in rows if "day" in row)

    total = wait_until_derived(due_count, time.sleep, time.monotonic)
    click.echo(f"{counted(total, 'hour')} derived")


def wait_until_derived(
    due_count: Callable[[], int], sleep: Callable[[float], None], now_s: Callable[[], float]
) -> int:
    """Wait until no hour is due, and print progress. Returns the number of hours that were due."""
    total = left = due_count()
    changed_at_s = now_s()
    while left:
        if now_s() - changed_at_s > WITHOUT_PROGRESS_S:
            raise CommandFailed(
                f"{counted(left, 'hour')} of {total} are not derived yet, and none was in the last "
                f"{WITHOUT_PROGRESS_S / 60:.0f} minutes; the receiver continues when no segment waits "
                "for the store; its log reports errors"
            )
        sleep(POLL_S)
        now_left = due_count()
        if now_left != left:
            left, changed_at_s = now_left, now_s()
            # Hours may become due meanwhile, because they close or get late spans.
            total = max(total, left)
            _print_progress(total - left, total)
    return total


def _print_progress(done: int, total: int) -> None:
    click.echo(f"{done} of {counted(total, 'hour')}", err=True)


def _closing(settings: Settings) -> Closing:
    return Closing(int(time.time()), settings.store.rollup_closing_age_s)


def _status_rows(settings: Settings) -> list[Row]:
    def of_receiver(state: ReceiverState) -> Iterator[Row]:
        return query_receiver(settings, state, "/api/v1/rollup", {})

    def of_store(store: Store) -> list[Row]:
        rows = [*rollup_status.days(store, _closing(settings)), *rollup_status.tables(store)]
        return [msgspec.to_builtins(row) for row in rows]

    return list(receiver_or_store(settings, of_receiver, of_store))


def _table(rows: Iterable[Row]) -> Iterator[str]:
    days = [row for row in rows if "day" in row]
    cells = [
        (
            day_text(row["day"]),
            *(str(row[name]) for name in ("spans", "slots", "due", "late")),
            "rollup" if row["proven"] else "spans",
            str(row["version"]),
        )
        for row in days
    ]
    head = ("day (UTC)", "spans", "hours", "due", "late spans", "queries read", "version")
    yield from lines_of(head, cells, numbers=range(1, 5)) if cells else ["no closed hours"]
    due = sum(row["due"] for row in days)
    yield f"{counted(due, 'hour')} to derive" if due else "every closed hour is derived"
    yield from lines_of(
        ("table", "rows", "size"),
        [(row["table"], str(row["rows"]), size_text(row["bytes"])) for row in rows if "table" in row],
        numbers=range(1, 3),
    )
