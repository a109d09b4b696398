"""Store watch: pauses the writer while the store is at fault, and regularly checks for damaged parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from receiver.backoff import backoff_s
from receiver.engine.store import Store
from receiver.errors import StoreTrouble
from receiver.logs import limited
from receiver.writer.environment import Environment
from receiver.writer.progress import Progress, WaitingUnits
from receiver.writer.reading import SealedJournal

INSPECT_S = 60.0
"""Interval between two checks of the store for damaged parts."""
FIRST_S = 0.1
"""First delay after a brief failure, such as a lost connection."""
CEILING_S = 15.0
"""Longest delay after a brief failure: limits how late the writer notices that the store is back."""
SLOWER_FIRST_S = 2.0
"""First delay for an overloaded store, which quick retries would slow down further."""
SLOWER_CEILING_S = 60.0
JITTER = 0.5


class Delays:
    """The two retry schedules of a segment: `fast` for brief failures, `slow` for an overloaded store."""

    def __init__(self, random_share: Callable[[], float]) -> None:
        self._random_share = random_share
        self.restart()

    def restart(self) -> None:
        """Reset both schedules to their shortest delay."""
        share = self._random_share
        self.fast: Iterator[float] = backoff_s(FIRST_S, CEILING_S, jitter=JITTER, random_share=share)
        self.slow: Iterator[float] = backoff_s(
            SLOWER_FIRST_S, SLOWER_CEILING_S, jitter=JITTER, random_share=share
        )


class StoreWatch:
    """Waits for the store and checks it."""

    def __init__(
        self, journal: SealedJournal, store: Store, progress: Progress, environment: Environment
    ) -> None:
        self._journal = journal
        self._store = store
        self._progress = progress
        self._environment = environment
        self._inspect_at_s = environment.monotonic() + INSPECT_S

    def pause(self, delays: Delays, *, is_slow: bool) -> None:
        """Sleep for the next delay."""
        # The journal grows during an outage, so the backlog is measured before each delay.
        WaitingUnits(self._journal.sealed(), self._progress).report(self._environment.now())
        self._environment.sleep(next(delays.slow if is_slow else delays.fast))
        self.inspect_if_due()

    def inspect_if_due(self) -> None:
        """Check the store for damaged parts every minute.

        A bad merge can be repaired only from its source parts, which the store keeps for a few minutes.
        """
        if self._environment.monotonic() < self._inspect_at_s:
            return
        # Set before the check, so that a failing check is not repeated at once.
        self._inspect_at_s = self._environment.monotonic() + INSPECT_S
        try:
            self._store.inspect()
        except StoreTrouble as trouble:
            limited.warning(
                f"store: {trouble.label}",
                "the store cannot be checked for damaged parts",
                error=trouble.label,
            )
