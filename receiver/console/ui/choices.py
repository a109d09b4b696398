"""Projects and deployments that the frame of every page offers, with their span counts of the last day.

Invariant: users with other projects never share a list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from receiver.console.api.source import Row
from receiver.console.ui.numbers import ago, parsed
from receiver.console.ui.view import View
from receiver.errors import ReceiverError
from receiver.sizes import counted

SINCE: Final = "24h"
"""Age up to which spans are counted."""
DEPLOYMENTS_MAX = 1_000
SHOWN_MAX = 200
CACHED_S_MIN = 10.0
"""Minimum time for which a list is cached."""
CACHED_PER_COST = 50
"""Minimum time in the cache as a multiple of the query's time: large stores are queried less often."""
LISTS_MAX = 128
"""Maximum number of cached lists: users with the same projects share a list."""
CHOSEN: Final = ("project", "deployment")


class Choice(NamedTuple):
    """A value that the user may choose."""

    value: str
    text: str


class _CachedList(NamedTuple):
    rows: Sequence[Row]
    until_s: float


class Choices:
    """Cache of the lists."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._cached: dict[tuple[str, ...], _CachedList] = {}

    async def load(self, view: View) -> None:
        """Query the list of the caller, unless it is cached. An error keeps the previous list."""
        began_s, cached = self._now(), self._cached.get(view.projects)
        if cached is not None and began_s < cached.until_s:
            return
        try:
            answer = await view.source.ask("deployments", {"since": SINCE, "limit": str(DEPLOYMENTS_MAX)})
        # The page reports an error of the store.
        except ReceiverError:
            return
        ended_s = self._now()
        if len(self._cached) >= LISTS_MAX:
            self._cached.clear()
        until_s = ended_s + max(CACHED_S_MIN, CACHED_PER_COST * (ended_s - began_s))
        self._cached[view.projects] = _CachedList(answer.rows, until_s)

    def of(self, view: View) -> dict[str, list[Choice]]:
        """Return the known projects, and the known deployments of the chosen project."""
        cached = self._cached.get(view.projects)
        rows = cached.rows if cached else ()
        chosen = view.chosen.get("project")
        of_project = [row for row in rows if chosen in (None, row["project"])]
        # The largest project first, and the newest deployment.
        projects = sorted(_added_up("project", rows), key=lambda row: -row["spans"])
        deployments = _added_up("deployment", of_project)[:SHOWN_MAX]
        return {
            name: _choices(name, values, view)
            for name, values in zip(CHOSEN, (projects, deployments), strict=True)
        }


def _added_up(name: str, rows: Sequence[Row]) -> list[Row]:
    """Return the sum of the rows of each value that is not empty, in the order of their first rows."""
    sums: dict[str, Row] = {}
    for row in rows:
        before = sums.get(row[name], {"spans": 0, "last_seen": ""})
        last_seen = max(before["last_seen"], row["last_seen"])
        sums[row[name]] = {name: row[name], "spans": before["spans"] + row["spans"], "last_seen": last_seen}
    sums.pop("", None)
    return list(sums.values())


def _choices(name: str, rows: Sequence[Row], view: View) -> list[Choice]:
    label_of = view.project_text if name == "project" else str
    choices = [Choice(row[name], _text(label_of(row[name]), row, view.now_s)) for row in rows]
    chosen = view.chosen.get(name)
    # The chosen value may have no span of the last day.
    if chosen and all(choice.value != chosen for choice in choices):
        choices.append(Choice(chosen, label_of(chosen)))
    return choices


def _text(value: str, row: Row, now_s: float) -> str:
    return f"{value}: {counted(row['spans'], 'span')}, {ago(parsed(row['last_seen']).timestamp(), now_s)}"
