"""Deduplication: decides which deliveries of a segment are stored, and removes the duplicates from it.

    known      the rows of the same delivery were counted in the store   left out
    repeated   the delivery occurs earlier in the same segment           left out
    pending    another segment is about to store the delivery            this segment waits for that one
    new        all others                                                stored, and known once counted

A segment that was damaged after rows of it were stored is not rewritten, and its decisions stay in force.

Invariant: a decision is on disk before the segment's first INSERT and never changes afterwards. So a segment
is never a duplicate of itself, and no row is removed from a segment whose rows may be in the store.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from receiver.journal.frame import Answered
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core, RowRange
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery.decisions import DUPLICATE, EXEMPT, KEPT
from receiver.redelivery.window import Decision, Window
from receiver.writer.row_search import row_count, shift_after_removal, subtract
from receiver.writer.segment_state import Reading, SegmentFile, SegmentState, read_segment

_KEPT_APART = (bytes([KEPT]), bytes([EXEMPT]))


class WaitingFor(Exception):  # noqa: N818 - control flow, not an error
    """Another segment holds the same delivery and is not known to be stored yet."""

    def __init__(self, by: SegmentId) -> None:
        """`by`: the segment to wait for."""
        super().__init__(str(by))
        self.by = by


def verdicts_on(segment: SegmentId, deliveries: Sequence[Answered], window: Window) -> bytes:
    """Return the verdict on each delivery, in order. Raises `WaitingFor`."""
    seen = window.known([delivery.digest for delivery in deliveries])
    verdicts = bytearray()
    for delivery in deliveries:
        if delivery.drain in window.exempt_drains:
            verdicts.append(EXEMPT)
        elif delivery.digest in seen:
            verdicts.append(DUPLICATE)
        elif by := window.reserved_by(delivery.digest, but_by=segment):
            raise WaitingFor(by)
        else:
            seen.add(delivery.digest)
            verdicts.append(KEPT)
    return bytes(verdicts)


def decide_verdicts(reading: Reading, window: Window, is_stored: Callable[[], bool]) -> bytes:
    """Return the verdicts that are on disk, or decide now. Raises `WaitingFor`.

    `is_stored` returns whether the store has rows of the segment. It is called only if deliveries would be
    left out of a segment without a decision on disk.
    """
    decision, deliveries = window.decision(reading.file.id), reading.deliveries
    if decision is not None:
        if len(decision.verdicts) != len(deliveries):
            return bytes([EXEMPT]) * len(deliveries)
        return decision.verdicts.replace(*_KEPT_APART) if reading.damage else decision.verdicts
    if not reading.is_whole:
        return bytes([EXEMPT]) * len(deliveries)
    verdicts = verdicts_on(reading.file.id, deliveries, window)
    if rows_left_out(deliveries, verdicts) and is_stored():
        return verdicts.replace(bytes([DUPLICATE]), bytes([KEPT]))
    return verdicts


class DeadRows(NamedTuple):
    """Rows of a segment that a dead letter holds, so that they are never stored."""

    rows: Sequence[RowRange] = ()
    of_rows: int = 0
    """Rows of the segment before these were removed."""

    def locate_in(self, reading: Reading) -> list[RowRange]:
        """Return their positions in the segment now, after damage; empty if they were removed before."""
        lost = [reading.lost] if reading.lost else []
        if reading.rows + row_count(lost) != self.of_rows:
            return []
        return shift_after_removal(subtract(self.rows, lost), lost)


class FinalContent(NamedTuple):
    """Final content of a segment, decided once."""

    verdicts: bytes
    """For each delivery: `decisions.KEPT`, `DUPLICATE`, `EXEMPT`."""
    rows: int
    content: bytes | None
    """Replacement for the file; `None`: the file stays."""
    rows_given_up: int = 0
    """Readable rows that could not be separated from the damage around them."""
    leaves_out: bool = True
    """Rows are left out; otherwise the content only merges blocks, which is optional."""


def finalize(
    reading: Reading, core: Core, verdicts: bytes, *, may_merge: bool, left_out: Sequence[RowRange] = ()
) -> FinalContent:
    """Merge small blocks and leave out duplicates, damage and dead rows. In memory; writes nothing.

    `may_merge`: no decision is on disk, so no row was ever sent.
    A segment that cannot be rewritten is inserted unchanged, with duplicates, unless it is damaged: then no
    row is inserted. Neither are records of another segment.
    """
    if not reading.is_ours:
        return FinalContent(verdicts, 0, None)
    has_duplicates = reading.is_whole and rows_left_out(reading.deliveries, verdicts) > 0
    keep = rows_kept(reading.deliveries, verdicts) if has_duplicates else [(0, reading.rows)]
    keep = subtract(keep, left_out)
    leaves_out = has_duplicates or bool(reading.damage or left_out)
    if not (leaves_out or (may_merge and reading.has_small_blocks)):
        return FinalContent(verdicts, reading.rows, None)
    try:
        content = core.rewrite(reading.content, keep, reading.file.codec, BLOCK_ROWS_MAX)
    except ValueError as reason:
        limited.error(
            "writer: rewrite", "segment cannot be rewritten", segment=str(reading.file.id), error=str(reason)
        )
        given_up = reading.rows if reading.damage else 0
        return FinalContent(bytes([EXEMPT]) * len(verdicts), reading.rows - given_up, None, given_up)
    return FinalContent(verdicts, row_count(keep), content, leaves_out=leaves_out)


def rows_left_out(deliveries: Iterable[Answered], verdicts: bytes) -> int:
    """Count the rows of duplicate deliveries."""
    return sum(
        delivery.rows for delivery, verdict in zip(deliveries, verdicts, strict=True) if verdict == DUPLICATE
    )


def rows_kept(deliveries: Iterable[Answered], verdicts: bytes) -> list[RowRange]:
    """Return the row ranges to keep. Each delivery's rows are contiguous, in the order of the deliveries."""
    kept: list[RowRange] = []
    first = 0
    for delivery, verdict in zip(deliveries, verdicts, strict=True):
        stop = first + delivery.rows
        if verdict != DUPLICATE and delivery.rows:
            if kept and kept[-1][1] == first:
                kept[-1] = (kept[-1][0], stop)
            else:
                kept.append((first, stop))
        first = stop
    return kept


