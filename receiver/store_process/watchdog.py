"""Whether the writer's thread still comes back from the store. A hung engine is mended by a new process."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from receiver.errors import OperatorError

MARGIN_S = 300.0
"""Beyond the time an INSERT may take: longer than any wait between two tries, or any question."""


class WriterHangs(OperatorError):  # noqa: N818 - a verdict, as its base
    """The writer did not come back from the store. The next process finds its segments in doubt."""

    exit_code: ClassVar[int] = 1


class Watchdog:
    """When the writer was last seen alive; it need not have begun."""

    def __init__(self, now: Callable[[], float], *, silence_s_max: float) -> None:
        self._now = now
        self._silence_s_max = silence_s_max
        self._beat_at_s: float | None = None

    def beat(self) -> None:
        """Say that the writer lives. Called on its own thread."""
        self._beat_at_s = self._now()

    def stop(self) -> None:
        """Expect no more."""
        self._beat_at_s = None

    def check(self) -> None:
        """Raise `WriterHangs` when it was silent for too long."""
        beat_at_s = self._beat_at_s
        silent_s = 0.0 if beat_at_s is None else self._now() - beat_at_s
        if silent_s > self._silence_s_max:
            raise WriterHangs(
                f"writer was silent for {silent_s:.0f} s; expected it back from the store "
                f"within {self._silence_s_max:.0f} s"
            )
