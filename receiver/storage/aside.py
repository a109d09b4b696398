"""What the writer sets aside: a segment, or what is left of it, goes to the dead letters with the reason.

Keeps: nobody lets go of a segment before its letter is on the disk, counted, and a human was called.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime

from receiver.storage.case import Case, Core, Reading, SegmentFile, only_days
from receiver.storage.dead import DeadLetters, Reason
from receiver.storage.progress import Progress


class SetAside(Exception):  # noqa: N818 - not an error: how a case is closed from any depth
    """The segment goes to the dead letters."""

    def __init__(self, cause: str, text: str, *, days: Collection[str] = ()) -> None:
        """`days`: what is not in the store because of this; none: whatever is not."""
        super().__init__(text)
        self.cause = cause
        self.days = days


def unreadable(case: Case, reason: ValueError) -> SetAside:
    """Tell of a segment that the core can neither look into nor cut: whatever of it is missing stays so."""
    return SetAside("unreadable", f"{reason}; {case.rows_stored} of {case.rows} rows are stored")


@dataclass(frozen=True, slots=True)
class Aside:
    """The writer's way to the dead letters."""

    dead: DeadLetters
    core: Core
    progress: Progress
    now: Callable[[], float]
    """Wall clock, seconds since 1970."""

    def keep(self, case: Case, reason: SetAside) -> None:
        """Keep what the store does not hold, and no more where it can be told: a human may insert it."""
        content, rows = case.file.read(), max(0, case.rows - case.rows_stored)
        if reason.days:
            with suppress(ValueError):
                content, rows = only_days(content, reason.days, self.core, case.file.codec)
        self._keep(case.file, content, reason.cause, str(reason), rows)

    def keep_damaged(self, reading: Reading, rows_given_up: int) -> None:
        """Keep a copy of what the disk gave back damaged, and of the whole rows that are lost with it."""
        rows = None if reading.rows_lost is None else reading.rows_lost + rows_given_up
        self._keep(reading.file, reading.content, "damaged", reading.damage, rows)

    def _keep(self, file: SegmentFile, content: bytes, cause: str, text: str, rows: int | None) -> None:
        at = datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="seconds")
        reason = Reason(segment=str(file.id), cause=cause, text=text, rows=rows, at=at)
        self.dead.keep(content, "".join(file.path.suffixes), reason)
        self.progress.set_aside(cause, rows or 0)
        self.progress.alarm(cause, f"segment {file.id} was set aside in the dead letters")
