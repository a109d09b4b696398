"""Deduplication window: digests of deliveries that were stored lately, and of those that are being stored.

    DATA/redelivery/0000000012.log       the newest generation: decisions, appended and synced
    DATA/redelivery/0000000011.table     an older generation: its digests alone, mapped, immutable

    DATA/redelivery.begun                the digest key they were made with: see `window_key`

    decided    before a segment's first INSERT: no other segment may store its deliveries until it ended
    ended      after the rows were counted, before the unlink: the digests are known from now on

The window has its own clock: the monotonic time that the writer has run, saved in the log. So neither a step
of the wall clock nor a stop of the receiver makes an entry older. A generation is closed when it is old or
full, and is dropped as a whole.

Invariant: a digest is known only after its rows were counted in the store. A digest that is dropped before
its time is reported (`reach_s`, `shortfall`). Never: used by a second thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from receiver.durable.append_log import NO_EXTENT, AppendLog, Extent
from receiver.durable.files import DIRECTORY_MODE, DISK, drafts_in, write_durably
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.redelivery import decisions
from receiver.redelivery.decisions import Decided, Ended, Entry, Ticked
from receiver.redelivery.digests import DIGEST_BYTES, FrozenTable, GrowingTable, NotATable
from receiver.redelivery.window_key import WindowKey
from receiver.settings import Redelivery

GENERATIONS = 12
"""Generations per window: an entry is kept for the window and at most a twelfth of it longer."""
TICK_S = 60.0
"""Observed time that a crash may lose. Entries are then kept that much longer."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Decision about a segment that is still in the journal."""

    verdicts: bytes
    kept: frozenset[bytes]
    """Digests of the deliveries that it is about to store; empty once it ended."""
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
        """`extent_min`: the known length of the log on the disk. A shorter log has lost entries."""
        self.exempt_drains = exempt_drains
        """Drains without deduplication (`dedupe = false`). May be replaced at any time."""
        self._root = root
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._seen_s = monotonic_s()
        self._observed_s = 0.0
        self._lost_until_s = -math.inf
        self._is_rot = False
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
        """The time on the window's clock."""
        now_s = self._monotonic_s()
        self._observed_s += max(0.0, now_s - self._seen_s)
        self._seen_s = now_s
        return self._observed_s

    @property
    def extent(self) -> Extent:
        """How far the log is on the disk."""
        return Extent(self._number, self._log.bytes_good)

    @property
    def reach_s(self) -> float:
        """How far back a redelivery is recognised: the setting, or less if entries were lost or dropped."""
        return max(0.0, min(self._limits.window_s, self.observed_s - self._lost_until_s))

    @property
    def shortfall(self) -> str:
        """Why the window is shorter than the setting; empty if it is not."""
        if self.reach_s >= self._limits.window_s:
            return ""
        cause = (
            "the log of earlier deliveries was damaged or missing, or the digest key was replaced"
            if self._is_rot
            else f"redelivery.entries_max is {self._limits.entries_max}, the window has {len(self)} entries"
        )
        reach = f"redeliveries are recognised for {self.reach_s:.0f} s"
        return f"{reach}; expected {self._limits.window_s:.0f} s ({cause})"

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Return those `digests` whose deliveries are known to be stored."""
        wanted = b"".join(digests)
        tables: list[GrowingTable | FrozenTable] = [self._growing, *self._frozen.values()]
        return {digests[index] for table in tables for index in table.known(wanted)}

    def reserved_by(self, digest: bytes, *, but_by: SegmentId) -> SegmentId | None:
        """Return another segment that is about to store this delivery, with an outcome still unknown."""
        for segment, decision in self._decisions.items():
            if digest in decision.kept and segment != but_by:
                return segment
        return None

    def decision(self, segment: SegmentId) -> Decision | None:
        """Return the decision about a segment. `None`: no INSERT of it was ever sent."""
        return self._decisions.get(segment)

    def decide(self, segment: SegmentId, kept: Iterable[bytes], verdicts: bytes) -> None:
        """Record durably which deliveries a segment stores. Call before its first INSERT."""
        entry = Decided(self.observed_s, segment.epoch, segment.seq, b"".join(kept), verdicts)
        self._append([entry])
        self._apply(entry)

    def end(self, segment: SegmentId, digests: Iterable[bytes]) -> None:
        """Record durably that a segment's rows were counted."""
        entry = Ended(self.observed_s, segment.epoch, segment.seq, b"".join(digests))
        self._append([entry])
        self._apply(entry)

    def end_if_pending(self, segment: SegmentId) -> None:
        """End a stored segment whose end was never recorded, with all deliveries it was to store."""
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
                self._append([self._ticked(now_s)])
            self._expire(now_s)
        except OSError as error:
            limited.warning("redelivery: disk", "redelivery log cannot be written", error=error.strerror)

    def restore_files(self) -> bool:
        """Rewrite files from memory if any were removed. Returns whether that was so."""
        missing = [number for number in self._frozen if not self._path(number, "table").exists()]
        is_removed = bool(missing) or not self._log.is_in_place
        if is_removed:
            self._make_root()
        is_key_changed, is_key_replaced = self._key.restore()
        if is_key_replaced:
            self._lose(self.observed_s, is_rot=True)
        if not (is_removed or is_key_replaced):
            return is_key_changed
        for number in missing:
            self._frozen[number].write(self._path(number, "table"))
        self._rotate(self.observed_s)
        return True

    def close(self) -> None:
        """Close the log file."""
        self._log.close()

    def _is_due(self, now_s: float) -> bool:
        is_full = len(self._growing) >= max(1, self._limits.entries_max // GENERATIONS)
        return is_full or now_s - self._growing_since_s >= self._limits.window_s / GENERATIONS

    def _rotate(self, now_s: float) -> None:
        """Freeze the newest generation and begin the next. A kill between any two steps loses nothing."""
        if len(self._growing):
            table = self._path(self._number, "table")
            self._growing.write(table, first_s=self._growing_since_s, last_s=now_s)
            self._frozen[self._number] = FrozenTable.open(table)
        self._begin(self._number + 1, now_s)
        self._path(self._number - 1, "log").unlink(missing_ok=True)

    def _begin(self, number: int, now_s: float) -> None:
        """Start a new log, with the decisions about segments that are still in the journal."""
        content = decisions.written([self._ticked(now_s), *self._entries_of(self._decisions, now_s)])
        write_durably(self._path(number, "log"), content)
        self.close()
        self._number, self._log = number, AppendLog(self._path(number, "log"), len(content))
        self._growing, self._growing_since_s, self._written_s = GrowingTable(), now_s, now_s

    @staticmethod
    def _entries_of(decided: dict[SegmentId, Decision], now_s: float) -> Iterable[Entry]:
        for segment, decision in decided.items():
            yield Decided(now_s, segment.epoch, segment.seq, b"".join(decision.kept), decision.verdicts)
            if not decision.is_pending:
                yield Ended(now_s, segment.epoch, segment.seq, b"")

    def _expire(self, now_s: float) -> None:
        """Drop generations that are too old, and the oldest as long as there are too many entries."""
        frozen_max = self._limits.entries_max - max(1, self._limits.entries_max // GENERATIONS)
        for number in sorted(self._frozen):
            is_old = now_s - self._frozen[number].header.last_s > self._limits.window_s
            is_too_many = sum(map(len, self._frozen.values())) > frozen_max
            if not (is_old or is_too_many):
                return
            dropped = self._frozen.pop(number)
            if not is_old:
                self._lose(dropped.header.last_s, is_rot=False)
                self._append([self._ticked(now_s)])
                limited.warning("redelivery: window", "redelivery window is shortened", error=self.shortfall)
            self._path(number, "table").unlink(missing_ok=True)

    def _ticked(self, now_s: float) -> Ticked:
        return Ticked(now_s, self._lost_until_s, self._is_rot)

    def _lose(self, until_s: float, *, is_rot: bool) -> None:
        """Record a loss. The most recent loss limits the window and gives the reason."""
        if until_s > self._lost_until_s:
            self._lost_until_s, self._is_rot = until_s, is_rot

    def _append(self, entries: list[Entry]) -> None:
        """Append and sync entries. After an error none of them survives the next successful append."""
        self._log.append(decisions.written(entries))
        self._written_s = entries[-1].observed_s

    def _path(self, number: int, suffix: str) -> Path:
        return self._root / f"{number:010d}.{suffix}"

    def _make_root(self) -> None:
        self._root.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
        DISK.sync_directory(self._root.parent)

    def _load(self, extent_min: Extent) -> None:
        self._make_root()
        for draft in drafts_in(self._root):
            draft.unlink()
        logs, tables = self._numbers("log"), self._numbers("table")
        is_sound = bool(logs) or not tables
        for number in logs[:-1]:
            self._path(number, "log").unlink()
        for number in tables:
            if logs and number >= logs[-1]:
                self._path(number, "table").unlink()
            else:
                is_sound = self._open_table(number) and is_sound
        if logs:
            is_sound = self._replay(logs[-1]) and is_sound
        is_sound = self._reaches(extent_min) and is_sound
        is_sound = self._is_of_this_key(has_files=bool(logs or tables)) and is_sound
        self._observed_s = max([self._observed_s, *(table.header.last_s for table in self._frozen.values())])
        if not is_sound:
            self._lose(self._observed_s, is_rot=True)
        if not (logs and is_sound):
            self._rotate_from(max([extent_min.number, *logs, *tables]))
        self._key.begin()

    def _reaches(self, extent_min: Extent) -> bool:
        if self.extent >= extent_min:
            return True
        limited.error("redelivery: cut", "redelivery log is shorter than it was on the disk before")
        return False

    def _is_of_this_key(self, *, has_files: bool) -> bool:
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
        return sorted(int(path.stem) for path in self._root.glob(f"*.{suffix}") if path.stem.isdigit())

    def _open_table(self, number: int) -> bool:
        path = self._path(number, "table")
        try:
            self._frozen[number] = FrozenTable.open(path)
        except NotATable as error:
            limited.error("redelivery: rot", "redelivery table is damaged", path=str(path), error=str(error))
            path.unlink()
            return False
        return True

    def _replay(self, number: int) -> bool:
        """Read the newest log. A torn tail, which was never synced, is cut off."""
        path = self._path(number, "log")
        content = path.read_bytes()
        log = decisions.read(content)
        if log.good != content:
            write_durably(path, log.good)
        self._number, self._log = number, AppendLog(path, len(log.good))
        for entry in log.entries:
            self._apply(entry)
        self._growing_since_s = log.entries[0].observed_s if log.entries else self._observed_s
        self._written_s = self._observed_s
        if log.is_rotten or not log.entries:
            limited.error("redelivery: rot", "redelivery log is damaged", path=str(path))
            return False
        return True

    def _rotate_from(self, number: int) -> None:
        """Begin a new log when there is none, or none that is undamaged."""
        self._number = number
        self._rotate(self._observed_s)

    def _apply(self, entry: Entry) -> None:
        self._observed_s = max(self._observed_s, entry.observed_s)
        if isinstance(entry, Ticked):
            self._lose(entry.lost_until_s, is_rot=entry.is_rot)
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
