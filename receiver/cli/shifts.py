"""`trace-drain shifts FILTER`: the values whose shares differ, in a table."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from receiver.cli.questions import Row, command_of, run_question
from receiver.cli.table import lines_of, shown_text
from receiver.query.comparison.verdict import percent

_HEAD = ("attribute", "matching spans", "other spans", "evidence")


def _run(**options: str | None) -> None:
    run_question("shifts", options, _table)


shifts = command_of("shifts")
shifts.callback = _run
# a filter may begin with `-`, and `-http.route=x` must not print the help
shifts.context_settings = {"ignore_unknown_options": True, "help_option_names": ["--help"]}


def shift_text(shift: Row) -> str:
    """Return the value as in a filter: `span.region=eu`."""
    scope = "" if shift["scope"] == "intrinsic" else f"{shift['scope']}."
    return f"{scope}{shown_text(shift['key'])}={shown_text(shift['value'])}"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    cells = [
        (
            shift_text(row),
            f"{percent(row['selection_share'])} ({row['selection']:,} of {row['selection_spans']:,})",
            f"{percent(row['rest_share'])} ({row['rest']:,} of {row['rest_spans']:,})",
            f"{row['z']:+.1f}",
        )
        for row in rows
    ]
    return lines_of(_HEAD, cells, numbers=range(1, 4)) if cells else iter(())
