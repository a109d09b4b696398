"""List of dead letters of the writer and quarantined bodies of the intakes, for operators.

Invariant: a dead letter whose segment still exists is listed but cannot be replayed or deleted.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path

from receiver.dead_letters.directory import DeadLetter, DeadLetters
from receiver.durable.files import DISK
from receiver.errors import DeadLetterConflict, NoSuchDeadLetter
from receiver.journal.names import SEALED, file_name
from receiver.journal.quarantine import Body, QuarantineFiles
from receiver.reports import CRASHED, DeadDelivery, DeadLetterEntry
from receiver.time_range import instant_text


class DeadLetterList:
    """The directories of dead letters and of quarantined bodies."""

    def __init__(self, data_dir: Path) -> None:
        self.lock = threading.Lock()
        """Held during a replay or deletion, including the trial INSERT of a replay."""
        self.dead = DeadLetters(data_dir / "dead")
        self.bodies = QuarantineFiles(data_dir / "aside")
        self._data_dir = data_dir

    def entries(self) -> list[DeadLetterEntry]:
        """Return all dead letters and quarantined bodies."""
        return [entry_of(item) for item in self._all()]

    def find(self, name: str) -> DeadLetter | Body:
        """Return the dead letter or body with this id. Raises `NoSuchDeadLetter`."""
        for item in self._all():
            if item.id == name:
                return item
        raise NoSuchDeadLetter(
            "no dead letter or quarantined body has this id; expected an id that `trace-drain dead ls` prints"
        )

    def drop(self, name: str) -> None:
        """Delete a dead letter or body. Raises `NoSuchDeadLetter`, `DeadLetterConflict`."""
        with self.lock:
            item = self.find(name)
            if isinstance(item, Body):
                self.bodies.drop(item)
            else:
                self.require_segment_deleted(item)
                self.dead.drop(item)

    def _all(self) -> list[DeadLetter | Body]:
        return [*self.dead.listed(), *self.bodies.listed()]

    def require_segment_deleted(self, dead_letter: DeadLetter) -> None:
        """Raise `DeadLetterConflict` while the segment exists: the writer still reads the dead letter.

        The directories are synced, because a deleted segment may reappear after a power failure until then.
        """
        epoch, _, seq = dead_letter.reason.segment.partition("-")
        # A quarantined body has a digest in this field, and no segment.
        names = [file_name(int(seq), kind) for kind in SEALED] if seq.isdigit() else []
        journal = self._data_dir / "journal" / epoch
        if any((journal / name).exists() for name in names):
            raise DeadLetterConflict(
                f"segment {dead_letter.reason.segment} is not finished yet; "
                "expected it to be stored or deleted"
            )
        for directory in (journal, journal.parent):
            # The epoch directory is deleted together with its last segment.
            with suppress(FileNotFoundError):
                DISK.sync_directory(directory)


def entry_of(item: DeadLetter | Body) -> DeadLetterEntry:
    """Return the description of a dead letter or body for operators."""
    if isinstance(item, DeadLetter):
        reason = item.reason
        return DeadLetterEntry(
            id=item.id,
            cause=reason.cause,
            rows=reason.rows,
            bytes=item.bytes,
            at=reason.at,
            text=reason.text,
            deliveries=reason.deliveries,
            path=str(item.path),
        )
    return DeadLetterEntry(
        id=item.id,
        cause=CRASHED,
        rows=None,
        bytes=item.bytes,
        at=instant_text(item.note.received_at_ns / 1e9),
        text=f"the decoder crashed on this body, times seen: {item.note.crashes}",
        deliveries=(DeadDelivery(item.note.drain, (), 0, item.id),),
        path=str(item.path),
    )
