"""Facts about the receiver for the pages: settings, checks, journal, ledger, dead letters.

Invariant: no fact contains a secret or waits for the store, so pages show them during its outage, too.
"""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeVar

from receiver.config.load import Loaded
from receiver.console.ui.admin_port import AdminReport
from receiver.console.ui.event_refresh import RefreshEvents, fetch_nothing
from receiver.console.ui.numbers import duration, percent
from receiver.console.ui.results import Results
from receiver.refusals import RefusalReport, refused
from receiver.reports import DeadLetterOperations, LedgerQueries, WriterProgress
from receiver.settings import Settings

T = TypeVar("T")

BEHIND_FROM_S = 10.0
"""Age of the oldest waiting segment at which the receiver is reported as behind."""
JOURNAL_FULL_FROM = 0.8
"""Used fraction of the journal at which every page shows it."""


def no_name(_project_id: str) -> str:
    """Return no name: without the platform, projects have none."""
    return ""


class State(NamedTuple):
    """State of the receiver in a few words, for the frame of every page."""

    text: str
    level: Literal["verified", "warning", "error"]


class JournalRoom(NamedTuple):
    """Size of the journal, and the space that is left for it."""

    used_bytes: int
    max_bytes: int
    disk_free_bytes: int
    room_bytes: int
    """Bytes that the journal may still grow: up to its maximum, or until the disk is too full."""
    full_in_s: float | None
    """Time until it is full if the store accepts no more rows; `None` while the receiver keeps up."""

    @property
    def used_share(self) -> float:
        """Return the used fraction of the space that the journal may occupy."""
        return self.used_bytes / max(1, self.used_bytes + self.room_bytes)


@dataclass(slots=True)
class ReceiverFacts:
    """Facts about the receiver, which pages read."""

    loaded: Loaded
    """Settings in force with their origins; replaced at a reload."""
    progress: WriterProgress
    health: Callable[[], dict[str, str]]
    """Returns the problem of each check of the store process; empty if the check passes."""
    journal_bytes: Callable[[], int]
    """Measures the files of the journal; blocks."""
    ledger: LedgerQueries
    dead_letters: DeadLetterOperations
    admin: Callable[[], AdminReport | None]
    """Reads metrics and checks of all processes from the admin port; blocks."""
    pool: ThreadPoolExecutor
    project_name: Callable[[str], str] = no_name
    """Returns the name of a project; empty if it is not known."""
    refresh_events: RefreshEvents = fetch_nothing
    results: Results = field(default_factory=Results)
    refusals: Callable[[], RefusalReport] = lambda: refused.report

    @property
    def settings(self) -> Settings:
        """Return the settings in force."""
        return self.loaded.settings

    async def in_pool(self, call: Callable[[], T]) -> T:
        """Run a function that blocks."""
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)

    async def state(self, now_s: float) -> State:
        """Return the state of the most urgent problem."""
        checks, journal = self.health(), await self.journal(now_s)
        share, behind_s = journal.used_share, self.progress.oldest_age_s(now_s)
        if share >= JOURNAL_FULL_FROM:
            return State(f"journal {percent(share)} full", "error")
        if checks.get("store"):
            return State("store unavailable", "error")
        if any(checks.values()):
            return State("needs attention", "error")
        if behind_s >= BEHIND_FROM_S:
            return State(f"behind {duration(behind_s * 1_000)}", "warning")
        return State("ok", "verified")

    async def journal(self, now_s: float) -> JournalRoom:
        """Return the size of the journal and when it will be full."""
        limits, (used, free) = self.settings.journal, await self.in_pool(self._disk_usage)
        room = max(0, min(limits.bytes_max - used, free - limits.disk_free_min))
        age_s, waiting = self.progress.oldest_age_s(now_s), self.progress.backlog_bytes
        # While no segment is stored, the journal grows by every delivery that arrives.
        full_in_s = room * age_s / waiting if waiting and age_s >= BEHIND_FROM_S else None
        return JournalRoom(used, limits.bytes_max, free, room, full_in_s)

    def _disk_usage(self) -> tuple[int, int]:
        """Return the size of the journal and the free space of its disk; blocks."""
        return self.journal_bytes(), shutil.disk_usage(self.settings.data_dir).free
