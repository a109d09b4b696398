"""Deduplication window: digests of recently stored deliveries, and of deliveries that are being stored.

    DATA/redelivery/0000000012.log       the newest generation: decisions, appended and synced
    DATA/redelivery/0000000011.table     an older generation: only its digests, mapped, immutable

    DATA/redelivery.begun                id of the key that the digests were made with: see `window_key`

    decided    before a segment's first INSERT: no other segment may store its deliveries until it ended
    ended      after the rows were counted, before the unlink: the digests are known from now on

The window has its own clock: the total time that writers have run, measured by the monotonic clock and saved
in the log. Neither a step of the wall clock nor a stop of the receiver makes an entry older. A generation is
closed when it is old or full, and is dropped as a whole.

Invariant: a digest is known only after its rows were counted in the store. If digests are dropped early, the
window reports that it is shorter (`covered_s`, `shortfall`). Never: used by a second thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from receiver.durable.append_log import NO_EXTENT, AppendLog, Extent
from receiver.durable.files import (
    DISK,
    delete_drafts,
    delete_unneeded,
    make_directories,
    unlink_if_exists,
    write_durably,
)
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery import decisions
from receiver.redelivery.decisions import Decided, Ended, Entry, Ticked
from receiver.redelivery.digests import DIGEST_BYTES, FrozenTable, GrowingTable, NotATable
from receiver.redelivery.window_key import WindowKey
from receiver.settings import Redelivery, Settings

GENERATIONS = 12
"""Generations per window. An entry expires at most a twelfth of the window late."""
TICK_S = 60.0
"""Maximum time on the window's clock that a crash loses. Entries then expire later by that time."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a segment that is still in the journal."""

    verdicts: bytes
    kept: frozenset[bytes]
    """Digests of the deliveries that the segment is about to store; empty after `Ended`."""
    is_pending: bool


