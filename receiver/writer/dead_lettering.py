"""Dead letters written by the writer: a segment, or some of its rows, kept with the reason.

Invariant: a segment is deleted only after its dead letter is on disk and counted, and an alarm was raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import NamedTuple

from receiver.dead_letters.letter_files import DeadDelivery, DeadLetters, Reason
from receiver.journal.outcomes import SegmentOutcome
from receiver.journal.segment_core import Core, RowRange
from receiver.model import SegmentId
from receiver.redelivery.decisions import DUPLICATE
from receiver.writer.progress import Progress
from receiver.writer.row_search import row_count
from receiver.writer.segment_state import (
    DeadLettered,
    Reading,
    SegmentFile,
    SegmentState,
    extract_rows,
    ranges_of_days,
)


def unreadable_segment(state: SegmentState, reason: ValueError) -> DeadLettered:
    """Return the exception that makes a segment a dead letter because the core cannot read or rewrite it."""
    return DeadLettered("unreadable", f"{reason}; {state.rows_stored} of {state.rows} rows are stored")


class LetterDetails(NamedTuple):
    """Fields of a `Reason` that depend on the cause."""

    cause: str
    text: str
    deliveries: tuple[DeadDelivery, ...] = ()
    left_out: tuple[RowRange, ...] = ()
    of_rows: int = 0


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    """Writes dead letters, and answers what earlier ones decided."""

    directory: DeadLetters
    core: Core
    progress: Progress
    now: Callable[[], float]
    """Wall clock, seconds since 1970."""

    def keep(self, state: SegmentState, reason: DeadLettered) -> None:
        """Keep the rows that the store does not hold, or the whole segment if their days are unknown."""
        content, rows, ranges = state.file.read(), max(0, state.rows - state.rows_stored), [(0, state.rows)]
        if reason.days:
            with suppress(ValueError):
                ranges = ranges_of_days(content, reason.days, self.core)
                content, rows = extract_rows(content, ranges, self.core, state.file.codec), row_count(ranges)
        details = LetterDetails(reason.cause, str(reason), deliveries=dead_deliveries(state, ranges))
        self._keep(state.file, content, rows, details)

    def keep_rows(self, state: SegmentState, ranges: Sequence[RowRange], text: str) -> None:
        """Keep these rows. The dead letter is the decision that the segment is inserted without them."""
        content = extract_rows(state.file.read(), ranges, self.core, state.file.codec)
        details = LetterDetails("poison", text, dead_deliveries(state, ranges), tuple(ranges), state.rows)
        self._keep(state.file, content, row_count(ranges), details)

    def keep_damaged(self, reading: Reading, rows_given_up: int) -> None:
        """Keep a copy of a damaged segment. `rows_given_up`: readable rows that are lost with the damage."""
        rows = None if reading.rows_lost is None else reading.rows_lost + rows_given_up
        self._keep(reading.file, reading.content, rows, LetterDetails("damaged", reading.damage))

    def is_dead_lettered(self, segment: SegmentId) -> bool:
        """Return whether an earlier process made the segment a dead letter and did not delete its file."""
        return any(letter.reason.is_final for letter in self.directory.of(segment))

    def is_refused_by_store(self, segment: SegmentId) -> bool:
        """Return whether the store refused its rows, so that a duplicate would be refused as well."""
        return any(letter.reason.is_refused for letter in self.directory.of(segment))

    def outcome_of(self, segment: SegmentId, parts_epoch: int | None) -> SegmentOutcome:
        """Return the outcome of a finished segment from its dead letters and those of its parts."""
        reasons = [letter.reason for letter in self.directory.of(segment)]
        dead_rows: Counter[str] = Counter()
        for delivery in (dead for reason in reasons if reason.is_refused for dead in reason.deliveries):
            dead_rows[delivery.digest] += delivery.rows
        is_attributed = all(
            reason.is_refused and sum(delivery.rows for delivery in reason.deliveries) == reason.rows
            for reason in reasons
        )
        has_dead_parts = parts_epoch is not None and self.directory.has_any_of(parts_epoch)
        return SegmentOutcome(dict(dead_rows), is_incomplete=not is_attributed or has_dead_parts)

    def _keep(self, file: SegmentFile, content: bytes, rows: int | None, details: LetterDetails) -> None:
        at = datetime.fromtimestamp(self.now(), UTC).isoformat(timespec="seconds")
        reason = Reason(
            segment=str(file.id),
            cause=details.cause,
            text=details.text,
            rows=rows,
            at=at,
            deliveries=details.deliveries,
            left_out=details.left_out,
            of_rows=details.of_rows,
        )
        is_reported = any(
            (letter.reason.cause, letter.reason.text, letter.reason.rows)
            == (reason.cause, reason.text, reason.rows)
            for letter in self.directory.of(file.id)
        )
        self.directory.keep(content, "".join(file.path.suffixes), reason)
        if is_reported:
            return
        self.progress.record_dead_letter(details.cause, rows or 0)
        subject = "rows of segment" if details.left_out else "segment"
        self.progress.alarm(details.cause, f"{subject} {file.id} moved to the dead letters")


def dead_deliveries(state: SegmentState, ranges: Sequence[RowRange]) -> tuple[DeadDelivery, ...]:
    """Return the deliveries of these rows; empty if rows are missing, because positions are then unknown."""
    kept = [
        delivery
        for delivery, verdict in zip(state.deliveries, state.verdicts, strict=True)
        if verdict != DUPLICATE
    ]
    if sum(delivery.rows for delivery in kept) != state.rows:
        return ()
    dead: list[DeadDelivery] = []
    first = 0
    for delivery in kept:
        stop = first + delivery.rows
        rows = sum(max(0, min(end, stop) - max(start, first)) for start, end in ranges)
        if rows:
            projects = tuple(sorted({tally.project for tally in delivery.tallies}))
            dead.append(DeadDelivery(delivery.drain, projects, rows, delivery.digest.hex()))
        first = stop
    return tuple(dead)
