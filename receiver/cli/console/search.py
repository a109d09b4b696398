"""`trace-drain search FILTER`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import click

from receiver.cli.console.filter_command import FilterCommand, filter_words
from receiver.cli.console.questions import common_parameters, own_parameters, run_question
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.group import examples
from receiver.cli.shell.table import lines_with_deployment, ms_text, print_note
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.sentences import SENTENCES
from receiver.printable import harmless_text

_DETAILS: Final = """
FILTER may be words of an error message, a quoted text or an id: they are searched in operations, status
messages, exceptions and promoted attributes, and text:all="WORDS" in every attribute. It also compares
fields (service, name, status, kind, duration, project, deployment, root, has-error, trace:duration) and
attributes (http.route, span.KEY, resource.KEY, event.KEY) by = != < <= > >= =~ !~ or exists, joined by
spaces, OR, - and parentheses. {FILTER} && {FILTER} searches traces with a span for
each. Quote it for the shell.
"""


@click.command(
    cls=FilterCommand,
    help=f"{SENTENCES['search']}\n\n{_DETAILS}",
    epilog=examples(
        "trace-drain search 'card declined'",
        "trace-drain search 'service=web status=error duration>250ms' --since 24h",
        """trace-drain search 'http.route="/api/*" -name=~"^health"'""",
        "trace-drain search service=web --sort=-duration --columns http.route,db.system.name",
        "trace-drain search 'http.response.status_code>=500 OR has-error' --format json | jq .trace_id",
    ),
)
@filter_words()
@click.option("--traceql", "is_traceql", is_flag=True, help="FILTER is a query in TraceQL.")
def search(words: tuple[str, ...], *, is_traceql: bool, **options: Any) -> None:  # noqa: ANN401 - click's values
    """Run the command."""
    run_question("search", {"q" if is_traceql else "filter": " ".join(words), **options}, _table)


def _table(rows: Iterable[Row]) -> Iterator[str]:
    listed = list(rows)
    cells = [
        (
            row["start"][5:23].replace("T", " "),
            row["trace_id"],
            row["service"],
            row["name"],
            ms_text(row["duration_ms"]),
            str(row["spans"]),
            str(row["errors"]),
            *row.get("columns", {}).values(),
            row["deployment"],
        )
        for row in listed
    ]
    added = [name for row in listed[:1] for name in row.get("columns", {})]
    for name in added:
        if listed and not any(row["columns"][name] for row in listed):
            print_note(f"none of these traces has the attribute {harmless_text(name)}")
    head = ("started (UTC)", "trace", "service", "span", "duration", "spans", "errors", *added, "deployment")
    # The added columns were asked for, so the others give way.
    others = ("span", "started (UTC)") if added else ()
    optional = ("spans", "service", "errors", *others)
    return (
        lines_with_deployment(head, cells, numbers=range(4, 7), whole=(0, 1), optional=optional)
        if cells
        else iter(())
    )


_OWN: Final = [each for each in own_parameters(QUESTIONS["search"]) if each.name in ("sort", "columns")]
search.params.extend([*_OWN, *common_parameters(QUESTIONS["search"])])
