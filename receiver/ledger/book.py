"""Ledger in memory: sums by drain, project and hour, and the contribution of each unsettled segment.

Memory is bounded, but every span stays counted. When a limit is exceeded, lines are merged: new projects of
an hour that has too many into project `(other)`, then all projects of the oldest hours, then the oldest hours
of a drain. Hours come from the time of receipt, never from the current time, so a clock step merges nothing.

Invariant: the same entries in the same order give the same sums, after every restart. Never: reads or writes
files.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from receiver.durable.append_log import NO_EXTENT
from receiver.ledger import log_codec
from receiver.ledger.line_sums import OTHER, Counts
from receiver.ledger.log_codec import Begun, Entry, Key, SegmentEntry, Settled
from receiver.model import Heading
from receiver.settings import Ledger as Limits

EPOCHS_MAX = 1_000
"""Number of epochs to remember. With them `--verify` recognises this receiver's rows in a shared table."""


class Book:
    def __init__(self, limits: Limits) -> None:
        self.complete_from_hour = 0
        self.lines: dict[Heading, Counts] = {}
        self.open: dict[Key, dict[Heading, Counts]] = {}
        """Lines of each unsettled segment, also included in `lines`. A new record replaces them."""
        self.epochs: dict[int, int] = {}
        self.window = NO_EXTENT
        """Extent that the deduplication window's log has reached. A shorter log has lost entries."""
        self._limits = limits
        # Not 0, because hour 0 holds the merged hours.
        self._kept_from_hour = 1
        self._named_from_hour = 1
        self._lines_in: Counter[int] = Counter()

    @property
    def whole_from_hour(self) -> int:
        """First hour from which on no hour was merged or lost history."""
        return max(self.complete_from_hour, self._kept_from_hour if self._kept_from_hour > 1 else 0)

    def apply(self, entry: Entry) -> None:
        if not isinstance(entry, Settled):
            self.window = max(self.window, entry.window)
        if isinstance(entry, Begun):
            self.complete_from_hour = max(self.complete_from_hour, entry.complete_from_hour)
            self._kept_from_hour, self._named_from_hour = entry.kept_from_hour, entry.named_from_hour
            self.epochs = dict(entry.epochs)
        elif isinstance(entry, Settled):
            for heading, counts in entry.rows:
                self._add(heading, counts)
        else:
            self._apply_segment_entry(entry)
        # After every entry, also when a log is read, so that a restart merges the same lines.
        self._fold()

    def holding(self, heading: Heading, stored: int) -> Heading:
        """Return the heading under which spans of a project were counted as stored.

        It is `(other)` if the hour had too many projects then, also if the limit was raised since.
        """
        has_line = self.lines.get(heading, Counts()).stored >= stored
        return heading if has_line else heading._replace(project=OTHER)

    def entries(self) -> Iterator[Entry]:
        """Yield entries from which an equal book can be built."""
        yield Begun(
            self.complete_from_hour, self._kept_from_hour, self._named_from_hour, self.epochs, self.window
        )
        # `Settled` holds the sums without the unsettled segments, which follow as separate entries.
        rest = dict(self.lines)
        for lines in self.open.values():
            for heading, counts in lines.items():
                # The lines may have been merged after the segment was recorded.
                at = self._folded(heading)
                rest[at] = rest.get(at, Counts()).minus(counts)
        yield from log_codec.settled({heading: counts for heading, counts in rest.items() if any(counts)})
        for key, lines in self.open.items():
            yield log_codec.segment_entry(key, lines)

    def settle(self, keys: Iterable[Key]) -> None:
        """Forget which lines came from deleted segments, which cannot be recorded again."""
        for key in keys:
            self.open.pop(key, None)

    def _apply_segment_entry(self, entry: SegmentEntry) -> None:
        key = log_codec.key_of(entry)
        # An earlier entry of this segment is undone first: an entry sets the segment's counts, it does not
        # add.
        for heading, counts in self.open.pop(key, {}).items():
            self._add(self._folded(heading), Counts().minus(counts))
        placed: dict[Heading, Counts] = {}
        for heading, counts in entry.rows:
            at = self._place(heading)
            self._add(at, counts)
            # Kept under the heading that counts it, so that a later entry is undone in the same line.
            placed[at] = placed.get(at, Counts()).plus(counts)
            # A deletion has no epoch.
            for epoch in (entry.epoch, entry.parts_epoch) if key.part != log_codec.DELETION else ():
                self._add_epoch(epoch, heading.hour)
        self.open[key] = placed

    def _add_epoch(self, epoch: int | None, hour: int) -> None:
        if epoch is None:
            return
        self.epochs[epoch] = max(hour, self.epochs.get(epoch, 0))
        if len(self.epochs) > EPOCHS_MAX:
            oldest = min(self.epochs, key=lambda epoch: self.epochs[epoch])
            # Rows of a forgotten epoch look like those of another receiver, so its hours can no longer be
            # verified.
            self.complete_from_hour = max(self.complete_from_hour, self.epochs.pop(oldest) + 1)

    def _add(self, heading: Heading, counts: Counts) -> None:
        before = self.lines.get(heading)
        # Hour 0 holds the merged hours and does not count towards the limits.
        if before is None and heading.hour:
            self._lines_in[heading.hour] += 1
        self.lines[heading] = (before or Counts()).plus(counts)

    def _place(self, heading: Heading) -> Heading:
        """Return the heading that counts these spans: project `(other)` if the hour has too many."""
        at = self._folded(heading)
        is_full = self._lines_in[at.hour] >= self._limits.projects_max if at.hour else False
        return at._replace(project=OTHER) if is_full and at not in self.lines else at

    def _folded(self, heading: Heading) -> Heading:
        if heading.hour < self._kept_from_hour:
            return Heading(heading.drain, OTHER, 0)
        return heading._replace(project=OTHER) if heading.hour < self._named_from_hour else heading

    def _fold(self) -> None:
        """Merge the oldest lines while there are too many."""
        while len(self._lines_in) > self._limits.hours_max:
            self._merge_hour(min(self._lines_in))
        while self._lines_in.total() > self._limits.lines_max:
            # Merge projects before hours, so that recent and old hours stay separate as long as possible.
            named = [hour for hour in self._lines_in if hour >= self._named_from_hour]
            if named:
                self._named_from_hour = min(named) + 1
                self._refold(min(named))
            else:
                self._merge_hour(min(self._lines_in))

    def _merge_hour(self, hour: int) -> None:
        self._kept_from_hour = hour + 1
        self._refold(hour)

    def _refold(self, hour: int) -> None:
        """Move the lines of an hour to the headings that count them after a merge."""
        # First, because `_add` counts the moved lines again.
        self._lines_in.pop(hour)
        for heading in [heading for heading in self.lines if heading.hour == hour]:
            self._add(self._folded(heading), self.lines.pop(heading))
