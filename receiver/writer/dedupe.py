"""Which deliveries of a segment are stored: those that were not stored before.

    known           rows of the same delivery were counted in the store   left out
    twice in here   it comes earlier in the same segment                  left out
    promised        another segment is about to store it                  this one waits for that one
    anything else                                                         stored, known once it is counted

What rotted after rows of it were stored is left as it is: what was promised of it stays promised.

Keeps: a decision is on the disk before the segment's first INSERT and never changes after it. So a segment is
never measured against itself, and nothing is left out of one whose rows may be in the store.
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
from receiver.writer.row_search import count_of, shifted, without
from receiver.writer.segment_state import Reading, SegmentFile, SegmentState, reading_of

_KEPT_APART = (bytes([KEPT]), bytes([EXEMPT]))


class Postponed(Exception):  # noqa: N818 - a turn of events, not an error
    """Another segment holds the same delivery, and it is not known yet whether that one is stored."""

    def __init__(self, by: SegmentId) -> None:
        """`by`: the one to wait for."""
        super().__init__(str(by))
        self.by = by


def verdicts_on(segment: SegmentId, deliveries: Sequence[Answered], window: Window) -> bytes:
    """Decide about each delivery, in order. Raises `Postponed`."""
    seen = window.known([one.digest for one in deliveries])
    verdicts = bytearray()
    for one in deliveries:
        if one.drain in window.exempt_drains:
            verdicts.append(EXEMPT)
        elif one.digest in seen:
            verdicts.append(DUPLICATE)
        elif by := window.reserved_by(one.digest, but_by=segment):
            raise Postponed(by)
        else:
            seen.add(one.digest)
            verdicts.append(KEPT)
    return bytes(verdicts)


def settled(reading: Reading, window: Window, is_stored: Callable[[], bool]) -> bytes:
    """Decide, or repeat what was decided. Raises `Postponed`.

    `is_stored` says whether the store has rows of the segment; it is asked when something would be left out
    of one that nothing was ever decided about.
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


class LeftOut(NamedTuple):
    """Rows that lie in a letter, and of how many they were: they are not stored, that is decided."""

    rows: Sequence[RowRange] = ()
    of_rows: int = 0

    def there_in(self, reading: Reading) -> list[RowRange]:
        """Which rows of a segment they are now, if that was not done yet: rot may have taken others."""
        lost = [reading.lost] if reading.lost else []
        if reading.rows + count_of(lost) != self.of_rows:
            return []
        return shifted(without(self.rows, lost), lost)


class Final(NamedTuple):
    """What a segment is inserted as, decided once."""

    verdicts: bytes
    """For each delivery: `decisions.KEPT`, `DUPLICATE`, `EXEMPT`."""
    rows: int
    content: bytes | None
    """To be put in the file's place; none: it stays."""
    rows_given_up: int = 0
    """Rows that could be read, and not be cut out of the damage around them."""
    leaves_out: bool = True
    """The content leaves something out; else it only merges blocks, which can be done without."""


def final(
    reading: Reading, core: Core, verdicts: bytes, *, may_merge: bool, left_out: Sequence[RowRange] = ()
) -> Final:
    """Merge small blocks, leave out duplicates, damage and poison: in memory, nothing is written.

    `may_merge`: nothing was decided before, so nothing of it was ever sent.
    What cannot be rewritten is inserted as it is, duplicates too; of what is damaged then, nothing. Nor of
    another segment's records.
    """
    if not reading.is_ours:
        return Final(verdicts, 0, None)
    has_copies = reading.is_whole and rows_left_out(reading.deliveries, verdicts) > 0
    keep = rows_kept(reading.deliveries, verdicts) if has_copies else [(0, reading.rows)]
    keep = without(keep, left_out)
    leaves_out = has_copies or bool(reading.damage or left_out)
    if not (leaves_out or (may_merge and reading.has_small_blocks)):
        return Final(verdicts, reading.rows, None)
    try:
        content = core.rewrite(reading.content, keep, reading.file.codec, BLOCK_ROWS_MAX)
    except ValueError as reason:
        limited.error("writer: rewrite", f"segment {reading.file.id} cannot be rewritten", why=str(reason))
        given_up = reading.rows if reading.damage else 0
        return Final(bytes([EXEMPT]) * len(verdicts), reading.rows - given_up, None, given_up)
    return Final(verdicts, count_of(keep), content, leaves_out=leaves_out)


def rows_left_out(deliveries: Iterable[Answered], verdicts: bytes) -> int:
    """Count the rows of what is left out."""
    return sum(one.rows for one, verdict in zip(deliveries, verdicts, strict=True) if verdict == DUPLICATE)


def rows_kept(deliveries: Iterable[Answered], verdicts: bytes) -> list[RowRange]:
    """Tell which rows stay: a delivery's rows follow each other, and deliveries lie in order."""
    kept: list[RowRange] = []
    first = 0
    for one, verdict in zip(deliveries, verdicts, strict=True):
        behind = first + one.rows
        if verdict != DUPLICATE and one.rows:
            if kept and kept[-1][1] == first:
                kept[-1] = (kept[-1][0], behind)
            else:
                kept.append((first, behind))
        first = behind
    return kept


def digests_kept(deliveries: Iterable[Answered], verdicts: bytes) -> list[bytes]:
    """Tell what will be known once the rows are counted."""
    return [one.digest for one, verdict in zip(deliveries, verdicts, strict=True) if verdict == KEPT]


def opened(  # noqa: PLR0913 - each is a neighbour that a test replaces
    file: SegmentFile,
    core: Core,
    window: Window,
    *,
    in_doubt: bool,
    left_out: LeftOut,
    has_rows: Callable[[Reading], bool],
    on_damage: Callable[[Reading, int], None],
) -> SegmentState:
    """Read a segment and make its content final: on the disk before anything of it is sent.

    Raises `Postponed`. `on_damage` is told how many rows are lost beside the damage itself, and must keep a
    copy before it returns: of damage that cannot be left out by a rewrite it is all that is left.
    """
    reading = reading_of(file, core)
    decision = window.decision(file.id)
    in_doubt = in_doubt or decision is not None
    if reading.damage and in_doubt and has_rows(reading):
        return _rotten(reading, decision)
    verdicts = settled(reading, window, lambda: in_doubt and has_rows(reading))
    poison = left_out.there_in(reading)
    decided = final(reading, core, verdicts, may_merge=decision is None, left_out=poison)
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
        must_look=in_doubt or not decided.rows,
        deliveries=reading.deliveries,
        verdicts=decided.verdicts,
    )


def _rotten(reading: Reading, decision: Decision | None) -> SegmentState:
    """Rows of it were stored before it rotted: what was decided stands; if nothing was, all is kept."""
    verdicts = bytes([KEPT]) * len(reading.deliveries)
    if decision is not None and len(decision.verdicts) == len(verdicts):
        verdicts = decision.verdicts
    return SegmentState(
        file=reading.file,
        rows=reading.rows + (reading.rows_lost or 0),
        received_ms=reading.received_ms,
        in_doubt=True,
        must_look=True,
        deliveries=reading.deliveries,
        verdicts=verdicts,
        is_rotten=True,
    )


def _replace(file: SegmentFile, content: bytes, *, is_needed: bool) -> None:
    """Put it in the file's place. On a full disk small blocks stay as they are: they go, and make room."""
    try:
        file.replace(content)
    except OSError as reason:
        if is_needed or reason.errno not in {errno.ENOSPC, errno.EDQUOT}:
            raise
        limited.warning("writer: no room", "small blocks are not merged: no room", why=str(reason.strerror))
