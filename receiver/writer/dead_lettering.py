"""Dead letters written by the writer: a segment, or some of its rows, kept with the reason.

Invariant: before a segment is deleted, its dead letters are on disk and counted, and an alarm was raised.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from zlib import crc32

from receiver.dead_letters.directory import DeadLetters, Reason
from receiver.durable.files import DISK
from receiver.journal.frame import Answered
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core
from receiver.journal.writer_notes import SegmentOutcome
from receiver.model import SegmentId
from receiver.reports import DeadDelivery
from receiver.time_range import instant_text
from receiver.writer.progress import Progress
from receiver.writer.reading import Reading, SegmentFile, read_segment
from receiver.writer.units import (
    DeadRows,
    OpenUnit,
    Plan,
    Rows,
    intersect,
    merge_adjacent,
    positions,
    read_planned,
    row_count,
)


@dataclass(frozen=True, slots=True)
class DeadLetterWriter:
    """Writes dead letters, and looks up the rows that are already in dead letters."""

    directory: DeadLetters
    core: Core
    progress: Progress
    now: Callable[[], float]
    """Wall clock, seconds since 1970."""

    def keep(self, segment: SegmentFile, opened: OpenUnit, plan: Plan) -> None:
        """Keep the dead rows of a segment, in one dead letter for each cause.

        If the dead rows cannot be separated from the stored rows, the dead letter holds the whole segment.
        """
        by_cause: dict[str, list[DeadRows]] = {}
        for dead in plan.dead:
            by_cause.setdefault(dead.cause, []).append(dead)
        for cause, parts in by_cause.items():
            ranges = merge_adjacent(row_range for dead in parts for row_range in dead.ranges)
            content = self._extract(segment, plan, ranges)
            rows = sum(dead.rows for dead in parts)
            reason = Reason(
                segment=str(segment.id),
                cause=cause,
                text=parts[0].text,
                rows=rows,
                at=instant_text(self.now()),
                deliveries=dead_deliveries(opened.accepted, plan.of_rows, ranges),
            )
            self._keep(segment, content, reason, f"{segment.id}.{cause}")

    def _extract(self, segment: SegmentFile, plan: Plan, ranges: Rows) -> bytes:
        content = segment.read()
        if ranges == ((0, plan.of_rows),):
            return content
        try:
            content = read_planned(segment, plan, self.core)
            return self.core.rewrite(content, ranges, segment.codec, BLOCK_ROWS_MAX)
        except ValueError:
            return content

    def keep_damaged(self, reading: Reading, rows_given_up: int) -> int:
        """Keep a copy of a damaged segment. `rows_given_up`: readable rows that are lost with the damage.

        Returns the lost rows that belong to no listed delivery, in this copy and those of earlier damage.
        """
        # A repetition after a crash finds its own copy and writes it under the same name.
        earlier = {
            DISK.read(dead_letter.path): dead_letter.id
            for dead_letter in self.directory.of(reading.file.id)
            if dead_letter.reason.cause == "damaged"
        }
        new_name = f"{reading.file.id}.damaged" + (f".{crc32(reading.content):08x}" if earlier else "")
        rows = None if reading.rows_lost is None else reading.rows_lost + rows_given_up
        reason = Reason(
            segment=str(reading.file.id),
            cause="damaged",
            text=reading.damage,
            rows=rows,
            at=instant_text(self.now()),
        )
        self._keep(reading.file, reading.content, reason, earlier.get(reading.content, new_name))
        # A set, so that a copy that an earlier attempt kept is not counted twice.
        copies = {reading.content, *earlier}
        return sum(
            read_segment(reading.file, self.core, content=copy).rows_lost_unanswered for copy in copies
        )

    def has_any_of(self, segment: SegmentId) -> bool:
        """Return whether rows of a segment are in dead letters. Raises `DecodeError` for a damaged reason."""
        return bool(self.directory.of(segment))

    def outcome_of(self, segment: SegmentId) -> SegmentOutcome:
        """Return the outcome of a finished segment from its dead letters."""
        reasons = [dead_letter.reason for dead_letter in self.directory.of(segment)]
        dead_rows: Counter[str] = Counter()
        for delivery in (dead for reason in reasons if reason.is_refused for dead in reason.deliveries):
            dead_rows[delivery.digest] += delivery.rows
        is_attributed = all(
            reason.is_refused and sum(delivery.rows for delivery in reason.deliveries) == reason.rows
            for reason in reasons
        )
        return SegmentOutcome(dict(dead_rows), is_incomplete=not is_attributed)

    def _keep(self, file: SegmentFile, content: bytes, reason: Reason, name: str) -> None:
        # A repetition after a disk error or a crash is neither counted nor reported again.
        is_reported = any(
            (dead_letter.id, dead_letter.reason.text, dead_letter.reason.rows)
            == (name, reason.text, reason.rows)
            for dead_letter in self.directory.of(file.id)
        )
        self.directory.keep(content, "".join(file.path.suffixes), reason, name)
        if not is_reported:
            self.progress.record_dead_letter(reason.cause, reason.rows or 0)
            rows_text = "an unknown number of rows" if reason.rows is None else f"{reason.rows} rows"
            self.progress.alarm(reason.cause, f"{rows_text} of segment {file.id} moved to the dead letters")


def dead_deliveries(accepted: Sequence[Answered], of_rows: int, ranges: Rows) -> tuple[DeadDelivery, ...]:
    """Return the deliveries of these rows; empty if rows are missing, which makes positions unreliable."""
    if sum(delivery.rows for delivery in accepted) != of_rows:
        return ()
    dead: list[DeadDelivery] = []
    for delivery, position in zip(accepted, positions(accepted), strict=True):
        rows = row_count(intersect(ranges, [position]))
        if rows:
            projects = tuple(sorted({tally.project for tally in delivery.tallies}))
            dead.append(DeadDelivery(delivery.drain, projects, rows, delivery.digest.hex()))
    return tuple(dead)
