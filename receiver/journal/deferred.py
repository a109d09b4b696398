"""Deferred segments: had a turn of the writer and are not stored yet, so that later segments go first.

    DATA/deferred/<segment>     an empty file for each, written by the writer and read by the intakes

A segment that is not stored shows an intake that the writer is behind, unless the segment is deferred.

Never: syncs a file, because after a restart the writer defers the segment again.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from receiver.durable.files import DISK, make_directories, opened, unlink_if_exists
from receiver.logs import limited

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

    from receiver.durable.files import Files
    from receiver.model import SegmentId


class DeferredSegments:
    """The directory of deferred segments."""

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
