"""`trace-drain errors`: errors by service, type and message."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from receiver.cli.console.questions import command_of
from receiver.cli.shell.api_client import Row
from receiver.cli.shell.table import lines_of


def _table(rows: Iterable[Row]) -> Iterator[str]:
    listed = list(rows)
    cells = [
        (
            str(row["spans"]),
            str(row["traces"]),
            row["service"],
            row["type"],
            row["message"],
            _names(row["deployments"], row["deployment_count"]),
            ", ".join(row["new_since"]),
            _second(row["first"]),
            _second(row["last"]),
            row["example_trace_id"],
        )
        for row in listed
    ]
    head = (
        "spans",
        "traces",
        "service",
        "type",
        "message",
        "deployments",
        "new since",
        "first (UTC)",
        "last (UTC)",
        "example trace",
    )
    new = [] if any(row["new_since"] for row in listed) else ["new since"]
    optional = (*new, "first (UTC)", "deployments", "traces", "example trace", "last (UTC)", "new since")
    return lines_of(head, cells, numbers=(0, 1), optional=optional) if cells else iter(())


def _names(names: list[str], count: int) -> str:
    """Return the first name and the number of the others."""
    return f"{names[0]} and {count - 1} more" if count > 1 else "".join(names)


def _second(time: str) -> str:
    return time[:19].replace("T", " ")


errors: Final = command_of("errors", _table)
