"""A journal that may come late.

A start draws a directory of its own, which a full disk refuses. That is no reason to be away: senders are
told to wait, as by a journal that is full, and the drawing is tried again until it succeeds.

Invariant: the committer asks `full_reason` first and until then calls nothing else.
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
NOT_YET = "the journal cannot be opened; expected to be open in a moment"


class LazyJournal:
    """The appender, once it could be drawn. Fits `receiver.intake.committer.Appender`."""

    def __init__(self, draw: Callable[[], Appender], now: Callable[[], float] = time.monotonic) -> None:
        self._draw = draw
        self._now = now
        self._drawn: Appender | None = None
        self._refusal = ""
        self._tried_at_s = 0.0
        self._try()

    def _try(self) -> None:
        self._tried_at_s = self._now()
        try:
            self._drawn = self._draw()
        except OperatorError as reason:
            self._refusal = str(reason)
            limited.error("journal", "journal cannot be opened; deliveries get 503", error=self._refusal)

    def _required(self) -> Appender:
        if self._drawn is None:
            raise JournalFull(NOT_YET)
        return self._drawn

    @property
    def trouble(self) -> str:
        """What the disk refused lately."""
        return self._refusal if self._drawn is None else self._drawn.trouble

    def full_reason(self, more_bytes: int = 0) -> str | None:
        """See `Appender`."""
        return NOT_YET if self._drawn is None else self._drawn.full_reason(more_bytes)

    def choose(self) -> SegmentId:
        """See `Appender`."""
        return self._required().choose()

    def append(self, segment: SegmentId, record: bytes, rows: int) -> None:
        """See `Appender`."""
        self._required().append(segment, record, rows)

    @property
    def has_retired(self) -> bool:
        """See `Appender`."""
        return self._drawn is not None and self._drawn.has_retired

    def seal_retired(self) -> None:
        """See `Appender`."""
        self._required().seal_retired()

    def is_stored(self, segment: SegmentId) -> bool:
        """See `Appender`."""
        return self._drawn is not None and self._drawn.is_stored(segment)

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome | None:
        """See `Appender`."""
        return None if self._drawn is None else self._drawn.outcome_of(segment)

    def retire_if_due(self) -> None:
        """See `Appender`. Called all the time: also the moment to try again."""
        if self._drawn is not None:
            self._drawn.retire_if_due()
        elif self._now() - self._tried_at_s >= RETRY_S:
            self._try()

    def seal(self) -> None:
        """See `Appender`."""
        if self._drawn is not None:
            self._drawn.seal()

    def close(self) -> None:
        """See `Appender`."""
        if self._drawn is not None:
            self._drawn.close()
