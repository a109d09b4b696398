"""`trace-drain search FILTER`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import click

from receiver.cli.group import examples
from receiver.cli.questions import Row, common_parameters, run_question
from receiver.cli.table import duration_text, lines_of
from receiver.query.questions import QUESTIONS


@click.command(
    context_settings={"ignore_unknown_options": True, "help_option_names": ["--help"]},
    epilog=examples(
        "trace-drain search 'service=web status=error duration>250ms' --since 24h",
        """trace-drain search 'http.route="/api/*" -name=~"^health"'""",
        "trace-drain search 'http.response.status_code>=500 OR has-error' --format json | jq .trace_id",
    ),
)
@click.argument("words", metavar="[FILTER]", nargs=-1, type=click.UNPROCESSED)
@click.option("--traceql", "is_traceql", is_flag=True, help="FILTER is a query in TraceQL.")
def search(words: tuple[str, ...], *, is_traceql: bool, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Search traces that have a span which matches FILTER, those with the newest matching spans first.

    FILTER compares fields (service, name, status, kind, duration, project, deployment, root, has-error,
    trace:duration) and attributes (http.route, span.KEY, resource.KEY, event.KEY) by = != < <= > >= =~ !~ or
    exists, joined by spaces, OR, - and parentheses. {FILTER} && {FILTER} searches traces with a span for
    each. Quote it for the shell.
    """
    separate_options(words)
    run_question("search", {"q" if is_traceql else "filter": " ".join(words), **options}, _table)


def separate_options(words: tuple[str, ...]) -> None:
    """Raise for a mistyped option, which is otherwise a part of the filter.

    `-h` is not an option for click, because `-http.route=x` would print the help.
    """
    if words == ("-h",):
        context = click.get_current_context()
        click.echo(context.get_help())
        context.exit()
    for word in words:
        # A single dash negates a condition, so only two dashes are certainly not a filter.
        if word.startswith("--"):
            raise click.NoSuchOption(word.partition("=")[0], ctx=click.get_current_context())


def _table(rows: Iterable[Row]) -> Iterator[str]:
    cells = [
        (
            row["start"][:23].replace("T", " "),
            row["trace_id"],
            row["service"],
            row["name"],
            duration_text(round(row["duration_ms"] * 1_000_000)),
            str(row["spans"]),
            str(row["errors"]),
        )
        for row in rows
    ]
    head = ("started (UTC)", "trace", "service", "span", "duration", "spans", "errors")
    return lines_of(head, cells, numbers=range(4, 7)) if cells else iter(())


search.params.extend(common_parameters(QUESTIONS["search"]))