class Window:
    """The deduplication window. Only the writer uses it."""

    def __init__(
        self,
        root: Path,
        limits: Redelivery,
        monotonic_s: Callable[[], float],
        *,
        exempt_drains: frozenset[str] = frozenset(),
        extent_min: Extent = NO_EXTENT,
    ) -> None:
        """`extent_min`: the length of the log that the ledger recorded. A shorter log has lost entries."""
        self.exempt_drains = exempt_drains
        """Drains without deduplication (`dedupe = false`). May be replaced at any time."""
        self._root = root
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._seen_s = monotonic_s()
        self._observed_s = 0.0
        # Minus infinity means that nothing was lost: a new receiver covers the whole window at once.
        self._lost_until_s = -math.inf
        self._is_damage = False
        self._written_s = 0.0
        self._decisions: dict[SegmentId, Decision] = {}
        self._growing = GrowingTable()
        self._growing_since_s = 0.0
        self._frozen: dict[int, FrozenTable] = {}
        self._number = 0
        self._log = AppendLog(root, 0)
        self._key = WindowKey(root)
        self._load(extent_min)

    def __len__(self) -> int:
        return len(self._growing) + sum(map(len, self._frozen.values()))

    @property
    def observed_s(self) -> float:
        """Current time on the window's clock."""
        now_s = self._monotonic_s()
        # Accumulated, because the monotonic clock restarts at every boot.
        self._observed_s += max(0.0, now_s - self._seen_s)
        self._seen_s = now_s
        return self._observed_s

    @property
    def extent(self) -> Extent:
        """Number of the log on disk, and its length."""
        return Extent(self._number, self._log.bytes_good)

    @property
    def covered_s(self) -> float:
        """Length of the window: the setting, or less if entries were lost or dropped."""
        return max(0.0, min(self._limits.window_s, self.observed_s - self._lost_until_s))

    @property
    def shortfall(self) -> str:
        """Reason that the window is shorter than the setting; empty if it is not."""
        if self.covered_s >= self._limits.window_s:
            return ""
        cause = (
            "the log of earlier deliveries was damaged or missing, or the digest key was replaced"
            if self._is_damage
            else f"redelivery.entries_max is {self._limits.entries_max}, the window has {len(self)} entries"
        )
        reach = f"redeliveries are recognised for {self.covered_s:.0f} s"
        return f"{reach}; expected {self._limits.window_s:.0f} s ({cause})"

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return those `digests` whose deliveries are known to be stored."""
        # One call per table for all digests of a segment: a call per digest would cost more than the lookup.
        joined = b"".join(digests)
        tables: list[GrowingTable | FrozenTable] = [self._growing, *self._frozen.values()]
        return {digests[index] for table in tables for index in table.known(joined)}

    def reserved_by(self, digest: bytes, *, but_by: SegmentId) -> SegmentId | None:
        """Return another segment that reserved this delivery and whose outcome is still unknown."""
        for segment, decision in self._decisions.items():
            if digest in decision.kept and segment != but_by:
                return segment
        return None

    def decision(self, segment: SegmentId) -> Decision | None:
        """Return the decision about a segment, or `None` if no INSERT of it was ever sent."""
        return self._decisions.get(segment)

    def decide(self, segment: SegmentId, kept: Iterable[bytes], verdicts: bytes) -> None:
        """Record durably which deliveries a segment stores. Call before its first INSERT."""
        # Disk before memory: a decision that a crash could undo must not be acted on.
        entry = Decided(self.observed_s, segment.epoch, segment.seq, b"".join(kept), verdicts)
        self._append([entry])
        self._apply(entry)

    def end(self, segment: SegmentId, digests: Iterable[bytes]) -> None:
        """Record durably that the rows of a segment were counted, and add the digests to the window."""
        entry = Ended(self.observed_s, segment.epoch, segment.seq, b"".join(digests))
        self._append([entry])
        self._apply(entry)

    def end_if_pending(self, segment: SegmentId) -> None:
        """Record the missing end of a stored segment, with all deliveries that it reserved."""
        decision = self.decision(segment)
        if decision is not None and decision.is_pending:
            self.end(segment, decision.kept)

    def forget(self, segment: SegmentId) -> None:
        """Drop the decision about a segment whose file was deleted durably."""
        self._decisions.pop(segment, None)

    def retain(self, present: AbstractSet[SegmentId]) -> None:
        """Drop the decisions about segments that are not in the journal any more."""
        for segment in self._decisions.keys() - present:
            self.forget(segment)

    def tick(self) -> None:
        """Close the growing generation if it is full or old, and drop generations beyond the limits."""
        now_s = self.observed_s
        try:
            if self._is_due(now_s):
                self._rotate(now_s)
            elif now_s - self._written_s >= TICK_S:
                self._append([self._tick_entry(now_s)])
            self._expire(now_s)
        except OSError as error:
            # No decision is lost: `decide` writes its own entry, and the next tick tries again.
            limited.warning("redelivery: disk", "redelivery log cannot be written", error=error.strerror)

    def restore_files(self) -> bool:
        """Rewrite files from memory if any were removed. Return whether any were."""
        missing = [number for number in self._frozen if not self._path(number, "table").exists()]
        is_removed = bool(missing) or not self._log.is_in_place
        if is_removed:
            self._make_root()
        is_key_changed, is_key_replaced = self._key.restore()
        # A process may have used the other key, so copies accepted meanwhile may not be recognised.
        if is_key_replaced:
            self._record_loss(self.observed_s, is_damage=True)
        if not (is_removed or is_key_replaced):
            return is_key_changed
        for number in missing:
            self._frozen[number].write(self._path(number, "table"))
        self._rotate(self.observed_s)
        return True

    def close(self) -> None:
        self._log.close()

    def _is_due(self, now_s: float) -> bool:
        is_full = len(self._growing) >= max(1, self._limits.entries_max // GENERATIONS)
        return is_full or now_s - self._growing_since_s >= self._limits.window_s / GENERATIONS

    def _rotate(self, now_s: float) -> None:
        """Freeze the newest generation and begin the next. A crash between any two steps loses nothing."""
        if len(self._growing):
            table = self._path(self._number, "table")
            self._growing.write(table, first_s=self._growing_since_s, last_s=now_s)
            self._frozen[self._number] = FrozenTable.open(table)
        # The table is durable before the new log, and the old log is deleted last: a crash finds either the
        # old log or the new log with the table.
        self._begin(self._number + 1, now_s)
        unlink_if_exists(self._path(self._number - 1, "log"))

    def _begin(self, number: int, now_s: float) -> None:
        """Start a new log, with the decisions about segments that are still in the journal."""
        content = decisions.written([self._tick_entry(now_s), *self._entries_of(self._decisions, now_s)])
        write_durably(self._path(number, "log"), content)
        # Only now: while the new log is not durable, the old one must stay usable.
        self.close()
        self._number, self._log = number, AppendLog(self._path(number, "log"), len(content))
        self._growing, self._growing_since_s, self._written_s = GrowingTable(), now_s, now_s

    @staticmethod
    def _entries_of(decided: dict[SegmentId, Decision], now_s: float) -> Iterable[Entry]:
        for segment, decision in decided.items():
            yield Decided(now_s, segment.epoch, segment.seq, b"".join(decision.kept), decision.verdicts)
            if not decision.is_pending:
                # Without digests, because they are in the window's tables already.
                yield Ended(now_s, segment.epoch, segment.seq, b"")

    def _expire(self, now_s: float) -> None:
        """Drop generations that are too old, and the oldest generations while there are too many entries."""
        # One generation's share is reserved for the growing table, which is full at that size.
        frozen_max = self._limits.entries_max - max(1, self._limits.entries_max // GENERATIONS)
        # Oldest first, so the first generation that may stay ends the loop.
        for number in sorted(self._frozen):
            is_old = now_s - self._frozen[number].header.last_s > self._limits.window_s
            is_too_many = sum(map(len, self._frozen.values())) > frozen_max
            if not (is_old or is_too_many):
                return
            dropped = self._frozen.pop(number)
            if not is_old:
                # The loss is on disk before the table is deleted, or a restart would claim the whole window.
                self._record_loss(dropped.header.last_s, is_damage=False)
                self._append([self._tick_entry(now_s)])
                limited.warning("redelivery: window", "redelivery window is shortened", error=self.shortfall)
            unlink_if_exists(self._path(number, "table"))

    def _tick_entry(self, now_s: float) -> Ticked:
        return Ticked(now_s, self._lost_until_s, self._is_damage)

    def _record_loss(self, until_s: float, *, is_damage: bool) -> None:
        """Record that entries up to `until_s` are lost. The most recent loss limits the window."""
        if until_s > self._lost_until_s:
            self._lost_until_s, self._is_damage = until_s, is_damage

    def _append(self, entries: list[Entry]) -> None:
        """Append and sync entries. After an error, the next append first removes what was written."""
        self._log.append(decisions.written(entries))
        self._written_s = entries[-1].observed_s

    def _path(self, number: int, suffix: str) -> Path:
        return self._root / f"{number:010d}.{suffix}"

    def _make_root(self) -> None:
        make_directories(self._root)
        DISK.sync_directory(self._root.parent)

    def _load(self, extent_min: Extent) -> None:
        self._make_root()
        delete_drafts(self._root)
        logs, tables = self._numbers("log"), self._numbers("table")
        # Tables without a log: the newest digests and all decisions are lost.
        is_complete = bool(logs) or not tables
        # A crash came between beginning the newest log and deleting the log before it.
        for number in logs[:-1]:
            delete_unneeded(self._path(number, "log"))
        for number in tables:
            # A crash came between the table and the next log, so the log still holds these digests.
            if logs and number >= logs[-1]:
                delete_unneeded(self._path(number, "table"))
            else:
                # In this order, so that the other tables are opened even after a damaged one.
                is_complete = self._open_table(number) and is_complete
        if logs:
            is_complete = self._replay(logs[-1]) and is_complete
        is_complete = self._has_all_synced_entries(extent_min) and is_complete
        is_complete = self._has_this_key(has_files=bool(logs or tables)) and is_complete
        # The log with the last tick may be lost; the end of a table is then the best estimate.
        self._observed_s = max([self._observed_s, *(table.header.last_s for table in self._frozen.values())])
        if not is_complete:
            self._record_loss(self._observed_s, is_damage=True)
        # The new log begins with the loss, so that a later start knows it, too.
        if not (logs and is_complete):
            # Above every number in use, so that the extent in the ledger stays comparable.
            self._rotate_from(max([extent_min.number, *logs, *tables]))
        # Last, because the record states that the window's first log exists.
        self._key.begin()

    def _has_all_synced_entries(self, extent_min: Extent) -> bool:
        if self.extent >= extent_min:
            return True
        limited.error("redelivery: cut", "redelivery log is shorter than it was on the disk before")
        return False

    def _has_this_key(self, *, has_files: bool) -> bool:
        loss = self._key.loss(has_files=has_files, is_empty=not (len(self) or self._decisions))
        if loss:
            limited.error(
                "redelivery: lost",
                "redelivery window starts empty",
                path=str(self._root),
                error=loss,
                action="copies of deliveries accepted before are stored again",
            )
        return not loss

    def _numbers(self, suffix: str) -> list[int]:
        # Not `glob`, which returns nothing for a directory that it may not read.
        # The window would start empty.
        paths = map(Path, DISK.names(self._root))
        return sorted(int(path.stem) for path in paths if path.suffix == f".{suffix}" and path.stem.isdigit())

    def _open_table(self, number: int) -> bool:
        path = self._path(number, "table")
        try:
            self._frozen[number] = FrozenTable.open(path)
        except NotATable as error:
            limited.error("redelivery: rot", "redelivery table is damaged", path=str(path), error=str(error))
            delete_unneeded(path)
            return False
        return True

    def _replay(self, number: int) -> bool:
        """Read the newest log. Truncates a torn tail, whose entries were never synced."""
        path = self._path(number, "log")
        content = DISK.read(path)
        log = decisions.read(content)
        # Unreadable bytes in the middle go, too: appends start at the length of the readable entries.
        if log.good != content:
            write_durably(path, log.good)
        self._number, self._log = number, AppendLog(path, len(log.good))
        for entry in log.entries:
            self._apply(entry)
        self._growing_since_s = log.entries[0].observed_s if log.entries else self._observed_s
        self._written_s = self._observed_s
        if log.is_damaged or not log.entries:
            limited.error("redelivery: rot", "redelivery log is damaged", path=str(path))
            return False
        return True

    def _rotate_from(self, number: int) -> None:
        """Begin a new log because there is none or it is damaged."""
        self._number = number
        self._rotate(self._observed_s)

    def _apply(self, entry: Entry) -> None:
        self._observed_s = max(self._observed_s, entry.observed_s)
        if isinstance(entry, Ticked):
            self._record_loss(entry.lost_until_s, is_damage=entry.is_damage)
            return
        segment = decisions.segment_of(entry)
        if isinstance(entry, Decided):
            kept = frozenset(_split(entry.digests))
            self._decisions[segment] = Decision(entry.verdicts, kept, is_pending=True)
            return
        self._growing.add(entry.digests)
        before = self._decisions.get(segment)
        if before is not None:
            self._decisions[segment] = Decision(before.verdicts, frozenset(), is_pending=False)


def _split(digests: bytes) -> list[bytes]:
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]


def drains_without_dedupe(settings: Settings) -> frozenset[str]:
    """Return the drains without deduplication."""
    return frozenset(drain.name for drain in settings.drain if not drain.dedupe)
