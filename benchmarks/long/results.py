"""What was measured, as long.json keeps it; a run replaces its own part and leaves the other."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

Stage = Literal["empty", "filling", "full", "restarted", "draining", "drained"]
"""Of a backlog, in this order. `restarted`: full, after a kill and a start."""


class Process(msgspec.Struct):
    """One process of the receiver, at one moment."""

    rss_bytes: int
    peak_bytes: int
    """Of its memory, since it started, or since draining began."""
    descriptors: int
    threads: int


class Slice(msgspec.Struct, kw_only=True):
    """Some seconds of load, and the receiver when they had ended."""

    at_s: float
    """When it ended, since the receiver was started."""
    idle_s: float
    """Of it, without load: the load harness starts and ends."""
    spans: int
    """Acknowledged."""
    spans_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    disk_p50_ms: float | None = None
    """Of a write and a sync by somebody else on the same disk meanwhile."""
    disk_p99_ms: float | None = None
    answers: dict[str, int]
    journal_bytes: int
    processes: dict[str, Process]
    """By role."""


class About(msgspec.Struct):
    """What ran where."""

    machine: str
    versions: str
    command: str
    beside: str = ""
    """What else ran on the machine meanwhile, if that is known."""


class Run(msgspec.Struct, kw_only=True):
    """What both parts say of themselves."""

    about: About
    acknowledged: int = 0
    stored: int = 0
    """Rows in the sink at last. An INSERT that was sent twice counts twice there."""
    ended: str = ""
    """Why it ended early; empty: it did not."""


class Growth(Run, kw_only=True):
    """A steady load for long."""

    rate: float
    minutes: float
    slice_s: float
    slices: list[Slice] = msgspec.field(default_factory=list)


class Backlog(Run, kw_only=True):
    """A journal that fills because nothing can be stored, and drains again."""

    bytes_wanted: float
    rate: float
    """Spans a second where the load is a low one."""
    slice_s: float
    stages: dict[Stage, list[Slice]] = msgspec.field(default_factory=dict)
    """`filling` as fast as it is answered, all others under the low load."""
    drain_s: float | None = None
    drained_spans: int = 0
    """Stored in that time."""
    orphans_s: dict[str, float] = msgspec.field(default_factory=dict)
    """`empty` and `full`: from the kill of the supervisor until its children had ended by themselves."""
    first_200_s: dict[str, float] = msgspec.field(default_factory=dict)
    """`empty` and `full`: from the start after that to the first 200."""


class Results(msgspec.Struct):
    """All of it."""

    growth: Growth | None = None
    backlog: Backlog | None = None

    @classmethod
    def read(cls, path: Path) -> Results:
        """What is there; nothing yet is ordinary."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Keep it."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
