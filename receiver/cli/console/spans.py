"""`trace-drain spans`: the newest spans that match."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import click

from receiver.cli.console.questions import common_parameters, own_parameters, run_question
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.group import examples
from receiver.cli.shell.table import lines_with_deployment
from receiver.console.queries.questions import QUESTIONS
from receiver.console.queries.sentences import SENTENCES
from receiver.sizes import duration_text


@click.command(
    help=f"""{SENTENCES["spans"]} As JSON and CSV they have every stored column.

    A note on standard error reports that more spans match than --limit, or that none does.
    """,
    epilog=examples(
        "trace-drain spans --since 15m --project prj_1 --service web",
        "trace-drain spans --since 24h --limit 1000000 --format jsonl > spans.jsonl",
    ),
)
def spans(**options: str | None) -> None:
    """Run the command."""
    run_question("spans", options, _table)


def _table(rows: Iterable[Row]) -> Iterator[str]:
    cells = [
        (
            row["Timestamp"][5:23],
            row["ProjectId"],
            row["ServiceName"],
            row["SpanName"],
            duration_text(row["Duration"]),
            row["StatusCode"],
            row["TraceId"],
            row["DeploymentId"],
        )
        for row in rows
    ]
    head = ("started (UTC)", "project", "service", "span", "duration", "status", "trace", "deployment")
    optional = ("project", "service", "status")
    return lines_with_deployment(head, cells, whole=(0, 4, 6), optional=optional) if cells else iter(())


spans.params.extend([*own_parameters(QUESTIONS["spans"]), *common_parameters(QUESTIONS["spans"])])
