"""The redelivery window: what was accepted lately, by digest, and what is about to be.

    DATA/redelivery/0000000012.log       the newest generation: decisions, appended and synced
    DATA/redelivery/0000000011.table     older ones: their digests alone, mapped, never written again

    DATA/redelivery.begun                which digest key they were made with: see `window_key`

    decided    before a segment's first INSERT: nobody else may store what it keeps until it ended
    ended      after the count, before the unlink: its digests are known from now on

Time is what the writer saw pass: monotonic, carried on in the log, so that no step of a clock and no pause
of the receiver makes an entry older. A generation is closed by age or by count, and goes as a whole.

Keeps: a digest is known only after its rows were counted in the store. What had to be forgotten too early is
told (`reach_s`, `shortfall`). Never: a second thread.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from pathlib import Path

from receiver.journal.files import DIRECTORY_MODE, DISK, drafts_in, write_durably
from receiver.logs import limited
from receiver.model import SegmentId
from receiver.settings import Redelivery
from receiver.storage import decisions
from receiver.storage.appended import NO_EXTENT, AppendedLog, Extent
from receiver.storage.decisions import Decided, Ended, Entry, Ticked
from receiver.storage.digests import DIGEST_BYTES, Fresh, Frozen, NotATable
from receiver.storage.window_key import WindowKey

GENERATIONS = 12
"""In one window: an entry stays for the window and at most a twelfth of it longer."""
TICK_S = 60.0
"""Observed time that a crash may forget: entries then live that much longer."""


@dataclass(frozen=True, slots=True)
class Standing:
    """What was decided about a segment that is still in the journal."""

    verdicts: bytes
    kept: frozenset[bytes]
    """What it is about to store; nothing once it ended."""
    is_pending: bool


class Window:
    """Everything known about deliveries that were accepted before. It belongs to the writer."""

    def __init__(
        self,
        root: Path,
        limits: Redelivery,
        monotonic_s: Callable[[], float],
        *,
        apart: frozenset[str] = frozenset(),
        extent_min: Extent = NO_EXTENT,
    ) -> None:
        """`extent_min`: how far its log was seen on the disk; less was taken from it since."""
        self.apart = apart
        """Drains that want no part in this: `dedupe = false`. May be replaced at any time."""
        self._root = root
        self._limits = limits
        self._monotonic_s = monotonic_s
        self._seen_s = monotonic_s()
        self._observed_s = 0.0
        self._lost_until_s = -math.inf
        self._is_rot = False
        self._written_s = 0.0
        self._standing: dict[SegmentId, Standing] = {}
        self._fresh = Fresh()
        self._fresh_since_s = 0.0
        self._frozen: dict[int, Frozen] = {}
        self._number = 0
        self._log = AppendedLog(root, 0)
        self._key = WindowKey(root)
        self._load(extent_min)

    def __len__(self) -> int:
        return len(self._fresh) + sum(map(len, self._frozen.values()))

    @property
    def observed_s(self) -> float:
        """The window's clock."""
        now_s = self._monotonic_s()
        self._observed_s += max(0.0, now_s - self._seen_s)
        self._seen_s = now_s
        return self._observed_s

    @property
    def extent(self) -> Extent:
        """How far its log is on the disk."""
        return Extent(self._number, self._log.bytes_good)

    @property
    def reach_s(self) -> float:
        """How far back a redelivery is recognised: the setting, or less when entries had to go."""
        return max(0.0, min(self._limits.window_s, self.observed_s - self._lost_until_s))

    @property
    def shortfall(self) -> str:
        """Why the window reaches less far than it should; empty: it does not."""
        if self.reach_s >= self._limits.window_s:
            return ""
        why = (
            "the record of earlier ones was damaged or missing, or the digest key was replaced"
            if self._is_rot
            else f"redelivery.entries_max is {self._limits.entries_max}, {len(self)} are held"
        )
        reach = f"redeliveries are recognised for {self.reach_s:.0f} s"
        return f"{reach}; expected {self._limits.window_s:.0f} s ({why})"

    def known(self, digests: Sequence[bytes]) -> set[bytes]:
        """Tell of which of these deliveries rows were counted in the store."""
        wanted = b"".join(digests)
        tables: list[Fresh | Frozen] = [self._fresh, *self._frozen.values()]
        return {digests[number] for table in tables for number in table.known(wanted)}

    def promised_by(self, digest: bytes, *, but_by: SegmentId) -> SegmentId | None:
        """Tell which other segment is about to store it, and may have, or may not."""
        for segment, one in self._standing.items():
            if digest in one.kept and segment != but_by:
                return segment
        return None

    def standing(self, segment: SegmentId) -> Standing | None:
        """What was decided about this segment; none: nothing, so no INSERT of it was ever sent."""
        return self._standing.get(segment)

    def decide(self, segment: SegmentId, kept: Iterable[bytes], verdicts: bytes) -> None:
        """Note, durably, what a segment will store, before its first INSERT."""
        entry = Decided(self.observed_s, segment.epoch, segment.seq, b"".join(kept), verdicts)
        self._append([entry])
        self._apply(entry)

    def end(self, segment: SegmentId, digests: Iterable[bytes]) -> None:
        """Note, durably, that a segment's rows were counted."""
        entry = Ended(self.observed_s, segment.epoch, segment.seq, b"".join(digests))
        self._append([entry])
        self._apply(entry)

    def keep_word(self, segment: SegmentId) -> None:
        """End a segment whose end was never noted, with all it promised."""
        standing = self.standing(segment)
        if standing is not None and standing.is_pending:
            self.end(segment, standing.kept)

    def forget(self, segment: SegmentId) -> None:
        """Let go of a segment that was unlinked, durably."""
        self._standing.pop(segment, None)

    def retain(self, present: AbstractSet[SegmentId]) -> None:
        """Let go of segments that are not in the journal any more."""
        for segment in self._standing.keys() - present:
            self.forget(segment)

    def tick(self) -> None:
        """Let time pass: close a generation that is full or old, drop what is too old or too much."""
        now_s = self.observed_s
        try:
            if self._is_due(now_s):
                self._rotate(now_s)
            elif now_s - self._written_s >= TICK_S:
                self._append([self._ticked(now_s)])
            self._expire(now_s)
        except OSError as reason:
            limited.warning("redelivery: disk", "redelivery log cannot be written", why=reason.strerror)

    def put_back(self) -> bool:
        """Write files again from memory if some were removed. Returns whether any had been."""
        gone = [number for number in self._frozen if not self._path(number, "table").exists()]
        is_removed = bool(gone) or not self._log.is_there
        if is_removed:
            self._make_root()
        is_key_changed, is_key_replaced = self._key.restore()
        if is_key_replaced:
            self._lose(self.observed_s, is_rot=True)
        if not (is_removed or is_key_replaced):
            return is_key_changed
        for number in gone:
            self._frozen[number].write(self._path(number, "table"))
        self._rotate(self.observed_s)
        return True

    def close(self) -> None:
        """Give the descriptor back."""
        self._log.close()

    def _is_due(self, now_s: float) -> bool:
        is_full = len(self._fresh) >= max(1, self._limits.entries_max // GENERATIONS)
        return is_full or now_s - self._fresh_since_s >= self._limits.window_s / GENERATIONS

    def _rotate(self, now_s: float) -> None:
        """Freeze the newest generation and begin the next. Killed between any two steps, nothing is lost."""
        if len(self._fresh):
            table = self._path(self._number, "table")
            self._fresh.write(table, first_s=self._fresh_since_s, last_s=now_s)
            self._frozen[self._number] = Frozen.open(table)
        self._begin(self._number + 1, now_s)
        self._path(self._number - 1, "log").unlink(missing_ok=True)

    def _begin(self, number: int, now_s: float) -> None:
        """Start a log with what is still open."""
        content = decisions.written([self._ticked(now_s), *self._carried(self._standing, now_s)])
        write_durably(self._path(number, "log"), content)
        self.close()
        self._number, self._log = number, AppendedLog(self._path(number, "log"), len(content))
        self._fresh, self._fresh_since_s, self._written_s = Fresh(), now_s, now_s

    @staticmethod
    def _carried(standing: dict[SegmentId, Standing], now_s: float) -> Iterable[Entry]:
        for segment, one in standing.items():
            yield Decided(now_s, segment.epoch, segment.seq, b"".join(one.kept), one.verdicts)
            if not one.is_pending:
                yield Ended(now_s, segment.epoch, segment.seq, b"")

    def _expire(self, now_s: float) -> None:
        """Drop generations that are too old; and the oldest while there are too many entries."""
        room = self._limits.entries_max - max(1, self._limits.entries_max // GENERATIONS)
        for number in sorted(self._frozen):
            is_old = now_s - self._frozen[number].told.last_s > self._limits.window_s
            is_too_many = sum(map(len, self._frozen.values())) > room
            if not (is_old or is_too_many):
                return
            dropped = self._frozen.pop(number)
            if not is_old:
                self._lose(dropped.told.last_s, is_rot=False)
                self._append([self._ticked(now_s)])
                limited.warning("redelivery: window", "redelivery window is shortened", why=self.shortfall)
            self._path(number, "table").unlink(missing_ok=True)

    def _ticked(self, now_s: float) -> Ticked:
        return Ticked(now_s, self._lost_until_s, self._is_rot)

    def _lose(self, until_s: float, *, is_rot: bool) -> None:
        """Whatever was lost last says why the window reaches less far."""
        if until_s > self._lost_until_s:
            self._lost_until_s, self._is_rot = until_s, is_rot

    def _append(self, entries: list[Entry]) -> None:
        """Append and sync. When it raises, what was appended is gone before the next append succeeds."""
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
                is_sound = self._thaw(number) and is_sound
        if logs:
            is_sound = self._replay(logs[-1]) and is_sound
        is_sound = self._reaches(extent_min) and is_sound
        is_sound = self._is_of_this_key(has_files=bool(logs or tables)) and is_sound
        self._observed_s = max([self._observed_s, *(table.told.last_s for table in self._frozen.values())])
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
        loss = self._key.loss(has_files=has_files, is_empty=not (len(self) or self._standing))
        if loss:
            limited.error(
                "redelivery: lost",
                "redelivery window begins anew",
                path=str(self._root),
                error=loss,
                action="copies of deliveries accepted before are stored again",
            )
        return not loss

    def _numbers(self, suffix: str) -> list[int]:
        return sorted(int(path.stem) for path in self._root.glob(f"*.{suffix}") if path.stem.isdigit())

    def _thaw(self, number: int) -> bool:
        path = self._path(number, "table")
        try:
            self._frozen[number] = Frozen.open(path)
        except NotATable as reason:
            limited.error("redelivery: rot", "redelivery table is damaged", path=str(path), why=str(reason))
            path.unlink()
            return False
        return True

    def _replay(self, number: int) -> bool:
        """Read the newest log. What a crash left at its end was never relied on and is cut."""
        path = self._path(number, "log")
        content = path.read_bytes()
        log = decisions.read(content)
        if log.good != content:
            write_durably(path, log.good)
        self._number, self._log = number, AppendedLog(path, len(log.good))
        for entry in log.entries:
            self._apply(entry)
        self._fresh_since_s = log.entries[0].observed_s if log.entries else self._observed_s
        self._written_s = self._observed_s
        if log.is_rotten or not log.entries:
            limited.error("redelivery: rot", "redelivery log is damaged", path=str(path))
            return False
        return True

    def _rotate_from(self, number: int) -> None:
        """Begin a log where there is none, or none that could be read whole."""
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
            self._standing[segment] = Standing(entry.verdicts, kept, is_pending=True)
            return
        self._fresh.add(entry.digests)
        before = self._standing.get(segment)
        if before is not None:
            self._standing[segment] = Standing(before.verdicts, frozenset(), is_pending=False)


def _split(digests: bytes) -> list[bytes]:
    return [digests[at : at + DIGEST_BYTES] for at in range(0, len(digests), DIGEST_BYTES)]