def digests_kept(deliveries: Iterable[Answered], verdicts: bytes) -> list[bytes]:
    """Return the digests to remember once the rows are counted."""
    return [
        delivery.digest for delivery, verdict in zip(deliveries, verdicts, strict=True) if verdict == KEPT
    ]


def open_segment(  # noqa: PLR0913 - each is a dependency that a test replaces
    file: SegmentFile,
    core: Core,
    window: Window,
    *,
    in_doubt: bool,
    left_out: DeadRows,
    has_rows: Callable[[Reading], bool],
    on_damage: Callable[[Reading, int], None],
) -> SegmentState:
    """Read a segment and make its content final on disk before any row is sent. Raises `WaitingFor`.

    `on_damage` gets the number of readable rows that are lost with the damage. It must save a copy before it
    returns, because the rewrite deletes the damaged bytes.
    """
    reading = read_segment(file, core)
    decision = window.decision(file.id)
    in_doubt = in_doubt or decision is not None
    if reading.damage and in_doubt and has_rows(reading):
        return _state_after_damage(reading, decision)
    verdicts = decide_verdicts(reading, window, lambda: in_doubt and has_rows(reading))
    dead_rows = left_out.locate_in(reading)
    decided = finalize(reading, core, verdicts, may_merge=decision is None, left_out=dead_rows)
    if reading.damage:
        on_damage(reading, decided.rows_given_up)
    if decision is None or decided.verdicts != decision.verdicts:
        kept = digests_kept(reading.deliveries, decided.verdicts)
        window.decide(file.id, kept, decided.verdicts)
    if decided.content is not None:
        _replace(file, decided.content, is_needed=decided.leaves_out)
    return SegmentState(
        file=file,
        rows=decided.rows,
        received_ms=reading.received_ms,
        in_doubt=in_doubt,
        must_count=in_doubt or not decided.rows,
        deliveries=reading.deliveries,
        verdicts=decided.verdicts,
    )


def _state_after_damage(reading: Reading, decision: Decision | None) -> SegmentState:
    """Return the state of a segment that was damaged after rows of it were stored.

    Earlier verdicts stay in force; without any, all deliveries are kept.
    """
    verdicts = bytes([KEPT]) * len(reading.deliveries)
    if decision is not None and len(decision.verdicts) == len(verdicts):
        verdicts = decision.verdicts
    return SegmentState(
        file=reading.file,
        rows=reading.rows + (reading.rows_lost or 0),
        received_ms=reading.received_ms,
        in_doubt=True,
        must_count=True,
        deliveries=reading.deliveries,
        verdicts=verdicts,
        is_damaged_after_insert=True,
    )


def _replace(file: SegmentFile, content: bytes, *, is_needed: bool) -> None:
    """Replace the file. On a full disk, skip an optional merge: storing the segment frees space."""
    try:
        file.replace(content)
    except OSError as reason:
        if is_needed or reason.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        limited.warning(
            "writer: no room",
            "small blocks are not merged because the disk is full",
            error=str(reason.strerror),
        )
