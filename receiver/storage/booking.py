"""Turns what became of a segment into its ledger entry, when it ends and before its file is deleted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from receiver.model import Heading
from receiver.storage.case import Case, Reading
from receiver.storage.cuts import Cuts
from receiver.storage.decisions import DUPLICATE
from receiver.storage.ledger import Ledger
from receiver.storage.ledger_lines import (
    HOUR_MS,
    lines_of,
    replayed,
    unanswered,
    with_checksums,
    with_unanswered,
)
from receiver.storage.store import Store
from receiver.storage.window import Window


@dataclass(frozen=True, slots=True)
class Booking:
    """Books segments."""

    ledger: Ledger
    store: Store
    cuts: Cuts
    window: Window

    def ended(self, case: Case) -> None:
        """Book a segment that was counted, or set aside after `divide`. Parts are booked as their whole."""
        segment, parts_epoch = case.file.id, self.cuts.epoch_of(case.file.id)
        is_replay, hour = self.ledger.is_replay(segment), case.received_ms[0] // HOUR_MS
        if self.cuts.is_part(segment):
            return
        if case.stored is None and (is_replay or case.is_rotten or not _is_as_accepted(case)):
            self.divide(case)
        if is_replay:
            lines = replayed(case.deliveries, case.verdicts, case.stored or {})
        elif not case.deliveries:
            lines = unanswered(case.rows, case.stored or {}, hour)
        else:
            lines = lines_of(case.deliveries, case.verdicts, stored=case.stored, rest=case.rest)
        if case.is_rotten and case.deliveries and not is_replay:
            lines = with_unanswered(lines, case.rows, case.stored or {}, hour)
        lines = with_checksums(lines, self._checksums(case, parts_epoch))
        self.ledger.book(segment, lines, parts_epoch=parts_epoch, window=self.window.extent)

    def divide(self, case: Case) -> None:
        """Ask the store whose rows it holds, when not all that were accepted are stored."""
        parts_epoch = self.cuts.epoch_of(case.file.id)
        has_rows = case.rows_stored or parts_epoch is not None
        found = self.store.rows_by_heading(case.held, parts_epoch) if has_rows else {}
        case.stored = {heading: one.rows for heading, one in found.items()}
        case.checksums = {heading: one.checksum for heading, one in found.items()}

    def _checksums(self, case: Case, parts_epoch: int | None) -> Mapping[Heading, int]:
        """Return the checksums of the rows that were counted."""
        if case.checksums is not None or not case.rows:
            return case.checksums or {}
        found = self.store.rows_by_heading(case.held, parts_epoch)
        return {heading: one.checksum for heading, one in found.items()}

    def damaged(self, reading: Reading) -> None:
        """Book what is lost of a segment, before it is rewritten without that.

        Of what a delivery that is left speaks, `ended` finds it missing; and of a part, when the whole ended.
        What a replayed segment has lost was dead before.
        """
        if self.cuts.is_part(reading.file.id) or self.ledger.is_replay(reading.file.id):
            return
        hour = reading.received_ms[0] // HOUR_MS
        self.ledger.damaged(reading.file.id, reading.rows_lost_unanswered, hour)


def _is_as_accepted(case: Case) -> bool:
    """Whether every row of what was not left out was there to be stored."""
    told = zip(case.deliveries, case.verdicts, strict=True)
    return sum(one.rows for one, verdict in told if verdict != DUPLICATE) == case.rows
