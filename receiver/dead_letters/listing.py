"""What was set aside, for whoever looks after it: dead letters of the writer, bodies of the intakes.

Keeps: what still belongs to a segment on its way into the store is shown, and not touched.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import msgspec

from receiver.dead_letters.letter_files import Dead, DeadLetters, Letter, NoSuchLetter
from receiver.durable.files import DISK
from receiver.errors import ReceiverError
from receiver.journal.names import SEALED, file_name
from receiver.journal.quarantine import Body, QuarantineFiles

CRASHED = "crashed"
"""The cause of bodies that the core could not digest."""


class NotNow(ReceiverError):  # noqa: N818 - a verdict
    """It cannot be done with this letter, or not yet. It is kept."""


class Listed(msgspec.Struct, frozen=True, kw_only=True):
    """One letter or body."""

    id: str
    cause: str
    rows: int | None
    """`None`: nobody can know."""
    bytes: int
    at: str
    text: str
    deliveries: tuple[Dead, ...]
    path: str


class DeadLetterList:
    """The two directories."""

    def __init__(self, data_dir: Path) -> None:
        self.lock = threading.Lock()
        """Held while something is handed over or dropped, however long the store takes to try it."""
        self.dead = DeadLetters(data_dir / "dead")
        self.bodies = QuarantineFiles(data_dir / "aside")
        self._data_dir = data_dir

    def listed(self) -> list[Listed]:
        """All of it."""
        return [shown(one) for one in self._all()]

    def found(self, name: str) -> Letter | Body:
        """What has this id. Raises `NoSuchLetter`."""
        for one in self._all():
            if one.id == name:
                return one
        raise NoSuchLetter("nothing set aside has this id; expected one that `trace-drain dead ls` prints")

    def drop(self, name: str) -> None:
        """Let go of it for good. Raises `NoSuchLetter`, `NotNow`."""
        with self.lock:
            one = self.found(name)
            if isinstance(one, Body):
                self.bodies.drop(one)
            else:
                self.refuse_on_its_way(one)
                self.dead.drop(one)

    def _all(self) -> list[Letter | Body]:
        return [*self.dead.letters(), *self.bodies.listed()]

    def refuse_on_its_way(self, letter: Letter) -> None:
        """Leave a letter alone while its segment is not let go of: it says what was decided about that.

        A segment that is gone may come back after a power cut until its directory was synced.
        """
        epoch, _, seq = letter.reason.segment.partition("-")
        names = [file_name(int(seq), kind) for kind in SEALED] if seq.isdigit() else []
        journal, cuts = self._data_dir / "journal" / epoch, self._data_dir / "cuts"
        there = (any([(journal / name).exists(), *cuts.glob(f"*.{epoch}/{name}")]) for name in names)
        if any(there):
            raise NotNow(f"segment {letter.reason.segment} is still on its way; expected it to have ended")
        for directory in (journal, journal.parent, cuts, *cuts.glob(f"*.{epoch}")):
            with suppress(FileNotFoundError):
                DISK.sync_directory(directory)


def shown(one: Letter | Body) -> Listed:
    """What there is to say of it."""
    if isinstance(one, Letter):
        reason = one.reason
        return Listed(
            id=one.id,
            cause=reason.cause,
            rows=reason.rows,
            bytes=one.bytes,
            at=reason.at,
            text=reason.text,
            deliveries=reason.deliveries,
            path=str(one.path),
        )
    return Listed(
        id=one.id,
        cause=CRASHED,
        rows=None,
        bytes=one.bytes,
        at=spelled_instant(one.note.received_at_ns / 1e9),
        text=f"the decoder crashed on this body, times seen: {one.note.crashes}",
        deliveries=(Dead(one.note.drain, (), 0, one.id),),
        path=str(one.path),
    )


def spelled_instant(at_s: float) -> str:
    """UTC, ISO 8601, to the second."""
    return datetime.fromtimestamp(at_s, UTC).isoformat(timespec="seconds")
