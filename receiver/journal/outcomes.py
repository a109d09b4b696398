"""Outcomes of recently stored segments, for intakes that answer only after the spans are stored.

    DATA/outcomes/<segment>     written by the writer just before it deletes the segment

Invariant: a missing segment without such a file was not deleted by the writer.
Never: syncs. After a power cut no sender waits for the answer any more.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from receiver.durable.files import DIRECTORY_MODE, DISK, opened, write_all

if TYPE_CHECKING:
    from pathlib import Path

    from receiver.model import SegmentId

OUTCOMES_MAX = 1_000
"""Number of files kept: an intake reads them within 50 ms, and a writer deletes a few segments a second."""


class SegmentOutcome(msgspec.Struct, frozen=True):
    """Outcome of the rows of a segment."""

    dead_rows: dict[str, int] = {}
    """Digest of a delivery → number of its rows that became dead letters."""
    is_incomplete: bool = False
    """Other rows are not stored and their deliveries are unknown. A retried delivery will be stored."""


STORED = SegmentOutcome()


class SegmentOutcomes:
    """The outcomes directory."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._names: deque[str] | None = None

    def write(self, segment: SegmentId, outcome: SegmentOutcome) -> None:
        """Write the outcome of a segment and delete the oldest files. Raises `OSError`."""
        if self._names is None:
            self._directory.mkdir(mode=DIRECTORY_MODE, parents=True, exist_ok=True)
            self._names = deque(sorted(DISK.names(self._directory), key=self._modified_ns))
        path = self._directory / str(segment)
        path.unlink(missing_ok=True)
        with opened(DISK, path, new=True) as fd:
            write_all(DISK, fd, msgspec.json.encode(outcome), 0)
        self._names.append(path.name)
        while len(self._names) > OUTCOMES_MAX:
            (self._directory / self._names.popleft()).unlink(missing_ok=True)

    def read(self, segment: SegmentId) -> SegmentOutcome | None:
        """Return the outcome of a deleted segment, or `None` if the writer did not delete it."""
        with suppress(OSError, msgspec.DecodeError):
            return msgspec.json.decode((self._directory / str(segment)).read_bytes(), type=SegmentOutcome)
        return None

    def _modified_ns(self, name: str) -> int:
        return (self._directory / name).lstat().st_mtime_ns
