"""Replay: moves a dead letter back into the journal as a new segment, which the writer inserts.

    try       INSERT into an empty clone of the table; if the store still refuses, keep the dead letter
    new id    other rows of the old segment may be in the store and are counted by its id
    move      one rename from DATA/dead into the journal, which owns the rows from then on

Invariant: killed at any point, the rows are either a dead letter or a segment in the journal, never both and
never neither. Deliveries that a sender repeated meanwhile are deduplicated like any others.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from receiver.dead_letters.letter_files import DeadDelivery, DeadLetter, Reason
from receiver.dead_letters.listing import CRASHED, DeadLetterConflict, DeadLetterList, iso_timestamp
from receiver.durable.files import DISK, write_durably
from receiver.engine.error_codes import TOO_LARGE, Fault, fault_of
from receiver.engine.store import Store
from receiver.journal.frame import answers_of
from receiver.journal.names import Kind, file_name
from receiver.journal.quarantine import Body
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core
from receiver.journal.start import EpochDirectory, draw_epoch
from receiver.model import Commit, Delivery, SegmentId

TRANSIENT = {Fault.RETRY, Fault.SLOWER, Fault.UNKNOWN}
"""Failures that give no verdict on the rows of a trial."""


class Replayed(NamedTuple):
    """Result of a replay."""

    id: str
    segment: str
    """Id of the new segment; empty: there were no rows to store."""
    rows: int


@dataclass(frozen=True, slots=True)
class Replayer:
    """Replays dead letters and quarantined bodies."""

    dead_letter_list: DeadLetterList
    journal: Path
    store: Store
    core: Core
    commit: Callable[[Sequence[Delivery], SegmentId], Commit]
    footer: Callable[[bytes], bytes]
    body_bytes_max: Callable[[str], int]
    """Body size limit of a drain."""
    now: Callable[[], float]
    check: Callable[[], object]
    """Raises until the tables are up to date, because a trial is an INSERT, too."""
    on_replay: Callable[[SegmentId], None]
    """Records that the segment's spans were counted as dead before. May raise, which cancels the replay."""

    def replay(self, name: str) -> Replayed:
        """Replay a dead letter or body. An exception leaves it unchanged.

        Raises `NoSuchDeadLetter`, `DeadLetterConflict`, `StoreTrouble`.
        """
        self.check()
        with self.dead_letter_list.lock:
            item = self.dead_letter_list.find(name)
            letter = self._decode_into_letter(item) if isinstance(item, Body) else item
            if letter is None:
                return Replayed(name, "", 0)
            self.dead_letter_list.require_segment_deleted(letter)
            replayable = replayable_content(letter, self.core)
            self._require_accepted(letter)
            return Replayed(name, str(self._move_to_journal(letter, replayable)), replayable.rows)

    def _decode_into_letter(self, body: Body) -> DeadLetter | None:
        """Decode a body and make its rows a dead letter. Returns None if it has no rows."""
        delivery = body.delivery(body_bytes_max=self.body_bytes_max(body.note.drain))
        name = f"{body.id}.{CRASHED}"
        letter = next((letter for letter in self.dead_letter_list.dead.letters() if letter.id == name), None)
        if letter is None:
            commit = self.commit([delivery], SegmentId(draw_epoch(), 1))
            (outcome,) = commit.outcomes
            if outcome.verdict != "accepted":
                raise DeadLetterConflict(
                    f"the decoder refuses it as '{outcome.verdict}': {outcome.message}".rstrip()
                )
            if commit.rows:
                self._keep(body, commit)
                letter = self.dead_letter_list.dead.letter(name)
        self.dead_letter_list.bodies.drop(body)
        return letter

    def _keep(self, body: Body, commit: Commit) -> None:
        reason = Reason(
            segment=body.id,
            cause=CRASHED,
            text="the decoder crashed on this body before and now accepts it",
            rows=commit.rows,
            at=iso_timestamp(self.now()),
            deliveries=(DeadDelivery(body.note.drain, (), commit.rows, body.id),),
        )
        self.dead_letter_list.dead.keep(commit.record + self.footer(commit.record), f".{Kind.LZ4}", reason)

    def _require_accepted(self, letter: DeadLetter) -> None:
        """Raise if the store still refuses the rows. A size error passes: the writer splits the segment."""
        refusal = self.store.refusal_of(letter.path)
        if refusal is None or refusal.code in TOO_LARGE:
            return
        if fault_of(refusal) in TRANSIENT:
            raise refusal
        raise DeadLetterConflict(f"the store still refuses it: {refusal}")

    def _move_to_journal(self, letter: DeadLetter, replayable: Replayable) -> SegmentId:
        """Rewrite the rows under a new segment id and move them into the journal."""
        start = EpochDirectory.create(self.journal, DISK)
        try:
            segment = SegmentId(start.epoch, 1)
            suffix = letter.path.name.removeprefix(letter.id).removeprefix(".")
            codec = "zstd" if suffix == Kind.ZSTD else "lz4"
            new_id = (segment.epoch, segment.seq, replayable.with_answers)
            content = letter.path.read_bytes()
            keep = [(0, replayable.rows)]
            write_durably(letter.path, self.core.rewrite(content, keep, codec, BLOCK_ROWS_MAX, new_id))
            if letter.reason.cause != CRASHED:
                self.on_replay(segment)
            self.dead_letter_list.dead.move(letter, start.directory / file_name(segment.seq, Kind(suffix)))
        finally:
            start.leave()
        return segment


class Replayable(NamedTuple):
    """Content of a dead letter, checked for replay."""

    rows: int
    with_answers: bool
    """Keep the list of deliveries, so that those stored meanwhile are left out as duplicates.

    False for refused rows: their deliveries are already known, so all of them would be left out.
    """


def replayable_content(letter: DeadLetter, core: Core) -> Replayable:
    """Return the content of a dead letter.

    Raises `DeadLetterConflict` if some of its rows are in the store or cannot be read.
    """
    scan = core.scan(letter.path.read_bytes())
    rows = sum(record.rows for record in scan.records)
    if scan.damage or not scan.sealed or not rows:
        raise DeadLetterConflict("the dead letter is damaged; expected a segment without damage")
    if rows != letter.reason.rows:
        unstored = "an unknown number" if letter.reason.rows is None else letter.reason.rows
        raise DeadLetterConflict(
            f"it holds {rows} rows, of which {unstored} are not stored; expected all of them"
        )
    answered = sum(delivery.rows for record in scan.records for delivery in answers_of(record))
    return Replayable(rows, answered == rows and not letter.reason.is_refused)
