"""Outcomes of recently stored segments, for intakes that answer only after the spans are stored.

    DATA/outcomes/<segment>     written by the writer just before it deletes the segment

Invariant: a missing segment without such a file was not deleted by the writer.
Never: syncs an outcome, because after a power failure no sender waits for the answer any more.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from receiver.durable.files import DISK, make_directories, opened, unlink_if_exists, write_all

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.model import SegmentId

OUTCOMES_MAX = 1_000
"""Number of files kept: an intake reads them within 50 ms, and a writer deletes a few segments a second."""


class SegmentOutcome(msgspec.Struct, frozen=True):
    """Outcome of the rows of a segment."""

    dead_rows: dict[str, int] = {}
    """Number of rows that became dead letters, by digest of the delivery."""
    is_incomplete: bool = False
    """Whether rows of unknown deliveries are not stored either. A retried delivery will be stored."""


STORED = SegmentOutcome()


class SegmentOutcomes:
    """The outcomes directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: deque[str] | None = None

    def write(self, segment: SegmentId, outcome: SegmentOutcome) -> None:
        """Write the outcome of a segment and delete the oldest files. Raises `OSError`."""
        if self._names is None:
            make_directories(self._directory)
            # By time of writing, so that files of an earlier process are deleted first.
            self._names = deque(sorted(DISK.names(self._directory), key=self._modified_ns))
        path = self._directory / str(segment)
        # A writer that was killed before it deleted the segment may have left this file.
        unlink_if_exists(path)
        # Without a rename: intakes read the file only after the segment is gone, which happens later.
        with opened(DISK, path, new=True) as fd:
            write_all(DISK, fd, msgspec.json.encode(outcome), 0)
        self._names.append(path.name)
        while len(self._names) > OUTCOMES_MAX:
            unlink_if_exists(self._directory / self._names.popleft())

    def read(self, segment: SegmentId) -> SegmentOutcome | None:
        """Return the outcome of a deleted segment, or `None` if the writer did not delete it."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode(DISK.read(self._directory / str(segment)), type=SegmentOutcome)
        return None

    def _modified_ns(self, name: str) -> int:
        return (self._directory / name).lstat().st_mtime_ns
