"""Ledger entries of segments, written when a segment is finished and before its file is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from receiver.engine.store import RowSum, Store
from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import (
    HOUR_MS,
    Rest,
    lines_of,
    replayed,
    unanswered,
    with_checksums,
    with_unanswered,
)
from receiver.model import Heading
from receiver.redelivery.window import Window
from receiver.reports import RecordedSegment
from receiver.writer.reading import Reading
from receiver.writer.splitting import Splitter
from receiver.writer.units import OpenUnit


@dataclass(frozen=True, slots=True)
class LedgerEntries:
    ledger: Ledger
    store: Store
    splitter: Splitter
    window: Window

    def record(self, opened: OpenUnit, rest: Rest) -> int:
        """Record a finished segment with its pieces and dead rows. Return its number of rows in the store.

        `rest`: the outcome of the accepted rows that are not stored.
        """
        segment, hour = opened.unit.id, opened.received_ms[0] // HOUR_MS
        plan, parts_epoch = self.splitter.plan_of(segment), self.splitter.epoch_of(segment)
        rows, is_replay = plan.of_rows if plan else opened.rows, self.ledger.is_replay(segment)
        sums = self._stored_by_heading(opened, parts_epoch)
        stored = {heading: sum_.rows for heading, sum_ in sums.items()}
        if is_replay:
            lines = replayed(opened.deliveries, opened.verdicts, stored)
        elif not opened.deliveries:
            lines = unanswered(rows, stored, hour)
        else:
            is_whole = sum(delivery.rows for delivery in opened.accepted) == rows
            is_whole = is_whole and not (plan and plan.dead)
            lines = lines_of(
                opened.deliveries, opened.verdicts, stored=None if is_whole else stored, rest=rest
            )
            if opened.is_damaged_after_insert:
                lines = with_unanswered(lines, rows, stored, hour)
        lines = with_checksums(lines, {heading: sum_.checksum for heading, sum_ in sums.items()})
        self.ledger.record(segment, lines, parts_epoch=parts_epoch, window=self.window.extent)
        rows_stored = sum(stored.values())
        if rows_stored and self.ledger.recorded is not None:
            self.ledger.recorded.add(
                RecordedSegment(segment, opened.location.received_ms, parts_epoch, rows_stored)
            )
        return rows_stored

    def _stored_by_heading(self, opened: OpenUnit, parts_epoch: int | None) -> Mapping[Heading, RowSum]:
        """Query the stored rows and their checksums by drain, project and hour."""
        # Nothing is stored, which saves the query.
        if not opened.rows_stored and parts_epoch is None:
            return {}
        return self.store.rows_by_heading(opened.location, parts_epoch)

    def record_damage(self, reading: Reading, rows_lost_unanswered: int) -> None:
        """Record all rows that a segment lost to damage, before it is rewritten without them.

        Lost rows of deliveries that are still listed are excluded: `record` finds that they are missing. The
        rows of a replayed segment are excluded, because they are already counted as dead.
        """
        if self.ledger.is_replay(reading.file.id):
            return
        hour = reading.received_ms[0] // HOUR_MS
        self.ledger.record_damage(reading.file.id, rows_lost_unanswered, hour)
