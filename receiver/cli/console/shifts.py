"""`trace-drain shifts FILTER`: the values whose shares differ, in a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from receiver.cli.console.filter_command import FilterCommand, filter_words
from receiver.cli.console.filter_completion import complete_filter
from receiver.cli.console.questions import common_parameters, run_question
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.group import examples
from receiver.cli.shell.table import lines_of, shown_text
from receiver.console.queries.comparison.shifts import sample_text
from receiver.console.queries.questions import QUESTIONS
from receiver.sizes import percent

QUESTION: Final = QUESTIONS["shifts"]
_HEAD = ("attribute", "matching spans", "other spans", "evidence")


@click.command(
    cls=FilterCommand,
    help=f"{QUESTION.summary}\n\nFILTER is that of `search`.",
    epilog=examples(*QUESTION.examples),
)
@filter_words(is_required=True)
@click.option(
    "--against",
    metavar="FILTER",
    shell_complete=complete_filter,
    help="Compare with the spans that match this filter. [all other spans]",
)
def shifts(words: tuple[str, ...], **options: Any) -> None:  # noqa: ANN401 - click's values
    """Run the command."""
    run_question("shifts", {"filter": " ".join(words), **options}, _table)


def shift_text(shift: Row) -> str:
    """Return the value as in a filter: `span.region=eu`."""
    scope = "" if shift["scope"] == "intrinsic" else f"{shift['scope']}."
    return f"{scope}{shown_text(shift['key'])}={shown_text(shift['value'])}"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    cells, sample = [], ""
    for row in rows:
        selection = f"{percent(row['selection_share'])} ({row['selection']:,} of {row['selection_spans']:,})"
        rest = f"{percent(row['rest_share'])} ({row['rest']:,} of {row['rest_spans']:,})"
        cells.append((shift_text(row), selection, rest, f"{row['z']:+.1f}"))
        # The same in every row.
        sample = sample_text(row, "matching spans", "other spans")
    if cells:
        yield from lines_of(_HEAD, cells, numbers=range(1, 4))
    if sample:
        yield sample


shifts.params.extend(common_parameters(QUESTION))
