"""`trace-drain tail [FILTER]`: print spans as they become readable, until Ctrl-C."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from typing import Final

import click

from receiver.cli.console.filter_command import FilterCommand, filter_words
from receiver.cli.console.questions import filter_errors_shown, json_lines, question_rows
from receiver.cli.shell.api_client import Row, require_receiver
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import SINCE, config_option, data_option, loaded_with
from receiver.cli.shell.table import CELL_COLUMNS_MIN, columns_max, ms_text, shown_text, wide_option
from receiver.cli.shell.text_width import cut_to_width, padded
from receiver.console.queries.arrivals import OVERLAP_MS
from receiver.console.queries.limits import ARRIVALS_MAX
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.sentences import SENTENCES
from receiver.errors import CommandFailed
from receiver.printable import harmless_text
from receiver.settings import Settings

POLL_S = 1.0
START_MS = 10_000
"""The first lines are the spans that were received so recently."""
CUT_NOTE = (
    f"more than {ARRIVALS_MAX} spans match within {OVERLAP_MS // 1_000} s, and some may be missing here; "
    "use a narrower filter"
)
RED, RESET = "\x1b[31m", "\x1b[0m"
WIDTHS: Final = (12, 9, 6, 20, 36, 32)


@click.command(
    cls=FilterCommand,
    help=f"""{SENTENCES["tail"]}

    Prints spans that match FILTER, which is that of `search`, until Ctrl-C. Continues after a restart of the
    receiver.
    """,
    epilog=examples(
        "trace-drain tail",
        "trace-drain tail 'service=web (status=error OR duration>1s)'",
        "trace-drain tail --format json | jq -r .trace_id",
    ),
)
@filter_words()
@config_option
@data_option
@click.option(
    "--since",
    **{**SINCE, "help": "Only spans that started in this time: late spans may have started long ago."},
)
@click.option(
    "--format",
    "form",
    type=click.Choice(["table", "json"]),
    default="table",
    help="json: one JSON object a line.",
)
@wide_option
def tail(words: tuple[str, ...], *, config: str | None, data: str | None, since: str, form: str) -> None:
    """Run the command."""
    settings, text = loaded_with(config, data).settings, " ".join(words)
    has_colors = sys.stdout.isatty() and not os.environ.get("NO_COLOR")
    with filter_errors_shown(text):
        follow(
            Poll(settings, {"filter": text, "since": since}),
            Arrivals(int(time.time() * 1_000) - START_MS),
            lambda rows: _print(rows, form, has_colors=has_colors),
        )


class Poll:
    """Query for the spans received since a time, for a receiver that may be restarted meanwhile."""

    def __init__(self, settings: Settings, query: dict[str, str]) -> None:
        """Raise `Refused` for a wrong parameter."""
        QUESTIONS["tail"].parse(query)
        self._settings = settings
        self._query = query

    def __call__(self, after_ms: int) -> tuple[list[Row], bool]:
        """Return the spans, and whether there are more. Raises `CommandFailed` while no receiver responds."""
        require_receiver(self._settings)
        rows = question_rows(self._settings, "tail", {**self._query, "after": str(after_ms)})
        return list(rows), rows.is_cut


class Arrivals:
    """Detects spans that were printed already. Holds only the keys of the last response, which is limited."""

    def __init__(self, after_ms: int) -> None:
        self.after_ms = after_ms
        """Start of the next response."""
        self._seen: set[tuple[str, ...]] = set()

    def unseen(self, rows: Sequence[Row]) -> list[Row]:
        """Return the spans of a response that the last response did not have, in the order of receipt."""
        fresh = {key: row for row in reversed(rows) if (key := _key(row)) not in self._seen}
        # The next response begins no earlier, so a span of an earlier response that is not in this one never
        # appears again.
        self._seen = {_key(row) for row in rows}
        if rows:
            self.after_ms = max(self.after_ms, rows[0]["received_ms"] - OVERLAP_MS)
        return list(fresh.values())


def follow(
    poll: Callable[[int], tuple[list[Row], bool]],
    arrivals: Arrivals,
    show: Callable[[list[Row]], None],
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Print unseen spans until an exception. The first poll must succeed; later failures are only noted."""
    noted, has_answered = "", False
    while True:
        try:
            rows, is_cut = poll(arrivals.after_ms)
        except CommandFailed as failure:
            # A wrong setting must end the command. After a response, a failure is most likely a restart.
            if not has_answered:
                raise
            noted = _note(f"{failure}; waiting", noted)
        else:
            has_answered = True
            show(arrivals.unseen(rows))
            noted = _note(CUT_NOTE if is_cut else "", noted)
        sleep(POLL_S)


def _note(text: str, noted: str) -> str:
    """Print a note on standard error unless it was the last one."""
    if text and text != noted:
        click.echo(harmless_text(text), err=True)
    return text


def _key(row: Row) -> tuple[str, ...]:
    # With the segment: a span that was stored twice arrived twice.
    return row["segment"], row["trace_id"], row["span_id"], row["start"]


def _print(rows: list[Row], form: str, *, has_colors: bool) -> None:
    lines = json_lines(rows) if form == "json" else (_line(row, has_colors=has_colors) for row in rows)
    if text := "\n".join(lines):
        click.echo(text)


def _line(row: Row, *, has_colors: bool) -> str:
    cells = (
        row["start"][11:23],
        ms_text(row["duration_ms"]).rjust(WIDTHS[1]),
        row["status"],
        row["service"],
        row["name"],
        row["trace_id"],
    )
    line = "  ".join(
        padded(cut_to_width(shown_text(cell), width), width)
        for cell, width in zip(cells, _widths(columns_max()), strict=False)
    ).rstrip()
    return f"{RED}{line}{RESET}" if has_colors and row["status"] == "Error" else line


def _widths(columns: float) -> tuple[int, ...]:
    """Return the widths of the cells. A narrow terminal has no trace id, and less space for the operation."""
    *others, name, _trace = WIDTHS
    gaps = 2 * len(WIDTHS)
    if sum(WIDTHS) + gaps <= columns:
        return WIDTHS
    return (*others, max(CELL_COLUMNS_MIN, int(min(name, columns - sum(others) - gaps))))
