"""Lazy journal: an appender that tries repeatedly to open the journal until the disk allows it.

Each intake start creates its own epoch directory, which fails on a full disk. The intake runs nevertheless.
Until the directory can be created, senders get 503, as from a full journal.

Invariant: the committer calls no other method before `full_reason` has returned `None`.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from receiver.errors import JournalFull, OperatorError
from receiver.journal.appender import Appender
from receiver.journal.outcomes import SegmentOutcome
from receiver.logs import limited
from receiver.model import SegmentId

RETRY_S = 1.0
"""Interval between two attempts to open the journal."""
NOT_OPEN = "the journal cannot be opened; retry in a moment"


class LazyJournal:
    """An appender that may not be open yet. Implements `receiver.intake.committer.Appender`."""

    def __init__(
        self, open_journal: Callable[[], Appender], now: Callable[[], float] = time.monotonic
    ) -> None:
        self._open_journal = open_journal
        self._now = now
        self._appender: Appender | None = None
        self._open_error = ""
        self._tried_at_s = 0.0
        self._try_open()

    def _try_open(self) -> None:
        self._tried_at_s = self._now()
        try:
            self._appender = self._open_journal()
        except OperatorError as error:
            self._open_error = str(error)
            limited.error(
                "journal", "journal cannot be opened; deliveries are answered 503", error=self._open_error
            )

    def _require_open(self) -> Appender:
        if self._appender is None:
            raise JournalFull(NOT_OPEN)
        return self._appender

    @property
    def trouble(self) -> str:
        """The last error of the disk; empty if there is none."""
        return self._open_error if self._appender is None else self._appender.trouble

    @property
    def open_age_s(self) -> float:
        """The age of the open segment; 0 if there is none."""
        return 0.0 if self._appender is None else self._appender.open_age_s

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """See `Appender`."""
        return NOT_OPEN if self._appender is None else self._appender.full_reason(more_bytes)

    def choose(self, *, is_awaited: bool = False) -> SegmentId:
        """See `Appender`."""
        return self._require_open().choose(is_awaited=is_awaited)

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """See `Appender`."""
        self._require_open().append(segment, record, rows)

    @property
    def has_retired(self) -> bool:
        """See `Appender`."""
        return self._appender is not None and self._appender.has_retired

    def seal_retired(self) -> None:
        """See `Appender`."""
        self._require_open().seal_retired()

    def is_stored(self, segment: SegmentId) -> bool:
        """See `Appender`."""
        return self._appender is not None and self._appender.is_stored(segment)

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        """See `Appender`."""
        return None if self._appender is None else self._appender.outcome_of(segment)

    def retire_if_due(self) -> None:
        """See `Appender`. The committer calls this regularly, so it also retries to open the journal."""
        # Runs on the disk thread, so that a disk that hangs blocks no connection.
        if self._appender is not None:
            self._appender.retire_if_due()
        elif self._now() - self._tried_at_s >= RETRY_S:
            self._try_open()

    def seal(self) -> None:
        """See `Appender`."""
        if self._appender is not None:
            self._appender.seal()

    def close(self) -> None:
        """See `Appender`."""
        if self._appender is not None:
            self._appender.close()
