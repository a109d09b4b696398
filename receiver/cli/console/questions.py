"""Commands that query the stored spans, built from the table of queries."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

import click

from receiver.cli.console.filter_completion import complete_filter
from receiver.cli.console.value_completion import complete
from receiver.cli.shell.api_client import ResultRows, Row
from receiver.cli.shell.group import examples
from receiver.cli.shell.options import CONFIG, DATA, SINCE, loaded_with
from receiver.cli.shell.table import WIDE, lines_of, print_note
from receiver.cli.shell.text_width import text_width
from receiver.cli.shell.unsafe_text import without_controls
from receiver.console.queries.csv_text import csv_head, csv_line
from receiver.console.queries.question import Parameter, Question
from receiver.console.queries.questions import QUESTIONS
from receiver.errors import CommandFailed, NoSuchDeployment, OperatorError, ReceiverError, Refused
from receiver.printable import harmless_text
from receiver.settings import Settings
from receiver.sizes import counted
from receiver.time_range import parse_instant

Renderer = Callable[[Iterable[Row]], Iterator[str]]

CONTEXT_CHARACTERS = 60
"""Maximum length of the text that a message shows before and after the column with the error."""
_COLUMN = re.compile(r"(?:filter|q), column ([0-9]{1,9}): ")
"""Beginning of an error about a filter, from this program or from the receiver."""
_TIMES: Final = ("first_seen", "last_seen", "time")
"""Columns of times. Texts in other columns are those of senders, and may look like times."""
_UTC = " (UTC)"
"""End of the heads of times."""


def command_of(name: str, table: Renderer | None = None) -> click.Command:
    """Build the command of a query. `table`: see `run_question`."""
    question = QUESTIONS[name]

    def run(**options: str | None) -> None:
        run_question(name, options, table)

    return click.Command(
        name,
        callback=run,
        params=[*own_parameters(question), *common_parameters(question)],
        help=question.summary,
        epilog=examples(*question.examples),
    )


def common_parameters(question: Question[Any]) -> list[click.Parameter]:
    """Return new instances of the options that every query has."""
    return [
        click.Option(["--config"], **CONFIG),
        click.Option(["--data"], **DATA),
        click.Option(["--since"], **SINCE),
        click.Option(["--until"], metavar="TIME", help="Only what was before this age or instant. [now]"),
        *line_parameters(question.limit_default, question.limit_max),
    ]


def line_parameters(limit_default: int, limit_max: int) -> list[click.Parameter]:
    """Return new instances of the options for the lines of a result: their number and their form."""
    return [
        click.Option(
            ["--limit"],
            default=str(limit_default),
            show_default=True,
            metavar="N",
            help=f"Print at most N lines, up to {limit_max}.",
        ),
        click.Option(
            ["--format", "form"],
            type=click.Choice(list(PRINTERS)),
            default="table",
            help="json or jsonl: one JSON object a line; csv: a line of names first.",
        ),
        click.Option(["--wide"], **WIDE),
    ]


def own_parameters(question: Question[Any]) -> Iterator[click.Parameter]:
    """Yield new instances of the options and arguments that only this query has."""
    for parameter in question.parameters:
        yield _click_parameter(parameter)
    if question.has_filter:
        yield click.Option(
            ["--filter"],
            metavar="FILTER",
            help="Only spans that match: see `search --help`.",
            shell_complete=complete_filter,
        )


def _click_parameter(parameter: Parameter) -> click.Parameter:
    if parameter.is_positional:
        return click.Argument([parameter.name], required=parameter.is_required, shell_complete=complete)
    return click.Option(
        [f"--{parameter.name}"],
        required=parameter.is_required,
        metavar="TEXT",
        help=f"{parameter.help[0].upper()}{parameter.help[1:]}.",
        shell_complete=complete,
        # A list may also be given as one option for each of its values.
        multiple=parameter.is_list,
        callback=_joined if parameter.is_list else None,
    )


def _joined(_context: click.Context, _parameter: click.Parameter, values: tuple[str, ...]) -> str | None:
    return ",".join(values) or None


def run_question(
    name: str,
    options: Mapping[str, str | None],
    table: Renderer | None = None,
    csv_rows: Callable[[Iterable[Row]], Iterable[Row]] = iter,
) -> None:
    """Run a query with the options of its command and print the result.

    `table`: prints rows as text; by default a table with a column for each key.
    `csv_rows`: returns the rows that CSV has instead of the rows of the result.
    """
    question, parameters = QUESTIONS[name], {key: text for key, text in options.items() if text is not None}
    form, config, data = parameters.pop("form"), parameters.pop("config", None), parameters.pop("data", None)
    settings = loaded_with(config, data).settings
    with filter_errors_shown(parameters.get("filter") or parameters.get("q", "")):
        # Before the store is opened or a receiver is queried, so that a typing error is reported at once.
        question.parse(parameters)
        rows = question_rows(settings, name, parameters)
        printer = (table or _table) if form == "table" else PRINTERS[form]
        for line in printer(csv_rows(rows) if form == "csv" else rows):
            click.echo(line)
    _print_note(rows, question, parameters["since"], parameters.get("until", ""))


def question_rows(settings: Settings, name: str, query: Mapping[str, str]) -> ResultRows:
    """Return the rows of a query. `query`: its parameters, which `Question.parse` has accepted."""
    question = QUESTIONS[name]
    return ResultRows(
        settings,
        f"/api/v1/{name}",
        query,
        lambda store: question.ask(store, question.parse(query), time.time()),
        document=question.row if question.is_single else None,
    )


@contextmanager
def filter_errors_shown(text: str) -> Iterator[None]:
    """Add the filter, with a caret below the column, to an error about it."""
    try:
        yield
    except NoSuchDeployment as error:
        raise CommandFailed(str(error)) from error
    except (OperatorError, Refused) as error:
        if (match := _COLUMN.match(str(error))) is not None:
            raise _explained(error, text, int(match[1])) from error
        raise


def _explained(error: ReceiverError, text: str, column: int) -> OperatorError:
    """Return the error about a filter with the filter and a caret below the column."""
    before = harmless_text(text[max(0, column - 1 - CONTEXT_CHARACTERS) : column - 1])
    after = harmless_text(text[column - 1 : column - 1 + CONTEXT_CHARACTERS])
    return OperatorError(f"{error}\n  {before}{after}\n  {' ' * text_width(before)}^")


def _print_note(rows: ResultRows, question: Question[Any], since: str, until: str) -> None:
    """Print a note on standard error if the result is empty, or cut at its limit."""
    if rows.close_keys:
        # No advice about the time range: the key is misspelled.
        meant = ", ".join(map(harmless_text, rows.close_keys))
        print_note(f"no span {_period(since, until)} matches")
        print_note(f"similar attributes that spans have: {meant}")
    elif not rows.count:
        hint = f"; {question.hint_if_empty}" if question.hint_if_empty else ""
        # On standard error, so that a pipe gets rows only.
        noun = question.noun if question.noun == "event" else "span"
        print_note(f"{empty_note(since, until, noun)}{hint}")
    elif rows.is_cut:
        more = (
            f"there are more: --limit N prints up to {question.limit_max}"
            if rows.count < question.limit_max
            else "this is the maximum; narrow the time range or the filter"
        )
        print_note(f"the first {counted(rows.count, question.noun)} {_period(since, until)}; {more}")


def empty_note(since: str, until: str, noun: str = "span") -> str:
    """Return the note about an empty result, for which a short time range is the usual cause."""
    return f"no {noun} {_period(since, until)} matches; use --since TIME to search further back"


def _period(since: str, until: str) -> str:
    if until:
        return f"between --since {harmless_text(since)} and --until {harmless_text(until)}"
    return f"{'of the last' if parse_instant(since) is None else 'since'} {harmless_text(since)}"


def _table(rows: Iterable[Row]) -> Iterator[str]:
    """Print a column for each key of the first row, with times to the millisecond and without the year."""
    return generic_table(dict(map(_short_time, row.items())) for row in rows)


def _short_time(item: tuple[str, Any]) -> tuple[str, Any]:
    name, value = item
    if name not in _TIMES:
        return item
    return f"{name.replace('_', ' ')}{_UTC}", value[5:23].rstrip("Z").replace("T", " ")


def generic_table(rows: Iterable[Row]) -> Iterator[str]:
    """Print a column for each key of the first row; numbers are aligned right."""
    listed = list(rows)
    if not listed:
        return
    columns = list(listed[0])
    numbers = {index for index, column in enumerate(columns) if not isinstance(listed[0][column], str)}
    cells = [[_cell(row[column]) for column in columns] for row in listed]
    times = {index for index, column in enumerate(columns) if column.endswith(_UTC)}
    yield from lines_of(columns, cells, numbers=numbers, whole=times)


def json_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Print ASCII only: many readers take U+2028 and similar characters in a name for the end of a line."""
    return (json.dumps(row, separators=(",", ":")) for row in rows)


def csv_lines(rows: Iterable[Row]) -> Iterator[str]:
    """Print CSV with control characters escaped, which a terminal would obey.

    A text that a spreadsheet would evaluate as a formula gets an apostrophe in front.
    """
    for index, row in enumerate(rows):
        if not index:
            yield csv_head(row)
        yield without_controls(csv_line(row.values()))


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


PRINTERS: Final[Mapping[str, Renderer]] = {
    "table": generic_table,
    "json": json_lines,
    "jsonl": json_lines,
    "csv": csv_lines,
}
"""Value of `--format` → function that prints rows."""
