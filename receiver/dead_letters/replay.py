"""Replay: moves a dead letter back into the journal as a new segment, which the writer inserts.

    try       INSERT into an empty clone of the table; if the store still refuses, keep the dead letter
    new id    give the rows a new segment id: the store may hold other rows with the old id
    move      one rename from DATA/dead into the journal, which owns the rows from then on

Invariant: after a crash at any point, the rows are either in a dead letter or in a segment in the journal,
never in both or neither. Deliveries that a sender repeated meanwhile are deduplicated like any other
delivery.
"""

from __future__ import annotations

import sys
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol

import orjson

from receiver import transcode
from receiver.dead_letters.directory import DeadLetter, DeadLetterList, Reason, entry_of
from receiver.durable.files import DISK, open_to_read, write_durably
from receiver.engine.driver_internals import rows_of_native
from receiver.engine.error_codes import TOO_LARGE, Fault, fault_of
from receiver.engine.store import Store
from receiver.errors import DeadLetterConflict
from receiver.journal.epoch_directory import EpochDirectory, draw_epoch
from receiver.journal.frame import answers_of
from receiver.journal.names import Kind, file_name
from receiver.journal.quarantine import Body
from receiver.journal.segment_core import BLOCK_ROWS_MAX
from receiver.model import Commit, Delivery, SegmentId
from receiver.reports import CRASHED, Beginning, DeadDelivery, DeadLetterEntry, Replayed
from receiver.time_range import instant_text

TRANSIENT = {Fault.RETRY, Fault.SLOWER, Fault.UNKNOWN}
"""Failures of a trial that say nothing about its rows."""


@dataclass(frozen=True, slots=True)
class Replayer:
    """Dead letters and quarantined bodies as operators read and change them; see `DeadLetterOperations`."""

    dead_letter_list: DeadLetterList
    journal: Path
    store: Store
    commit: Callable[[Sequence[Delivery], SegmentId], Commit]
    body_bytes_max: Callable[[str], int]
    """Body size limit of a drain."""
    now: Callable[[], float]
    check: Callable[[], object]
    """Raises while the tables are not up to date, because a trial also needs the current tables."""
    on_replay: Callable[[SegmentId], None]
    """Records that the segment's spans were counted as dead before. May raise, which cancels the replay."""

    def entries(self) -> list[DeadLetterEntry]:
        return self.dead_letter_list.entries()

    def entry(self, name: str) -> DeadLetterEntry:
        """Return one of them. Raises `NoSuchDeadLetter`."""
        return entry_of(self.dead_letter_list.find(name))

    def beginning(self, name: str) -> Beginning:
        """Return the first rows of one of them as text. Raises `NoSuchDeadLetter`."""
        return beginning_of(self.dead_letter_list.find(name))

    def drop(self, name: str) -> None:
        """Delete one of them permanently. Raises `NoSuchDeadLetter`, `DeadLetterConflict`."""
        self.dead_letter_list.drop(name)

    def replay(self, name: str) -> Replayed:
        """Replay a dead letter or body. An exception leaves it unchanged.

        Raises `NoSuchDeadLetter`, `DeadLetterConflict`, `StoreTrouble`.
        """
        self.check()
        with self.dead_letter_list.lock:
            item = self.dead_letter_list.find(name)
            dead_letter = self._decode_into_dead_letter(item) if isinstance(item, Body) else item
            if dead_letter is None:
                return Replayed(name, "", 0)
            self.dead_letter_list.require_segment_deleted(dead_letter)
            replayable = replayable_content(dead_letter)
            self._require_accepted(dead_letter)
            return Replayed(name, str(self._move_to_journal(dead_letter, replayable)), replayable.rows)

    def _decode_into_dead_letter(self, body: Body) -> DeadLetter | None:
        """Decode a body and make its rows a dead letter. Returns None if it has no rows."""
        delivery = body.delivery(body_bytes_max=self.body_bytes_max(body.note.drain))
        name = f"{body.id}.{CRASHED}"
        dead_letter = next(
            (dead_letter for dead_letter in self.dead_letter_list.dead.listed() if dead_letter.id == name),
            None,
        )
        if dead_letter is None:
            # Any unused id will do, because the rows get another one when they enter the journal.
            commit = self.commit([delivery], SegmentId(draw_epoch(), 1))
            (outcome,) = commit.outcomes
            if outcome.verdict != "accepted":
                raise DeadLetterConflict(
                    f"the decoder refuses the body as '{outcome.verdict}': {outcome.message}".rstrip()
                )
            if commit.rows:
                dead_letter = self._keep(body, commit)
        # Only now that the dead letter is durable: until then the body is the only copy.
        self.dead_letter_list.bodies.drop(body)
        return dead_letter

    def _keep(self, body: Body, commit: Commit) -> DeadLetter:
        reason = Reason(
            segment=body.id,
            cause=CRASHED,
            text="the decoder crashed on this body before and now accepts it",
            rows=commit.rows,
            at=instant_text(self.now()),
            deliveries=(DeadDelivery(body.note.drain, (), commit.rows, body.id),),
        )
        content = commit.record + transcode.footer(commit.record)
        return self.dead_letter_list.dead.keep(content, f".{Kind.LZ4}", reason)

    def _require_accepted(self, dead_letter: DeadLetter) -> None:
        """Raise if the store still refuses the rows. A size error passes: the writer splits the segment."""
        refusal = self.store.refusal_of(dead_letter.path)
        if refusal is None or refusal.code in TOO_LARGE:
            return
        if fault_of(refusal) in TRANSIENT:
            raise refusal
        raise DeadLetterConflict(f"the store still refuses the rows: {refusal}")

    def _move_to_journal(self, dead_letter: DeadLetter, replayable: Replayable) -> SegmentId:
        """Rewrite the rows under a new segment id and move them into the journal."""
        # An epoch of its own, locked, so that the writer does not adopt or delete it before the rename.
        epoch_directory = EpochDirectory.create(self.journal, DISK)
        try:
            segment = SegmentId(epoch_directory.epoch, 1)
            suffix = dead_letter.path.name.removeprefix(dead_letter.id).removeprefix(".")
            codec = "zstd" if suffix == Kind.ZSTD else "lz4"
            new_id = (segment.epoch, segment.seq, replayable.with_answers)
            content = DISK.read(dead_letter.path)
            keep = [(0, replayable.rows)]
            # In place and before the rename: after a crash this is still a dead letter, only with another id.
            write_durably(dead_letter.path, transcode.rewrite(content, keep, codec, BLOCK_ROWS_MAX, new_id))
            # A body that crashed the decoder was never counted, so its spans are not dead in the ledger.
            if dead_letter.reason.cause != CRASHED:
                # Before the rename: once the segment is in the journal, the writer may record it at any time.
                self.on_replay(segment)
            self.dead_letter_list.dead.move(
                dead_letter, epoch_directory.directory / file_name(segment.seq, Kind(suffix))
            )
        finally:
            epoch_directory.leave()
        return segment


