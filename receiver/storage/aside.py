"""What the writer sets aside: a segment, or what is left of it, goes to the dead letters with the reason.

Keeps: nobody lets go of a segment before its letter is on the disk, counted, and a human was called.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from receiver.journal.outcomes import SegmentOutcome
from receiver.model import SegmentId
from receiver.storage.case import Case, Core, Reading, SegmentFile, SetAside, only_rows, runs_of
from receiver.storage.dead import Dead, DeadLetters, Reason
from receiver.storage.decisions import DUPLICATE
from receiver.storage.progress import Progress
from receiver.storage.search import RowRange, count_of


def unreadable(case: Case, reason: ValueError) -> SetAside:
    """Tell of a segment that the core can neither look into nor cut: whatever of it is missing stays so."""
    return SetAside("unreadable", f"{reason}; {case.rows_stored} of {case.rows} rows are stored")


class Why(NamedTuple):
    """What a letter says of itself. See `Reason`."""

    cause: str
    text: str
    deliveries: tuple[Dead, ...] = ()
    left_out: tuple[RowRange, ...] = ()
    of_rows: int = 0


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
        content, rows, ranges = case.file.read(), max(0, case.rows - case.rows_stored), [(0, case.rows)]
        if reason.days:
            with suppress(ValueError):
                ranges = runs_of(content, reason.days, self.core)
                content, rows = only_rows(content, ranges, self.core, case.file.codec), count_of(ranges)
        why = Why(reason.cause, str(reason), deliveries=dead_among(case, ranges))
        self._keep(case.file, content, rows, why)

    def keep_rows(self, case: Case, ranges: Sequence[RowRange], text: str) -> None:
        """Keep these rows: from then on it is decided that they are left out, and nothing else."""
        content = only_rows(case.file.read(), ranges, self.core, case.file.codec)
        why = Why("poison", text, dead_among(case, ranges), tuple(ranges), case.rows)
        self._keep(case.file, content, count_of(ranges), why)

    def keep_damaged(self, reading: Reading, rows_given_up: int) -> None:
        """Keep a copy of what the disk gave back damaged, and of the whole rows that are lost with it."""
        rows = None if reading.rows_lost is None else reading.rows_lost + rows_given_up
        self._keep(reading.file, reading.content, rows, Why("damaged", reading.damage))

    def is_done_with(self, segment: SegmentId) -> bool:
        """Whether it was set aside in an earlier life, which only did not come to unlink it."""
        return any(letter.reason.is_final for letter in self.dead.of(segment))

    def is_as_bad_as_its_copy(self, segment: SegmentId) -> bool:
        """Whether it is kept because of what is in it: another copy of its deliveries helps nobody."""
        return any(letter.reason.is_refused for letter in self.dead.of(segment))

    def outcome_of(self, segment: SegmentId, parts_epoch: int | None) -> SegmentOutcome:
        """Return what became of a segment that ends now, by its dead letters and those of its parts."""
        reasons = [letter.reason for letter in self.dead.of(segment)]
        dead_rows: Counter[str] = Counter()
        for one in (dead for reason in reasons if reason.is_refused for dead in reason.deliveries):
            dead_rows[one.digest] += one.rows
        is_attributed = all(
            reason.is_refused and sum(one.rows for one in reason.deliveries) == reason.rows
            for reason in reasons
        )
        is_cut_and_dead = parts_epoch is not None and self.dead.has_any_of(parts_epoch)
        return SegmentOutcome(dict(dead_rows), is_incomplete=not is_attributed or is_cut_and_dead)

    def _keep(self, file: SegmentFile, content: bytes, rows: int | None, why: Why) -> None:
        at = datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="seconds")
        reason = Reason(
            segment=str(file.id),
            cause=why.cause,
            text=why.text,
            rows=rows,
            at=at,
            deliveries=why.deliveries,
            left_out=why.left_out,
            of_rows=why.of_rows,
        )
        is_told = any(
            (one.reason.cause, one.reason.text, one.reason.rows) == (reason.cause, reason.text, reason.rows)
            for one in self.dead.of(file.id)
        )
        self.dead.keep(content, "".join(file.path.suffixes), reason)
        if is_told:
            return
        self.progress.set_aside(why.cause, rows or 0)
        what = "rows of segment" if why.left_out else "segment"
        self.progress.alarm(why.cause, f"{what} {file.id} set aside in the dead letters")


def dead_among(case: Case, ranges: Sequence[RowRange]) -> tuple[Dead, ...]:
    """Tell whose rows these are; nobody's, if the segment lacks rows that its deliveries speak of."""
    kept = [one for one, verdict in zip(case.deliveries, case.verdicts, strict=True) if verdict != DUPLICATE]
    if sum(one.rows for one in kept) != case.rows:
        return ()
    found: list[Dead] = []
    first = 0
    for one in kept:
        behind = first + one.rows
        rows = sum(max(0, min(end, behind) - max(start, first)) for start, end in ranges)
        if rows:
            projects = tuple(sorted({tally.project for tally in one.tallies}))
            found.append(Dead(one.drain, projects, rows, one.digest.hex()))
        first = behind
    return tuple(found)
