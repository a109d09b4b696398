"""Projects and deployments that the frame of every page offers, with their spans of the last day.

Invariant: users with other projects never share a list.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from receiver.console.api.source import Row
from receiver.console.ui.numbers import ago, count, parsed
from receiver.console.ui.view import View
from receiver.errors import ReceiverError

SINCE: Final = "24h"
"""Age of the oldest span that counts."""
DEPLOYMENTS_MAX = 1_000
"""Maximum number of deployments, the newest first, that a list has."""
SHOWN_MAX = 200
"""Maximum number of deployments that the frame offers."""
KEPT_S_MIN = 10.0
"""Time for which a list is not asked for again."""
KEPT_PER_COST = 50
"""How many times as long as its query a list is kept at least, so that large stores are asked less often."""
LISTS_MAX = 128
"""Maximum number of lists that are kept: users with the same projects share one."""
CHOSEN: Final = ("project", "deployment")


class Choice(NamedTuple):
    """A value that the reader may choose."""

    value: str
    text: str


class _Kept(NamedTuple):
    rows: Sequence[Row]
    until_s: float


class Choices:
    """The lists, which are kept for a while."""

    def __init__(self, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        self._kept: dict[tuple[str, ...], _Kept] = {}

    async def load(self, view: View) -> None:
        """Ask for the list of the caller, unless it is kept. An error leaves the list before."""
        began_s, kept = self._now(), self._kept.get(view.projects)
        if kept is not None and began_s < kept.until_s:
            return
        try:
            answer = await view.source.ask("deployments", {"since": SINCE, "limit": str(DEPLOYMENTS_MAX)})
        # The page itself reports an error of the store.
        except ReceiverError:
            return
        ended_s = self._now()
        if len(self._kept) >= LISTS_MAX:
            self._kept.clear()
        until_s = ended_s + max(KEPT_S_MIN, KEPT_PER_COST * (ended_s - began_s))
        self._kept[view.projects] = _Kept(answer.rows, until_s)

    def of(self, view: View) -> dict[str, list[Choice]]:
        """Return the projects, and the deployments of the chosen project: those known so far."""
        kept = self._kept.get(view.projects)
        rows = kept.rows if kept else ()
        chosen = view.chosen.get("project")
        of_project = [row for row in rows if chosen in (None, row["project"])]
        # The largest project first, and the newest deployment.
        projects = sorted(_added_up("project", rows), key=lambda row: -row["spans"])
        deployments = _added_up("deployment", of_project)[:SHOWN_MAX]
        return {
            name: _choices(name, found, view)
            for name, found in zip(CHOSEN, (projects, deployments), strict=True)
        }


def _added_up(name: str, rows: Sequence[Row]) -> list[Row]:
    """Return a row for each value that is not empty, in the order of their first rows."""
    found: dict[str, Row] = {}
    for row in rows:
        before = found.get(row[name], {"spans": 0, "last_seen": ""})
        last_seen = max(before["last_seen"], row["last_seen"])
        found[row[name]] = {name: row[name], "spans": before["spans"] + row["spans"], "last_seen": last_seen}
    found.pop("", None)
    return list(found.values())


def _choices(name: str, rows: Sequence[Row], view: View) -> list[Choice]:
    shown = view.project_text if name == "project" else str
    choices = [Choice(row[name], _text(shown(row[name]), row, view.now_s)) for row in rows]
    chosen = view.chosen.get(name)
    # It may have no span of the last day.
    if chosen and all(choice.value != chosen for choice in choices):
        choices.append(Choice(chosen, shown(chosen)))
    return choices


def _text(value: str, row: Row, now_s: float) -> str:
    noun = "span" if row["spans"] == 1 else "spans"
    return f"{value}: {count(row['spans'])} {noun}, {ago(parsed(row['last_seen']).timestamp(), now_s)}"
