"""`trace-drain top`: rate, errors and durations of services, full screen, until q."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final

import click

from receiver.cli.console.questions import question_rows
from receiver.cli.shell.api_client import Row, require_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import config_option, data_option, loaded_with
from receiver.cli.shell.screen import full_screen
from receiver.cli.shell.table import lines_of, ms_text
from receiver.console.queries.questions import QUESTIONS
from receiver.errors import CommandFailed
from receiver.printable import harmless_text
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.time_range import parse_since

REFRESH_S = 2.0
SINCE_DEFAULT: Final = "5m"
ORDERS: Final = {"r": "requests", "e": "errors", "p": "p95", "n": "name"}
COLUMNS: Final = {"requests": "rate_per_s", "errors": "error_rate", "p95": "p95_ms"}
"""Order → column of the result; the largest is first."""


@click.command(
    epilog=examples(
        "trace-drain top                 # the last 5 minutes, asked every 2 seconds",
        "trace-drain top --since 1h",
    )
)
@config_option
@data_option
@click.option(
    "--since", default=SINCE_DEFAULT, show_default=True, metavar="AGE", help="Period: 90s, 15m, 24h."
)
def top(config: str | None, data: str | None, since: str) -> None:
    """Show the rate, errors and durations of the requests to each service, full screen, until q.

    The keys r, e, p and n sort by requests, errors, p95 and name. Continues after a restart of the receiver.
    """
    settings = loaded_with(config, data).settings
    parse_since(since)
    # Queried before the screen is switched, so that an error stays readable after the command.
    rows, failure, order = _services(settings, since), "", "requests"
    with full_screen() as screen:
        polled_s = time.monotonic()
        while True:
            screen.show(lines(rows, since, order, failure))
            key = screen.key(polled_s + REFRESH_S - time.monotonic())
            if key == "q":
                return
            order = ORDERS.get(key, order)
            if time.monotonic() >= polled_s + REFRESH_S:
                try:
                    rows, failure = _services(settings, since), ""
                except CommandFailed as error:
                    failure = str(error)
                # After the response: a slow receiver gets a pause between queries.
                polled_s = time.monotonic()


def _services(settings: Settings, since: str) -> list[Row]:
    require_receiver(settings)
    # All services, because the order of the screen is not that of the result.
    return list(question_rows(settings, "red", {"since": since, "limit": str(QUESTIONS["red"].limit_max)}))


def lines(rows: Sequence[Row], since: str, order: str, failure: str) -> list[str]:
    """Return the lines of the screen. `failure`: why the rows are not up to date."""
    head = f"{counted(len(rows), 'service')}, last {since}, by {order}; keys: r e p n sort, q quits"
    note = harmless_text(f"not up to date: {failure}") if failure else ""
    cells = [
        (
            row["group"],
            f"{row['rate_per_s']:.1f}",
            f"{100 * row['error_rate']:.1f}",
            *(ms_text(row[name]) for name in ("p50_ms", "p95_ms", "p99_ms")),
        )
        for row in sorted(rows, key=lambda row: _sort_key(row, order))
    ]
    names = ("service", "requests/s", "errors %", "p50", "p95", "p99")
    return [head, note, *lines_of(names, cells, numbers=range(1, 6), has_note=False)]


def _sort_key(row: Row, order: str) -> tuple[float, str]:
    return (-row[COLUMNS[order]] if order in COLUMNS else 0), row["group"]
