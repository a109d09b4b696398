"""Ledger entries of segments, written when a segment is finished and before its file is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from receiver.engine.store import Store
from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import (
    HOUR_MS,
    lines_of,
    replayed,
    unanswered,
    with_checksums,
    with_unanswered,
)
from receiver.model import Heading
from receiver.redelivery.decisions import DUPLICATE
from receiver.redelivery.window import Window
from receiver.writer.segment_state import Reading, SegmentState
from receiver.writer.splitting import SegmentSplitter


@dataclass(frozen=True, slots=True)
class LedgerEntries:
    """Writes the ledger entries of segments."""

    ledger: Ledger
    store: Store
    splitter: SegmentSplitter
    window: Window

    def record(self, state: SegmentState) -> None:
        """Record a finished segment. Parts of a split segment are recorded with that segment."""
        segment, parts_epoch = state.file.id, self.splitter.epoch_of(state.file.id)
        is_replay, hour = self.ledger.is_replay(segment), state.received_ms[0] // HOUR_MS
        if self.splitter.is_part(segment):
            return
        if state.stored is None and (
            is_replay or state.is_damaged_after_insert or not _is_as_accepted(state)
        ):
            self.query_stored_by_heading(state)
        if is_replay:
            lines = replayed(state.deliveries, state.verdicts, state.stored or {})
        elif not state.deliveries:
            lines = unanswered(state.rows, state.stored or {}, hour)
        else:
            lines = lines_of(state.deliveries, state.verdicts, stored=state.stored, rest=state.rest)
        if state.is_damaged_after_insert and state.deliveries and not is_replay:
            lines = with_unanswered(lines, state.rows, state.stored or {}, hour)
        lines = with_checksums(lines, self._checksums(state, parts_epoch))
        self.ledger.book(segment, lines, parts_epoch=parts_epoch, window=self.window.extent)

    def query_stored_by_heading(self, state: SegmentState) -> None:
        """Query the stored rows by drain and project, because some accepted rows are missing."""
        parts_epoch = self.splitter.epoch_of(state.file.id)
        has_rows = state.rows_stored or parts_epoch is not None
        stored = self.store.rows_by_heading(state.held, parts_epoch) if has_rows else {}
        state.stored = {heading: sums.rows for heading, sums in stored.items()}
        state.checksums = {heading: sums.checksum for heading, sums in stored.items()}

    def _checksums(self, state: SegmentState, parts_epoch: int | None) -> Mapping[Heading, int]:
        """Return the checksums of the stored rows by heading."""
        if state.checksums is not None or not state.rows:
            return state.checksums or {}
        stored = self.store.rows_by_heading(state.held, parts_epoch)
        return {heading: sums.checksum for heading, sums in stored.items()}

    def record_damage(self, reading: Reading) -> None:
        """Record the rows that a segment lost to damage, before it is rewritten without them.

        Lost rows of deliveries that are still listed are found missing by `record`; those of a part are found
        when its segment is finished. A replayed segment's rows were counted as dead before.
        """
        if self.splitter.is_part(reading.file.id) or self.ledger.is_replay(reading.file.id):
            return
        hour = reading.received_ms[0] // HOUR_MS
        self.ledger.damaged(reading.file.id, reading.rows_lost_unanswered, hour)


def _is_as_accepted(state: SegmentState) -> bool:
    """Return whether the segment holds every accepted row that is not a duplicate."""
    decided = zip(state.deliveries, state.verdicts, strict=True)
    return sum(delivery.rows for delivery, verdict in decided if verdict != DUPLICATE) == state.rows
