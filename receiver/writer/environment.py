"""External dependencies of the writer: clock, sleep, directories. Tests replace them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Stopping(Exception):  # noqa: N818 - not an error: `sleep` raises it to end the writer
    """The process is stopping, so the writer must not wait any longer."""


@dataclass(frozen=True, slots=True)
class Environment:
    """Clock, sleep, directories and settings of the writer. `sleep` may raise `Stopping`."""

    now: Callable[[], float]
    """Wall clock, seconds since 1970."""
    monotonic: Callable[[], float]
    """Clock of delays: a step of the wall clock must not change when the next turn is due."""
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    repair_dir: Path
    """Directory for temporary files: the rows of a piece as a segment, to be inserted."""
    retention_days: int
    heartbeat: Callable[[], None] = lambda: None
    """Watchdog heartbeat, called before and after every call that may hang."""
