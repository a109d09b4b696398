"""Completion in the shell: services, attributes and deployments that the running receiver has stored.

Never: prints or raises. A shell shows no completions if the receiver does not run or responds late.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from queue import Empty, SimpleQueue
from threading import Thread
from typing import Final

import click
from click.shell_completion import CompletionItem

from receiver.cli.shell.api_client import query_url
from receiver.cli.shell.options import loaded_with
from receiver.console.queries.group_key import FIELDS
from receiver.supervisor.state import running_receiver

ANSWER_S = 0.4
"""How long the shell waits for the receiver."""
SINCE = "1h"
NAMES_MAX = 1_000


def stored_rows(name: str, config: str | None, data: str | None, **parameters: str) -> list[dict[str, str]]:
    """Query the running receiver. Returns no rows if the response takes longer than `ANSWER_S`."""
    results: SimpleQueue[list[dict[str, str]]] = SimpleQueue()

    def query_receiver() -> None:
        try:
            settings = loaded_with(config, data).settings
            state = running_receiver(settings)
            if state is not None:
                query = {"since": SINCE, "limit": str(NAMES_MAX), **parameters}
                path = f"/api/v1/{name}"
                results.put(list(query_url(state.api_url, settings.api_token, path, query)))
        except Exception:  # noqa: BLE001, S110 - a shell must not show an error while a user types
            pass
        # Only the first result is read; this one ends the wait if there is none.
        results.put([])

    # A thread, because a timeout of the request would not limit loading the settings and connecting. It is a
    # daemon, so that the process does not wait for it at the exit.
    Thread(target=query_receiver, daemon=True).start()
    try:
        return results.get(timeout=ANSWER_S)
    except Empty:
        return []


COLUMN_OF: Final[Mapping[str, tuple[str, str]]] = {
    "service": ("services", "service"),
    "project": ("deployments", "project"),
    "key": ("attributes", "key"),
    **dict.fromkeys(("a", "b", "deployment"), ("deployments", "deployment")),
}
"""Parameter of a query → the query and the column that have its names."""


def complete(context: click.Context, parameter: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Return the names that begin with what is typed."""
    config, data = context.params.get("config"), context.params.get("data")
    names: Iterable[str] = ()
    if parameter.name == "by":
        names = [*FIELDS, *sorted({_scoped_key(row) for row in stored_rows("attributes", config, data)})]
    elif parameter.name in COLUMN_OF:
        query, column = COLUMN_OF[parameter.name]
        # A deployment has a row for each project. The result has the most relevant names first.
        stored = dict.fromkeys(row[column] for row in stored_rows(query, config, data))
        names = stored if column in ("service", "deployment") else sorted(stored)
    return [CompletionItem(name) for name in completable(names, incomplete)]


def _scoped_key(row: Mapping[str, str]) -> str:
    """Return the key of an attribute, with its scope if it has no dot: then a filter needs the scope."""
    return row["key"] if "." in row["key"] else f"{row['scope']}.{row['key']}"


def completable(names: Iterable[str], incomplete: str) -> list[str]:
    """Return the names that begin with what is typed and that a terminal can show."""
    # A sender chose the names: control characters in them would reach the terminal.
    return [name for name in names if name and name.startswith(incomplete) and name.isprintable()]
