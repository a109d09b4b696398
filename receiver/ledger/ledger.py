"""Ledger on disk: the outcome of every received span, in one log in DATA/ledger.

    count in the store ──▶ record: log, then head ──▶ digests known ──▶ unlink ──▶ settle

The entry of a segment is on disk, under the segment's id, before the segment's file is deleted. It
replaces an earlier entry of the same id: after a kill between any two steps the writer records the segment
again, and nothing is counted twice. Once the file is deleted, the segment is settled: its entry can no longer
be replaced, so it is merged into the sums. A log that has grown is rewritten as sums.

Order of writes, so that every loss is detected and no crash looks like a loss (`loss_detection.py`):

    first start       head at 0  ─▶ log  ─▶ head
    new entry         log entry  ─▶ head
    rewriting         new log    ─▶ head ─▶ delete the old log
    loss found        report     ─▶ new log ─▶ head

Invariant: the sums count each deleted segment exactly once, and a segment is recorded before it is deleted.
Lost history of the ledger itself is reported until an operator acknowledges it. Only the writer's thread
records; any thread may read.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from receiver.durable.append_log import NO_EXTENT, AppendLog, Extent
from receiver.durable.files import DISK, Files, delete_unneeded, drafts_in, opened, write_durably
from receiver.engine.store import RowSum
from receiver.ledger import line_sums, log_codec, loss_detection
from receiver.ledger.book import Book
from receiver.ledger.line_sums import Counts, Lines
from receiver.ledger.log_codec import DAMAGE, DELETION, REPLAY, Key, Position, SegmentEntry
from receiver.ledger.loss_detection import Head, HeadFile
from receiver.ledger.recorded import RecordedSegments
from receiver.logs import limited
from receiver.model import Heading, SegmentId
from receiver.settings import MIB
from receiver.settings import Ledger as Limits

LOG_BYTES_MIN = 1 * MIB
"""The log is rewritten as sums when it has grown by this and has at least doubled in size."""


@dataclass(slots=True)
class Watch:
    """Entries that the writer records while a reader compares ledger, journal and table."""

    segments: set[SegmentId]
    """Segments that may be both in the sums and in the journal."""
    since: set[SegmentId] = field(default_factory=set)
    lines: dict[Heading, Counts] = field(default_factory=dict)
    """Counts that were recorded since the watch began."""

    def note(self, key: Key, before: Lines, after: Lines) -> None:
        """Note a new entry. Skips parts (damage, replays), whose segment is still in the journal."""
        if key.part:
            return
        self.segments.add(key.segment)
        self.since.add(key.segment)
        for heading in {*before, *after}:
            # Only the difference, because the new entry replaces an earlier one of the segment.
            added = after.get(heading, Counts()).minus(before.get(heading, Counts()))
            self.lines[heading] = self.lines.get(heading, Counts()).plus(added)


class Sums(NamedTuple):
    """A copy of the ledger at one instant."""

    lines: dict[Heading, Counts]
    complete_from_hour: int
    """First hour from which on the counts are complete."""
    epochs: tuple[int, ...]
    """Intake starts whose rows in the table belong to this ledger."""
    replayed: frozenset[SegmentId] = frozenset()
    """Segments of replayed dead letters. The sums already count their spans, as dead."""
    losses: tuple[str, ...] = ()
    """Losses of history that no operator has acknowledged."""


class Ledger:
    """The sums and their log. Only the writer changes it."""

    def __init__(
        self, root: Path, limits: Limits, now_s: Callable[[], float], *, is_first: bool, files: Files = DISK
    ) -> None:
        """`is_first`: no receiver ran on this data directory before, so a missing ledger is not a loss."""
        self._root = root
        self._files = files
        # Held during syncs. The writer's thread and replays record entries.
        self._writing = threading.Lock()
        # Protects the sums. Never held during a sync, so that readers do not wait for the disk.
        self._lock = threading.Lock()
        self._watches: list[Watch] = []
        self.recorded: RecordedSegments | None = None
        """Log of the recorded segments, if metrics of spans are on."""
        _prepare(root, files)
        stored = _read(root, limits, files, is_first=is_first)
        self._number, self._book, self._head = stored.number, stored.book, stored.head
        self._position = stored.position
        # These segments may be gone from the journal without having been settled; see `retain`.
        self._from_before = list(self._book.open)
        if stored.number:
            # A killed process may have left entries unsynced that this process relies on from now on.
            _sync(_path(root, stored.number), files)
        if stored.losses:
            self._report(stored.losses, now_s())
        elif self._head.last is None:
            # On a first start the head exists before the log, so that a log without a head always means a
            # loss.
            self._head.write(Head())
        self._log = AppendLog(_path(root, self._number), stored.bytes_good, files)
        self._begun_bytes = 0
        if stored.losses or not stored.number:
            self._begin()

    @property
    def window(self) -> Extent:
        """Extent of the deduplication window's log when the last segment was recorded."""
        return self._book.window

    def record(
        self, segment: SegmentId, lines: Lines, *, parts_epoch: int | None = None, window: Extent = NO_EXTENT
    ) -> None:
        """Record the outcome of a segment durably. Replaces an earlier record of the same segment."""
        if lines:
            self._record_entry(log_codec.segment_entry(Key(segment), lines, parts_epoch, window))

    def record_damage(self, segment: SegmentId, rows: int, hour: int) -> None:
        """Record accepted rows that were lost to damage and whose drain is unknown."""
        if rows:
            self._record_entry(log_codec.segment_entry(Key(segment, DAMAGE), line_sums.lost(rows, hour)))

    def record_replay(self, segment: SegmentId) -> None:
        """Record that a segment, which will enter the journal next, consists of dead letters. Thread-safe."""
        self._record_entry(log_codec.segment_entry(Key(segment, REPLAY), {}))

    def record_deletion(self, number: int, rows: Mapping[Heading, RowSum]) -> None:
        """Record that these stored rows will be deleted, durably. `number`: random, of this deletion."""
        lines: dict[Heading, Counts] = {}
        for heading, counts in line_sums.deleted(rows).items():
            at = self._book.holding(heading, counts.deleted)
            lines[at] = lines.get(at, Counts()).plus(counts)
        if lines:
            self._record_entry(log_codec.segment_entry(_deletion_key(number), lines))

    def is_deletion(self, number: int) -> bool:
        """Return whether the deletion is recorded and not settled."""
        return _deletion_key(number) in self._book.open

    def settle_deletions(self, pending: int | None) -> None:
        """Merge deletions into the sums, except the one that is not finished."""
        kept = None if pending is None else _deletion_key(pending)
        with self._lock:
            self._book.settle([key for key in self._book.open if key.part == DELETION and key != kept])

    def is_replay(self, segment: SegmentId) -> bool:
        """Return whether the segment consists of replayed dead letters."""
        return Key(segment, REPLAY) in self._book.open

    def settle(self, segment: SegmentId) -> None:
        """Merge a segment into the sums after its file was deleted. It is never recorded again."""
        with self._lock:
            self._book.settle([Key(segment), Key(segment, DAMAGE), Key(segment, REPLAY)])
        if self.recorded is not None:
            self.recorded.settle(segment)

    def stored_and_gone(self, present: Collection[SegmentId]) -> Iterator[SegmentId]:
        """Yield segments that an earlier run recorded as stored, at least in part, and deleted."""
        for key in self._from_before:
            rows = sum(counts.stored for counts in self._book.open.get(key, {}).values())
            if rows and not key.part and key.segment not in present:
                yield key.segment

    def restore_files(self) -> bool:
        """Rewrite log and head from memory if either was removed. Return whether that was needed."""
        with self._writing:
            # Nothing was removed. This check is two stats, cheap enough to run before every segment.
            if self._log.is_in_place and self._head.is_in_place:
                return False
            _prepare(self._root, self._files)
            self._head.restore()
            self._begin()
            return True

    def retain(self, present: Collection[SegmentId]) -> None:
        """Settle segments that an earlier run did not settle and that are not in the journal any more."""
        with self._lock:
            self._book.settle(
                key for key in self._from_before if key.segment not in present and key.part != DELETION
            )
        if self.recorded is not None:
            self.recorded.retain(present)

    @contextmanager
    def watching(self) -> Iterator[Watch]:
        """Watch which entries are recorded inside the `with` block."""
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
        losses = loss_detection.reported(lost_path(self._root), self._files)
        with self._lock:
            # Copies, because the writer continues to change the watch.
            seen = Watch(set(watch.segments), set(watch.since), dict(watch.lines))
            return sums_of(self._book, losses), seen

    def close(self) -> None:
        self._log.close()
        self._head.close()

    def _report(self, losses: Sequence[str], now_s: float) -> None:
        """Report lost history and continue with the remaining entries. Only later hours count as complete."""
        loss_detection.report(lost_path(self._root), losses, now_s, self._files)
        self._book.complete_from_hour = int(now_s // 3_600) + 1
        limited.error(
            "ledger: lost",
            "ledger lost history and continues without it",
            path=str(lost_path(self._root)),
            error="; ".join(losses),
            action="find the cause, compare with `trace-drain ledger --verify`, then delete this file",
        )

    def _record_entry(self, entry: SegmentEntry) -> None:
        key = log_codec.key_of(entry)
        with self._writing:
            # A retry after an error finds the entry already in the log and only has to write the head.
            if self._book.open.get(key) != dict(entry.rows):
                self._append(key, entry)
            self._move_head()
            # Only after the entry is durable: a failed rewrite must not fail the record.
            self._begin_if_due()

    def _append(self, key: Key, entry: SegmentEntry) -> None:
        content, position = log_codec.written([entry], self._position)
        # Disk before memory: the sums never show an entry that a crash could undo.
        self._log.append(content)
        self._position = position
        with self._lock:
            before = self._book.open.get(key, {})
            self._book.apply(entry)
            for watch in self._watches:
                watch.note(key, before, self._book.open[key])

    def _move_head(self) -> None:
        """Write the last position to the head file. An earlier process may have stopped before that."""
        if self._head.last is None or self._head.last.position != self._position:
            self._head.write(Head(self._position, self._book.window))

    def _begin_if_due(self) -> None:
        if self._log.bytes_good - self._begun_bytes < max(LOG_BYTES_MIN, self._begun_bytes):
            return
        try:
            self._begin()
        except OSError as error:
            # The old log is intact, so continue with it, and try again only after it has grown as much again.
            self._begun_bytes = self._log.bytes_good
            limited.warning("ledger: disk", "ledger log cannot be rewritten", error=error.strerror)

    def _begin(self) -> None:
        """Rewrite the log as sums. The old log stays valid until the new one and its head are synced."""
        with self._lock:
            content, position = log_codec.written(self._book.entries(), self._position)
        path = _path(self._root, self._number + 1)
        write_durably(path, content, files=self._files)
        # Only now: if the write had failed, the old log would still be in use.
        self._log.close()
        self._number, self._position = self._number + 1, position
        self._log = AppendLog(path, len(content), self._files)
        self._begun_bytes = len(content)
        self._move_head()
        # Delete old logs last: until the head names the new log, a crash must find the old one.
        for number in _numbers(self._root, self._files):
            if number < self._number:
                self._files.unlink(_path(self._root, number))


def is_first_on(data_dir: Path) -> bool:
    """Return whether no writer ever ran on this data directory, so that a missing ledger is not a loss."""
    # Not DATA/ledger itself: its loss must not look like a first start.
    return not (data_dir / "redelivery").exists()


def _deletion_key(number: int) -> Key:
    return Key(SegmentId(0, number), DELETION)


def deletion_path(data_dir: Path) -> Path:
    """Return the path of the file that exists while spans are being deleted."""
    return data_dir / "deletion.json"


def lost_path(root: Path) -> Path:
    return root.with_name("ledger.lost")


def head_path(root: Path) -> Path:
    """Return the path of the head file, which is outside the directory whose loss it detects."""
    return root.with_name("ledger.head")


def sums_of(book: Book, losses: tuple[str, ...] = ()) -> Sums:
    lines = {heading: counts for heading, counts in book.lines.items() if any(counts)}
    replayed = frozenset(key.segment for key in book.open if key.part == REPLAY)
    return Sums(lines, book.whole_from_hour, tuple(book.epochs), replayed, losses)


def read_sums(
    root: Path, limits: Limits, files: Files = DISK, *, is_first: bool = False
) -> tuple[Sums, set[SegmentId]]:
    """Read a ledger that no process has open. Returns its sums and its unsettled segments."""
    stored = _read(root, limits, files, is_first=is_first)
    losses = (*loss_detection.reported(lost_path(root), files), *stored.losses)
    return sums_of(stored.book, losses), {key.segment for key in stored.book.open if not key.part}


class _Stored(NamedTuple):
    number: int
    """Number of the newest log; 0 if there is none."""
    book: Book
    bytes_good: int
    position: Position
    """Position after every entry that was ever written, including lost entries."""
    head: HeadFile
    losses: list[str]


def _read(root: Path, limits: Limits, files: Files, *, is_first: bool) -> _Stored:
    """Read the newest log. Older logs are leftovers of a crash during a rewrite and are ignored."""
    number = max(_numbers(root, files), default=0)
    head, book = HeadFile(head_path(root), files), Book(limits)
    log = log_codec.read(files.read(_path(root, number)) if number else b"")
    for linked in log.entries:
        book.apply(linked.entry)
    recorded_head = head.last or Head()
    book.window = max(book.window, recorded_head.window)
    # After a loss the log may end before the head. Numbering continues after both, so that no number repeats.
    ends = [recorded_head.position, *(linked.after for linked in log.entries[-1:])]
    position = max(ends, key=lambda end: end.number)
    is_new = is_first and not number and not position.number
    losses = [] if is_new else loss_detection.losses_in(log, head.last)
    return _Stored(number, book, len(log.good), position, head, losses)


def _prepare(root: Path, files: Files) -> None:
    if files.size_bytes(root) is None:
        files.make_directory(root)
    # The head and the report are next to the directory, among the drafts of other components.
    beside = {f".{head_path(root).name}.tmp", f".{lost_path(root).name}.tmp"}
    for draft in [*drafts_in(root, files), *drafts_in(root.parent, files)]:
        if draft.parent == root or draft.name in beside:
            delete_unneeded(draft, files)
    # Make the deletions durable before the names are reused, or a power cut could bring the drafts back.
    files.sync_directory(root)
    files.sync_directory(root.parent)


def _sync(path: Path, files: Files) -> None:
    """Sync a log that a killed process may have left unsynced, before this process relies on its entries."""
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