class Replayable(NamedTuple):
    """Content of a dead letter, checked for replay."""

    rows: int
    with_answers: bool
    """Keep the list of deliveries, so that deliveries stored in the meantime are left out as duplicates.

    False for refused rows: their deliveries are already known, so all of them would be left out.
    """


def replayable_content(dead_letter: DeadLetter) -> Replayable:
    """Return the content of a dead letter.

    Raises `DeadLetterConflict` if some of its rows are in the store or cannot be read.
    """
    scan = transcode.scan(DISK.read(dead_letter.path))
    rows = sum(record.rows for record in scan.records)
    if scan.damage or not scan.sealed or not rows:
        raise DeadLetterConflict("the dead letter is damaged; expected a segment without damage")
    # Rows that the store already holds would be stored twice, because the replay has a new id.
    if rows != dead_letter.reason.rows:
        unstored = "an unknown number" if dead_letter.reason.rows is None else dead_letter.reason.rows
        raise DeadLetterConflict(
            f"the dead letter holds {rows} rows, of which {unstored} are not stored; expected all of them"
        )
    answered = sum(delivery.rows for record in scan.records for delivery in answers_of(record))
    return Replayable(rows, answered == rows and not dead_letter.reason.is_refused)


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ROWS_MAX = 3
"""Rows of a dead letter that are shown."""
CHARS_MAX = 4_000
"""Length of the text of a row or of a body."""
EXPANDED_BYTES_MAX = 64 * 1024
"""Part of a compressed body that is expanded, at each of its codings."""


class _Expander(Protocol):
    def decompress(self, data: bytes, max_length: int, /) -> bytes:
        """Return at most `max_length` expanded bytes."""


_EXPANDERS: Final[Mapping[str, Callable[[], _Expander]]] = {
    "gzip": lambda: zlib.decompressobj(wbits=zlib.MAX_WBITS | 16),
    "deflate": zlib.decompressobj,
    "zstd": zstd.ZstdDecompressor,
}


def beginning_of(item: DeadLetter | Body) -> Beginning:
    """Return the beginning of a dead letter or of a quarantined body. Raises `OSError` if it is gone."""
    try:
        return _of_body(item) if isinstance(item, Body) else _of_rows(item)
    # A dead letter may be damaged in any way, or come from another version.
    except (ValueError, zlib.error, zstd.ZstdError) as error:
        return Beginning((), f"it cannot be decoded: {type(error).__name__}")


def _of_rows(dead_letter: DeadLetter) -> Beginning:
    content = DISK.read(dead_letter.path)
    scan = transcode.scan(content)
    rows = min(ROWS_MAX, sum(record.rows for record in scan.records))
    if not rows:
        return Beginning((), "it has no readable row")
    # Only these rows are decoded, and always from the same compression.
    head = transcode.rewrite(content, [(0, rows)], "zstd", BLOCK_ROWS_MAX)
    record = transcode.scan(head).records[0]
    block = head[record.offset + transcode.HEAD_BYTES + len(record.answers) : record.offset + record.length]
    return Beginning(tuple(map(_row_text, rows_of_native(zstd.decompress(block)))))


def _row_text(row: Mapping[str, Any]) -> str:
    """Return the columns of a row that have a value, as JSON."""
    shown = {name: value for name, value in row.items() if value not in ("", None, [], {})}
    return _cut(orjson.dumps(shown, default=str, option=orjson.OPT_INDENT_2).decode())


def _of_body(body: Body) -> Beginning:
    _, _, *codings = body.path.name.removesuffix(body.path.suffix).split(".")
    with open_to_read(body.path) as file:
        content = file.read(EXPANDED_BYTES_MAX)
    for coding in reversed(codings):
        if coding not in _EXPANDERS:
            return Beginning((), f"it is compressed with {coding}")
        content = _EXPANDERS[coding]().decompress(content, EXPANDED_BYTES_MAX)
    text = content.decode(errors="replace")
    return Beginning((_cut("".join(char if char.isprintable() or char == "\n" else "·" for char in text)),))


def _cut(text: str) -> str:
    return text if len(text) <= CHARS_MAX else f"{text[:CHARS_MAX]}…"
