"""Notes of the writer about segments, which the intakes read: outcomes, and deferred segments.

    DATA/outcomes/<segment>     outcome of a segment, written just before the writer deletes it, for intakes
                                that answer only after the spans are stored
    DATA/deferred/<segment>     an empty file for each segment that had a turn and is not stored yet, so that
                                later segments go first. Any other segment shows that the writer is behind

Invariant: a missing segment without an outcome was not deleted by the writer.
Never: syncs a note, because after a power failure no sender waits and the writer defers segments again.
"""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from receiver.durable.files import DISK, make_directories, opened, unlink_if_exists, write_all
from receiver.logs import limited

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from receiver.durable.files import Files
    from receiver.model import SegmentId

OUTCOMES_MAX = 1_000
"""Number of files kept: an intake reads them within 50 ms, and a writer deletes a few segments a second."""


class SegmentOutcome(msgspec.Struct, frozen=True):
    dead_rows: dict[str, int] = {}
    """Number of rows that became dead letters, by digest of the delivery."""
    is_incomplete: bool = False
    """Whether rows of unknown deliveries are not stored either. A retried delivery will be stored."""


STORED = SegmentOutcome()


class SegmentOutcomes:
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


class DeferredSegments:
    def __init__(self, data_dir: Path, files: Files = DISK) -> None:
        self._directory = data_dir / "deferred"
        self._files = files
        self._names: set[str] | None = None
        """Names of the existing files; `None` if the writer must list them first."""

    def publish(self, segments: Iterable[SegmentId]) -> None:
        """Replace all deferred segments. An error is only logged: it delays later spans and loses none."""
        names = {str(segment) for segment in segments}
        with self._logged_errors():
            for name in sorted(self._listed() - names):
                unlink_if_exists(self._directory / name, self._files)
                self._listed().discard(name)
            for name in sorted(names - self._listed()):
                self._create(name)

    def add(self, segment: SegmentId) -> None:
        """Add a deferred segment. An error is only logged."""
        with self._logged_errors():
            if str(segment) not in self._listed():
                self._create(str(segment))

    def has(self, segment: SegmentId) -> bool:
        """Return whether the writer has deferred this segment. False if the disk cannot be read."""
        try:
            return self._files.size_bytes(self._directory / str(segment)) is not None
        except OSError:
            return False

    def _listed(self) -> set[str]:
        if self._names is None:
            make_directories(self._directory, self._files)
            self._names = set(self._files.names(self._directory))
        return self._names

    def _create(self, name: str) -> None:
        with opened(self._files, self._directory / name, new=True):
            self._listed().add(name)

    @contextmanager
    def _logged_errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # The failed call may have changed the directory, so it is listed again.
            self._names = None
            limited.warning("writer: deferred", "deferred segments cannot be published", error=error.strerror)
