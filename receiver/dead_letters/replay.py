"""Replay: what was set aside goes back into the journal, as a segment of its own, and so into the store.

    try         on an empty clone of the table: still refused, it stays and says why
    name anew   rows of the old segment are in the store and counted by its identity
    hand over   one rename, out of DATA/dead into the journal: from then on the journal promises it

Keeps: killed anywhere, a letter is either still a letter or a segment in the journal, never both and never
neither. What a sender may have sent again meanwhile is told apart by the redelivery window, as ever.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from receiver.dead_letters.letter_files import Dead, Letter, Reason
from receiver.dead_letters.listing import CRASHED, DeadLetterList, NotNow, spelled_instant
from receiver.durable.files import DISK, write_durably
from receiver.engine.error_codes import TOO_LARGE, Fault, fault_of
from receiver.engine.store import Store
from receiver.journal.frame import answers_of
from receiver.journal.names import Kind, file_name
from receiver.journal.quarantine import Body
from receiver.journal.segment_core import BLOCK_ROWS_MAX, Core
from receiver.journal.start import EpochDirectory, draw_epoch
from receiver.model import Commit, Delivery, SegmentId

PASSES = {Fault.RETRY, Fault.SLOWER, Fault.UNKNOWN}
"""What says nothing about the rows of a trial."""


class Replayed(NamedTuple):
    """What became of a letter."""

    id: str
    segment: str
    """Who its rows are from now on; empty: nothing of it was to be stored."""
    rows: int


@dataclass(frozen=True, slots=True)
class Replayer:
    """The way back."""

    shelf: DeadLetterList
    journal: Path
    store: Store
    core: Core
    commit: Callable[[Sequence[Delivery], SegmentId], Commit]
    footer: Callable[[bytes], bytes]
    body_bytes_max: Callable[[str], int]
    """Of a drain."""
    now: Callable[[], float]
    check: Callable[[], object]
    """Raises while the tables may not be whole: a trial is an INSERT, too."""
    on_replay: Callable[[SegmentId], None]
    """Note that this segment's spans were counted before, as dead. May raise: then nothing is handed over."""

    def replay(self, name: str) -> Replayed:
        """Hand a letter over. Raises `NoSuchLetter`, `NotNow`, `StoreTrouble`; then it is kept."""
        self.check()
        with self.shelf.lock:
            one = self.shelf.found(name)
            letter = self._letter_of(one) if isinstance(one, Body) else one
            if letter is None:
                return Replayed(name, "", 0)
            self.shelf.refuse_on_its_way(letter)
            weight = weight_of(letter, self.core)
            self._refuse_refused(letter)
            return Replayed(name, str(self._handed_over(letter, weight)), weight.rows)

    def _letter_of(self, body: Body) -> Letter | None:
        """Decode a body with this version's core: then it is a letter like any other. None: no rows."""
        delivery = body.delivery(body_bytes_max=self.body_bytes_max(body.note.drain))
        name = f"{body.id}.{CRASHED}"
        letter = next((one for one in self.shelf.dead.letters() if one.id == name), None)
        if letter is None:
            done = self.commit([delivery], SegmentId(draw_epoch(), 1))
            (outcome,) = done.outcomes
            if outcome.verdict != "accepted":
                raise NotNow(f"the decoder says '{outcome.verdict}' {outcome.message}".rstrip())
            if done.rows:
                self._keep(body, done)
                letter = self.shelf.dead.letter(name)
        self.shelf.bodies.drop(body)
        return letter

    def _keep(self, body: Body, done: Commit) -> None:
        reason = Reason(
            segment=body.id,
            cause=CRASHED,
            text="the decoder crashed on it before, and does not any more",
            rows=done.rows,
            at=spelled_instant(self.now()),
            deliveries=(Dead(body.note.drain, (), done.rows, body.id),),
        )
        self.shelf.dead.keep(done.record + self.footer(done.record), f".{Kind.LZ4}", reason)

    def _refuse_refused(self, letter: Letter) -> None:
        """What is only too large will be cut up by the writer."""
        refusal = self.store.refusal_of(letter.path)
        if refusal is None or refusal.code in TOO_LARGE:
            return
        if fault_of(refusal) in PASSES:
            raise refusal
        raise NotNow(f"the store still refuses it: {refusal}")

    def _handed_over(self, letter: Letter, weight: Weight) -> SegmentId:
        """Give its rows an identity that the store never saw, and move it into the journal."""
        start = EpochDirectory.create(self.journal, DISK)
        try:
            segment = SegmentId(start.epoch, 1)
            suffix = letter.path.name.removeprefix(letter.id).removeprefix(".")
            codec = "zstd" if suffix == Kind.ZSTD else "lz4"
            anew = (segment.epoch, segment.seq, weight.with_answers)
            content = letter.path.read_bytes()
            keep = [(0, weight.rows)]
            write_durably(letter.path, self.core.rewrite(content, keep, codec, BLOCK_ROWS_MAX, anew))
            if letter.reason.cause != CRASHED:
                self.on_replay(segment)
            self.shelf.dead.move(letter, start.directory / file_name(segment.seq, Kind(suffix)))
        finally:
            start.leave()
        return segment


class Weight(NamedTuple):
    """What a letter holds."""

    rows: int
    with_answers: bool
    """It answers for deliveries that a sender may have sent again: those that are stored are left out.

    Not so refused rows: their deliveries are known, and as a copy of themselves they would be left out.
    """


def weight_of(letter: Letter, core: Core) -> Weight:
    """Weigh a letter. Raises `NotNow` when some of its rows are in the store, or cannot be read."""
    scan = core.scan(letter.path.read_bytes())
    rows = sum(record.rows for record in scan.records)
    if scan.damage or not scan.sealed or not rows:
        raise NotNow("its bytes cannot be read whole; expected a segment without damage")
    if rows != letter.reason.rows:
        unstored = "nobody knows how many" if letter.reason.rows is None else letter.reason.rows
        raise NotNow(f"it holds {rows} rows, of which {unstored} are not stored; expected all of them")
    answered = sum(one.rows for record in scan.records for one in answers_of(record))
    return Weight(rows, answered == rows and not letter.reason.is_refused)
