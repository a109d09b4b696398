"""Watchdog: detects a writer thread that hangs in the store, so that the process is replaced."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from receiver.errors import OperatorError

MARGIN_S = 300.0
"""Margin in addition to the INSERT timeout. Longer than any retry pause and any query."""


class WriterHangs(OperatorError):  # noqa: N818 - a verdict, as its base
    """The writer hangs in a call of the store. The next process counts the rows of its last segment."""

    exit_code: ClassVar[int] = 1


class Watchdog:
    """Time of the writer's last heartbeat. The watchdog starts with the first heartbeat."""

    def __init__(self, now: Callable[[], float], *, silence_s_max: float) -> None:
        self._now = now
        self._silence_s_max = silence_s_max
        self._beat_at_s: float | None = None

    def beat(self) -> None:
        """Record a heartbeat. Called on the writer's thread."""
        self._beat_at_s = self._now()

    def stop(self) -> None:
        """Stop checking the writer."""
        self._beat_at_s = None

    def check(self) -> None:
        """Raise `WriterHangs` if the last heartbeat is too old."""
        # Read once: the writer's thread may set it to `None` between two reads.
        beat_at_s = self._beat_at_s
        silent_s = 0.0 if beat_at_s is None else self._now() - beat_at_s
        if silent_s > self._silence_s_max:
            raise WriterHangs(
                f"writer was silent for {silent_s:.0f} s; expected the store to return "
                f"within {self._silence_s_max:.0f} s"
            )
