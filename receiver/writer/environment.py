"""What the writer is told of the world: its clock, its sleep, its room; a test gives others."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


class Stopping(Exception):  # noqa: N818 - not an error: how `sleep` ends the writer
    """There is no time left to wait for anything."""


@dataclass(frozen=True, slots=True)
class Environment:
    """What the writer is told of the world. `sleep` may raise `Stopping`."""

    now: Callable[[], float]
    """Wall clock, seconds since 1970."""
    sleep: Callable[[float], None]
    jitter: Callable[[], float]
    repair_dir: Path
    """Where the segment of a single day lies while it is inserted."""
    retention_days: int
    alive: Callable[[], None] = lambda: None
    """Called before and after whatever may hang."""
