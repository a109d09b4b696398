"""The ledger on the disk: what became of every span that was received. One log in DATA/ledger.

    count in the store ──▶ book ──▶ digests known ──▶ unlink ──▶ settle

Booked is on the disk before the segment's file goes, under the segment's name, and takes the place of what
was booked under that name before: killed between any two steps, the writer does it again and nothing is
counted twice. Settled, in memory, once the file is gone; a log that has grown is written anew as sums.

Keeps: the sums are those of segments that are gone or about to go, each once. What was lost of the ledger
itself is told (`complete_from_hour`). Only the writer's thread books; any thread may look.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, NamedTuple

from receiver.journal.files import DISK, Files
from receiver.logs import limited
from receiver.model import Heading, SegmentId
from receiver.settings import MIB
from receiver.settings import Ledger as Limits
from receiver.storage import ledger_lines, ledger_log
from receiver.storage.appended import AppendedLog, put_durably
from receiver.storage.ledger_book import Book
from receiver.storage.ledger_lines import Counts, Lines
from receiver.storage.ledger_log import Begun, Key

LOG_BYTES_MIN = 1 * MIB
"""A log is not written anew before it has grown by so much, and by as much as it began with."""
DAMAGE = "damage"
"""The part of a segment that the disk gave back damaged."""


@dataclass(slots=True)
class Watch:
    """What was booked since somebody began to look."""

    segments: set[SegmentId]
    """All that may be both in the sums and in the journal."""
    since: set[SegmentId] = field(default_factory=set)
    lines: dict[Heading, Counts] = field(default_factory=dict)
    """What the bookings since then added."""


class Sums(NamedTuple):
    """A copy of the ledger at one instant."""

    lines: dict[Heading, Counts]
    complete_from_hour: int
    """Nothing is missing in this hour and later."""
    epochs: tuple[int, ...]


class Ledger:
    """The sums, and the log that keeps them. It belongs to the writer."""

    def __init__(
        self, root: Path, limits: Limits, now_s: Callable[[], float], *, is_first: bool, files: Files = DISK
    ) -> None:
        """`is_first`: no receiver ran on this data directory before, so nothing was received before."""
        self._root = root
        self._files = files
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        _prepare(root, files)
        found = _replayed(root, limits, files)
        self._number, self._book = found.number, found.book
        if not found.is_sound and not (is_first and not found.number):
            self._book.complete_from_hour = int(now_s() // 3_600) + 1
            limited.error("ledger: begun", "ledger is missing or damaged; complete from the next hour on")
        self._log = AppendedLog(root, 0, files)
        self._begun_bytes = 0
        self._begin()

    def book(self, segment: SegmentId, lines: Lines, *, part: str = "") -> None:
        """Note, durably, what became of a segment. Again: in place of what was noted before."""
        key = Key(segment, part)
        entry = ledger_log.booked(key, lines)
        if not lines or self._book.open.get(key) == lines:
            return
        self._log.append(ledger_log.written([entry]))
        with self._lock:
            before = dict(self._book.open.get(key, {}))
            self._book.apply(entry)
            for watch in self._watches:
                _note(watch, segment, before, self._book.open[key])
        self._begin_if_due()

    def damaged(self, segment: SegmentId, rows: int, hour: int) -> None:
        """Note rows that were accepted and lie in the dead letters, nobody knows whose."""
        self.book(segment, ledger_lines.lost(rows, hour), part=DAMAGE)

    def moved(
        self,
        letter: str,
        segment: SegmentId,
        rows: Mapping[Heading, int],
        to: Literal["stored", "dropped"],
    ) -> None:
        """Note that a dead letter of this segment is dead no more: before its file goes. Again: no change.

        Its rows were booked as dead with the segment. Call `settle` with its name once the file is gone.
        """
        self.book(segment, ledger_lines.moved(rows, to), part=letter)

    def settle(self, segment: SegmentId, *, letter: str = "") -> None:
        """The file is gone: nobody books it again."""
        with self._lock:
            self._book.settle([Key(segment, letter)] if letter else [Key(segment), Key(segment, DAMAGE)])

    def retain(self, segments: Collection[SegmentId], letters: Collection[str]) -> None:
        """Settle everything but what lies in the journal and in the dead letters. Once, at the start."""
        with self._lock:
            gone = [
                key
                for key in self._book.open
                if (key.segment not in segments if key.part in {"", DAMAGE} else key.part not in letters)
            ]
            self._book.settle(gone)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Note what is booked from now on."""
        with self._lock:
            watch = Watch({key.segment for key in self._book.open if not key.part})
            self._watches.append(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.remove(watch)

    def sums(self, watch: Watch) -> tuple[Sums, Watch]:
        """Copy everything, and what this watch has seen so far, at one instant."""
        with self._lock:
            seen = Watch(set(watch.segments), set(watch.since), dict(watch.lines))
            return sums_of(self._book), seen

    def close(self) -> None:
        """Give the descriptor back."""
        self._log.close()

    def _begin_if_due(self) -> None:
        if self._log.bytes_good - self._begun_bytes < max(LOG_BYTES_MIN, self._begun_bytes):
            return
        try:
            self._begin()
        except OSError as reason:
            self._begun_bytes = self._log.bytes_good
            limited.warning("ledger: disk", "ledger cannot be written anew", why=reason.strerror)

    def _begin(self) -> None:
        """Write how everything stands into a new log. Killed anywhere in here, the old one holds as well."""
        content = ledger_log.written(self._book.entries())
        path = _path(self._root, self._number + 1)
        put_durably(self._files, path, content)
        self._log.close()
        self._number += 1
        self._log = AppendedLog(path, len(content), self._files)
        self._begun_bytes = len(content)
        for number in _numbers(self._root, self._files):
            if number < self._number:
                self._files.unlink(_path(self._root, number))


def sums_of(book: Book) -> Sums:
    """Copy what is of interest."""
    lines = {heading: counts for heading, counts in book.lines.items() if any(counts)}
    return Sums(lines, book.whole_from_hour, tuple(book.epochs))


def read_sums(root: Path, limits: Limits, files: Files = DISK) -> tuple[Sums, set[SegmentId]]:
    """Read a ledger that nobody has open: its sums, and which of its segments may lie in the journal."""
    if files.size_bytes(root) is None:
        return Sums({}, 0, ()), set()
    book = _replayed(root, limits, files).book
    return sums_of(book), {key.segment for key in book.open if not key.part}


class _Replayed(NamedTuple):
    number: int
    """Of the newest log; 0: there is none."""
    book: Book
    is_sound: bool


def _replayed(root: Path, limits: Limits, files: Files) -> _Replayed:
    """Read the newest log: an older one beside it is what a crash left."""
    number = max(_numbers(root, files), default=0)
    book = Book(limits)
    if not number:
        return _Replayed(0, book, is_sound=False)
    log = ledger_log.read(files.read(_path(root, number)))
    for entry in log.entries:
        book.apply(entry)
    is_sound = bool(log.entries) and isinstance(log.entries[0], Begun) and not log.is_rotten
    return _Replayed(number, book, is_sound)


def _prepare(root: Path, files: Files) -> None:
    if files.size_bytes(root) is None:
        files.make_directory(root)
    files.sync_directory(root.parent)
    for name in files.names(root):
        if name.endswith(".tmp"):
            files.unlink(root / name)


def _numbers(root: Path, files: Files) -> list[int]:
    stems = [name.removesuffix(".log") for name in files.names(root) if name.endswith(".log")]
    return [int(stem) for stem in stems if stem.isdigit()]


def _path(root: Path, number: int) -> Path:
    return root / f"{number:010d}.log"


def _note(watch: Watch, segment: SegmentId, before: Lines, after: Lines) -> None:
    watch.segments.add(segment)
    watch.since.add(segment)
    for sign, lines in ((-1, before), (1, after)):
        for heading, counts in lines.items():
            added = counts if sign > 0 else Counts().minus(counts)
            watch.lines[heading] = watch.lines.get(heading, Counts()).plus(added)
