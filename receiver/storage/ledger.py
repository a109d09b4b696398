"""The ledger on the disk: what became of every span that was received. One log in DATA/ledger.

    count in the store ──▶ book: log, then head ──▶ digests known ──▶ unlink ──▶ settle

Booked is on the disk before the segment's file is deleted, under the segment's name, and replaces what was
booked under that name before: killed between any two steps, the writer does it again and nothing is counted
twice. Settled, in memory, once the file is gone; a log that has grown is rewritten as sums.

Order of writes, so that every loss shows and no crash looks like one (`ledger_witness.py`):

    first start       head at 0  ─▶ log  ─▶ head
    booking           log entry  ─▶ head
    rewriting         new log    ─▶ head ─▶ delete the old log
    loss found        report     ─▶ new log ─▶ head

Invariant: the sums are those of segments that are gone or about to go, each once. Lost history of the ledger
itself is reported until an operator acknowledges it. Only the writer's thread books; any thread may read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from receiver.journal.files import DISK, Files, drafts_in, opened, write_durably
from receiver.logs import limited
from receiver.model import Heading, SegmentId
from receiver.settings import MIB
from receiver.settings import Ledger as Limits
from receiver.storage import ledger_lines, ledger_log, ledger_witness
from receiver.storage.appended import NO_EXTENT, AppendedLog, Extent
from receiver.storage.ledger_book import Book
from receiver.storage.ledger_lines import Counts, Lines
from receiver.storage.ledger_log import DAMAGE, REPLAY, Booked, Key, Position
from receiver.storage.ledger_witness import Head, HeadFile

LOG_BYTES_MIN = 1 * MIB
"""The log is rewritten as sums when it has grown by this and by as much as it began with."""


@dataclass(slots=True)
class Watch:
    """Records what is booked while a reader compares ledger, journal and table."""

    segments: set[SegmentId]
    """Segments that may be both in the sums and in the journal."""
    since: set[SegmentId] = field(default_factory=set)
    lines: dict[Heading, Counts] = field(default_factory=dict)
    """What the bookings since the watch began added."""

    def note(self, key: Key, before: Lines, after: Lines) -> None:
        """Record a booking. Parts (damage, replays) are skipped: their segment still waits in the journal."""
        if key.part:
            return
        self.segments.add(key.segment)
        self.since.add(key.segment)
        for heading in {*before, *after}:
            added = after.get(heading, Counts()).minus(before.get(heading, Counts()))
            self.lines[heading] = self.lines.get(heading, Counts()).plus(added)


class Sums(NamedTuple):
    """A copy of the ledger at one instant."""

    lines: dict[Heading, Counts]
    complete_from_hour: int
    """Nothing is missing in this hour and later."""
    epochs: tuple[int, ...]
    """Intake starts whose rows in the table belong to this ledger."""
    replayed: frozenset[SegmentId] = frozenset()
    """Segments made of dead letters: their spans are counted already, as dead."""
    losses: tuple[str, ...] = ()
    """Losses of history that were found and not acknowledged."""


class Ledger:
    """The sums, and the log that keeps them. It belongs to the writer."""

    def __init__(
        self, root: Path, limits: Limits, now_s: Callable[[], float], *, is_first: bool, files: Files = DISK
    ) -> None:
        """`is_first`: no receiver ran on this data directory before, so nothing was received before."""
        self._root = root
        self._files = files
        self._writing = threading.Lock()
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        _prepare(root, files)
        found = _read(root, limits, files, is_first=is_first)
        self._number, self._book, self._head = found.number, found.book, found.head
        self._position = found.position
        self._from_before = list(self._book.open)
        if found.number:
            _sync(_path(root, found.number), files)
        if found.losses:
            self._report(found.losses, now_s())
        elif self._head.last is None:
            self._head.write(Head())
        self._log = AppendedLog(_path(root, self._number), found.bytes_good, files)
        self._begun_bytes = 0
        if found.losses or not found.number:
            self._begin()

    @property
    def window(self) -> Extent:
        """How far the redelivery window's log was on the disk when a segment was booked last."""
        return self._book.window

    def book(
        self,
        segment: SegmentId,
        lines: Lines,
        *,
        parts_epoch: int | None = None,
        window: Extent = NO_EXTENT,
    ) -> None:
        """Record durably what became of a segment; replaces what was recorded for it before."""
        if lines:
            self._book_as(ledger_log.booked(Key(segment), lines, parts_epoch, window))

    def damaged(self, segment: SegmentId, rows: int, hour: int) -> None:
        """Record accepted rows that were lost to damage and whose drain is unknown."""
        if rows:
            self._book_as(ledger_log.booked(Key(segment, DAMAGE), ledger_lines.lost(rows, hour)))

    def replaying(self, segment: SegmentId) -> None:
        """Record that a segment about to enter the journal is made of dead letters. Thread-safe."""
        self._book_as(ledger_log.booked(Key(segment, REPLAY), {}))

    def is_replay(self, segment: SegmentId) -> bool:
        """Return whether the segment is made of dead letters."""
        return Key(segment, REPLAY) in self._book.open

    def settle(self, segment: SegmentId) -> None:
        """Fold a segment into the sums once its file is deleted: it is never booked again."""
        with self._lock:
            self._book.settle([Key(segment), Key(segment, DAMAGE), Key(segment, REPLAY)])

    def stored_and_gone(self, present: Collection[SegmentId]) -> Iterator[SegmentId]:
        """Yield segments that an earlier run booked as stored, at least in part, and deleted."""
        for key in self._from_before:
            rows = sum(counts.stored for counts in self._book.open.get(key, {}).values())
            if rows and not key.part and key.segment not in present:
                yield key.segment

    def put_back(self) -> bool:
        """Write log and head again out of memory if either was removed. Returns whether that was so."""
        with self._writing:
            if self._log.is_there and self._head.is_there:
                return False
            _prepare(self._root, self._files)
            self._head.restore()
            self._begin()
            return True

    def retain(self, present: Collection[SegmentId]) -> None:
        """Settle segments that an earlier run left open and that are not in the journal any more."""
        with self._lock:
            self._book.settle(key for key in self._from_before if key.segment not in present)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Watch what is booked inside the `with` block."""
        with self._lock:
            watch = Watch({key.segment for key in self._book.open if not key.part})
            self._watches.append(watch)
        try:
            yield watch
        finally:
            with self._lock:
                self._watches.remove(watch)

    def sums(self, watch: Watch) -> tuple[Sums, Watch]:
        """Copy the sums, and what this watch has recorded so far, at one instant."""
        losses = ledger_witness.reported(lost_path(self._root), self._files)
        with self._lock:
            seen = Watch(set(watch.segments), set(watch.since), dict(watch.lines))
            return sums_of(self._book, losses), seen

    def close(self) -> None:
        """Close the descriptors."""
        self._log.close()
        self._head.close()

    def _report(self, losses: Sequence[str], now_s: float) -> None:
        """Report lost history and go on with what is left: nothing before the next hour is sure any more."""
        ledger_witness.report(lost_path(self._root), losses, now_s, self._files)
        self._book.complete_from_hour = int(now_s // 3_600) + 1
        limited.error(
            "ledger: lost",
            "ledger lost history and goes on without it",
            path=str(lost_path(self._root)),
            error="; ".join(losses),
            action="find the cause, compare with `trace-drain ledger --verify`, then delete this file",
        )

    def _book_as(self, entry: Booked) -> None:
        key = ledger_log.key_of(entry)
        with self._writing:
            if self._book.open.get(key) != dict(entry.rows):
                self._append(key, entry)
            self._move_head()
            self._begin_if_due()

    def _append(self, key: Key, entry: Booked) -> None:
        content, position = ledger_log.written([entry], self._position)
        self._log.append(content)
        self._position = position
        with self._lock:
            before = self._book.open.get(key, {})
            self._book.apply(entry)
            for watch in self._watches:
                watch.note(key, before, self._book.open[key])

    def _move_head(self) -> None:
        """Witness the last entry. An entry that an earlier life appended may not be witnessed yet either."""
        if self._head.last is None or self._head.last.position != self._position:
            self._head.write(Head(self._position, self._book.window))

    def _begin_if_due(self) -> None:
        if self._log.bytes_good - self._begun_bytes < max(LOG_BYTES_MIN, self._begun_bytes):
            return
        try:
            self._begin()
        except OSError as reason:
            self._begun_bytes = self._log.bytes_good
            limited.warning("ledger: disk", "ledger cannot be written anew", why=reason.strerror)

    def _begin(self) -> None:
        """Rewrite the log as sums. The old log stays valid until the new one and its head are synced."""
        with self._lock:
            content, position = ledger_log.written(self._book.entries(), self._position)
        path = _path(self._root, self._number + 1)
        write_durably(path, content, files=self._files)
        self._log.close()
        self._number, self._position = self._number + 1, position
        self._log = AppendedLog(path, len(content), self._files)
        self._begun_bytes = len(content)
        self._move_head()
        for number in _numbers(self._root, self._files):
            if number < self._number:
                self._files.unlink(_path(self._root, number))


def is_first_on(data_dir: Path) -> bool:
    """Whether no writer ever worked on this data directory: then a ledger that is not there is not lost."""
    return not (data_dir / "redelivery").exists()


def lost_path(root: Path) -> Path:
    """Where losses are reported."""
    return root.with_name("ledger.lost")


def head_path(root: Path) -> Path:
    """Where the head lies: outside the directory whose loss it shows."""
    return root.with_name("ledger.head")


def sums_of(book: Book, losses: tuple[str, ...] = ()) -> Sums:
    """Copy the sums out of a book."""
    lines = {heading: counts for heading, counts in book.lines.items() if any(counts)}
    replayed = frozenset(key.segment for key in book.open if key.part == REPLAY)
    return Sums(lines, book.whole_from_hour, tuple(book.epochs), replayed, losses)


def read_sums(
    root: Path, limits: Limits, files: Files = DISK, *, is_first: bool = False
) -> tuple[Sums, set[SegmentId]]:
    """Read a ledger that nobody has open: its sums, and which of its segments may lie in the journal."""
    found = _read(root, limits, files, is_first=is_first)
    losses = (*ledger_witness.reported(lost_path(root), files), *found.losses)
    return sums_of(found.book, losses), {key.segment for key in found.book.open if not key.part}


class _Found(NamedTuple):
    number: int
    """Of the newest log; 0: there is none."""
    book: Book
    bytes_good: int
    position: Position
    """Behind every entry that was ever written, those that are lost included."""
    head: HeadFile
    losses: list[str]


def _read(root: Path, limits: Limits, files: Files, *, is_first: bool) -> _Found:
    """Read the newest log: an older one beside it is what a crash left."""
    number = max(_numbers(root, files), default=0)
    head, book = HeadFile(head_path(root), files), Book(limits)
    log = ledger_log.read(files.read(_path(root, number)) if number else b"")
    for linked in log.entries:
        book.apply(linked.entry)
    witnessed = head.last or Head()
    book.window = max(book.window, witnessed.window)
    ends = [witnessed.position, *(linked.after for linked in log.entries[-1:])]
    position = max(ends, key=lambda end: end.number)
    is_new = is_first and not number and not position.number
    losses = [] if is_new else ledger_witness.losses_in(log, head.last)
    return _Found(number, book, len(log.good), position, head, losses)


def _prepare(root: Path, files: Files) -> None:
    if files.size_bytes(root) is None:
        files.make_directory(root)
    beside = {f".{head_path(root).name}.tmp", f".{lost_path(root).name}.tmp"}
    for draft in [*drafts_in(root, files), *drafts_in(root.parent, files)]:
        if draft.parent == root or draft.name in beside:
            files.unlink(draft)
    # A draft must be gone before its name is used again, or a later rename could bring it back.
    files.sync_directory(root)
    files.sync_directory(root.parent)


def _sync(path: Path, files: Files) -> None:
    """Make durable what a killed process may have left in memory: it is relied on from now on."""
    with opened(files, path) as fd:
        files.sync_data(fd)
    files.sync_directory(path.parent)


def _numbers(root: Path, files: Files) -> list[int]:
    if files.size_bytes(root) is None:
        return []
    stems = [name.removesuffix(".log") for name in files.names(root) if name.endswith(".log")]
    return [int(stem) for stem in stems if stem.isdigit()]


def _path(root: Path, number: int) -> Path:
    return root / f"{number:010d}.log"
