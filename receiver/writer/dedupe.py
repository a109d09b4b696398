"""Deduplication: decides which deliveries of a segment are stored, and removes the duplicates from it.

    known      the rows of a copy were counted in the store        dropped
    repeated   a copy occurs earlier in the same segment           dropped
    pending    another segment is about to store a copy            this segment waits for the other segment
    new        there is no copy                                    stored; known after its rows were counted

A segment that was damaged after rows of it were stored is not rewritten, and its decisions stay in force.

Invariant: a decision is on disk before the segment's first INSERT and never changes afterwards. Therefore a
segment is never a duplicate of itself, and no row is removed from a segment whose rows may be in the store.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from receiver.journal.frame import Answered
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery.decisions import DUPLICATE, EXEMPT, KEPT
from receiver.redelivery.window import Decision, Window
from receiver.writer.reading import Reading, SegmentFile, read_segment
from receiver.writer.segment_state import SharesDelivery
from receiver.writer.units import OpenUnit, Rows, merge_adjacent, positions, row_count

_KEPT_TO_EXEMPT = (bytes([KEPT]), bytes([EXEMPT]))


def verdicts_on(segment: SegmentId, deliveries: Sequence[Answered], window: Window) -> bytes | SharesDelivery:
    """Return the verdict on each delivery, in order, or the segment that must be stored first."""
    seen = window.known([delivery.digest for delivery in deliveries])
    verdicts = bytearray()
    for delivery in deliveries:
        if delivery.drain in window.exempt_drains:
            verdicts.append(EXEMPT)
        elif delivery.digest in seen:
            verdicts.append(DUPLICATE)
        elif by := window.reserved_by(delivery.digest, but_by=segment):
            return SharesDelivery(by)
        else:
            # A copy later in the same segment is a duplicate.
            seen.add(delivery.digest)
            verdicts.append(KEPT)
    return bytes(verdicts)


def decide_verdicts(
    reading: Reading, window: Window, is_stored: Callable[[], bool]
) -> bytes | SharesDelivery:
    """Return the verdicts on disk, or new verdicts, or the segment that must be stored first.

    `is_stored` returns whether the store has rows of the segment. It is called only if deliveries would be
    left out of a segment without a decision on disk.
    """
    decision, deliveries = window.decision(reading.file.id), reading.deliveries
    if decision is not None:
        # Damage removed some deliveries, so the verdicts can no longer be assigned to the remaining
        # deliveries.
        if len(decision.verdicts) != len(deliveries):
            return bytes([EXEMPT]) * len(deliveries)
        return decision.verdicts.replace(*_KEPT_TO_EXEMPT) if reading.damage else decision.verdicts
    # Digests of incomplete deliveries must not enter the window: a copy may be the intact one.
    if not reading.is_whole:
        return bytes([EXEMPT]) * len(deliveries)
    verdicts = verdicts_on(reading.file.id, deliveries, window)
    if isinstance(verdicts, SharesDelivery):
        return verdicts
    # The segment was already inserted with these rows, but the decision is lost: nothing may be removed now.
    if rows_left_out(deliveries, verdicts) and is_stored():
        return verdicts.replace(bytes([DUPLICATE]), bytes([KEPT]))
    return verdicts


class FinalContent(NamedTuple):
    """Final content of a segment, decided once."""

    verdicts: bytes
    """For each delivery: `decisions.KEPT`, `DUPLICATE`, `EXEMPT`."""
    rows: int
    content: bytes | None
    """Replacement for the content of the file; `None` to keep the file."""
    rows_given_up: int = 0
    """Readable rows that could not be separated from the damage around them."""
    leaves_out: bool = True
    """Whether rows are left out; otherwise the content only merges blocks, which is optional."""


def finalize(reading: Reading, core: Core, verdicts: bytes, *, may_merge: bool) -> FinalContent:
    """Merge small blocks and leave out duplicates and damage. Works in memory and writes nothing.

    `may_merge`: no decision is on disk, so no row was sent before.
    A segment that cannot be rewritten is inserted unchanged, with its duplicates. If it is also damaged, none
    of its rows are inserted. Records of another segment are never inserted.
    """
    if not reading.is_ours:
        return FinalContent(verdicts, 0, None)
    has_duplicates = reading.is_whole and rows_left_out(reading.deliveries, verdicts) > 0
    keep = rows_kept(reading.deliveries, verdicts) if has_duplicates else ((0, reading.rows),)
    leaves_out = has_duplicates or bool(reading.damage)
    if not (leaves_out or (may_merge and reading.has_small_blocks)):
        return FinalContent(verdicts, reading.rows, None)
    try:
        content = core.rewrite(reading.content, keep, reading.file.codec, BLOCK_ROWS_MAX)
    except ValueError as error:
        limited.error(
            "writer: rewrite", "segment cannot be rewritten", segment=str(reading.file.id), error=str(error)
        )
        given_up = reading.rows if reading.damage else 0
        return FinalContent(bytes([EXEMPT]) * len(verdicts), reading.rows - given_up, None, given_up)
    return FinalContent(verdicts, row_count(keep), content, leaves_out=leaves_out)


def rows_left_out(deliveries: Iterable[Answered], verdicts: bytes) -> int:
    """Count the rows of duplicate deliveries."""
    return sum(
        delivery.rows for delivery, verdict in zip(deliveries, verdicts, strict=True) if verdict == DUPLICATE
    )


def rows_kept(deliveries: Sequence[Answered], verdicts: bytes) -> Rows:
    decided = zip(positions(deliveries), verdicts, strict=True)
    return merge_adjacent(
        (first, stop) for (first, stop), verdict in decided if verdict != DUPLICATE and first < stop
    )


def digests_kept(deliveries: Iterable[Answered], verdicts: bytes) -> list[bytes]:
    """Return the digests that enter the window once the rows are counted."""
    return [
        delivery.digest for delivery, verdict in zip(deliveries, verdicts, strict=True) if verdict == KEPT
    ]


@dataclass(frozen=True, slots=True)
class Opener:
    """Opens segments: reads them and makes their content final."""

    core: Core
    window: Window
    has_rows: Callable[[OpenUnit], bool]
    """Returns whether the store has rows of a unit."""
    on_damage: Callable[[Reading, int], None]
    """Receives the number of readable rows that are lost with the damage. Must save a copy before it returns,
    because the rewrite deletes the damaged bytes."""

    def open(self, file: SegmentFile, *, in_doubt: bool) -> OpenUnit | SharesDelivery:
        """Read a segment and make its content final on disk before any row is sent.

        If another segment must be stored first, returns that segment and decides nothing.
        """
        reading = read_segment(file, self.core)
        decision = self.window.decision(file.id)
        rows_lost = _rows_lost_min(reading, decision) if reading.rows_lost is None else reading.rows_lost
        damaged = _after_insert(reading, decision, reading.rows + rows_lost, otherwise=KEPT)
        if reading.damage and in_doubt and self.has_rows(damaged):
            return damaged
        verdicts = decide_verdicts(reading, self.window, lambda: in_doubt and self.has_rows(damaged))
        if isinstance(verdicts, SharesDelivery):
            return verdicts
        decided = finalize(reading, self.core, verdicts, may_merge=decision is None)
        if reading.damage:
            self.on_damage(reading, decided.rows_given_up)
        if decision is None or decided.verdicts != decision.verdicts:
            # Before the rewrite: a rewritten file without a decision would look as if rows were lost.
            kept = digests_kept(reading.deliveries, decided.verdicts)
            self.window.decide(file.id, kept, decided.verdicts)
        if decided.content is not None:
            _replace(file, decided.content, is_needed=decided.leaves_out)
        return OpenUnit(file, decided.rows, reading.received_ms, reading.deliveries, decided.verdicts)

    def reopen_split(self, file: SegmentFile) -> OpenUnit:
        """Read a segment whose rows are stored in its pieces or dead, so that no row is left to insert."""
        return _after_insert(
            read_segment(file, self.core), self.window.decision(file.id), rows=0, otherwise=EXEMPT
        )


def _after_insert(reading: Reading, decision: Decision | None, rows: int, *, otherwise: int) -> OpenUnit:
    """Return a segment of which rows are stored: the verdicts on disk stay in force.

    If there are none for these deliveries, `otherwise` is the verdict on each.
    """
    verdicts = bytes([otherwise]) * len(reading.deliveries)
    if decision is not None and len(decision.verdicts) == len(verdicts):
        verdicts = decision.verdicts
    return OpenUnit(
        reading.file,
        rows,
        reading.received_ms,
        reading.deliveries,
        verdicts,
        is_damaged_after_insert=bool(reading.damage),
    )


def _rows_lost_min(reading: Reading, decision: Decision | None) -> int:
    """Return how many rows a segment without a footer lost at least.

    A missing row of a listed delivery is lost, and one row of each delivery that is not listed any more.
    """
    verdicts, deliveries = decision.verdicts if decision else b"", reading.deliveries
    if len(verdicts) != len(deliveries):
        return max(0, len(verdicts) - len(deliveries))
    return sum(delivery.rows for delivery in deliveries) - rows_left_out(deliveries, verdicts) - reading.rows


def _replace(file: SegmentFile, content: bytes, *, is_needed: bool) -> None:
    """Replace the file. On a full disk, skip an optional merge: storing the segment frees space."""
    try:
        file.replace(content)
    except OSError as error:
        if is_needed or error.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        limited.warning(
            "writer: no room",
            "small blocks are not merged because the disk is full",
            error=str(error.strerror),
        )
