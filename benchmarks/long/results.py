"""Results of the long benchmarks, as stored in long.json. A run replaces only its own part."""

from __future__ import annotations

from typing import Literal

import msgspec

from benchmarks.results_file import ResultsFile

Stage = Literal["empty", "filling", "full", "restarted", "draining", "drained"]
"""Stage of a backlog run, in this order. `restarted`: full, after a kill and a start."""


class Process(msgspec.Struct):
    """Resources of a process of the receiver at one time."""

    rss_bytes: int
    peak_bytes: int
    """Peak memory since it started, or since draining began."""
    descriptors: int
    threads: int


class Slice(msgspec.Struct, kw_only=True):
    """Result of some seconds of load, and the state of the receiver at their end."""

    at_s: float
    """Time of its end, since the receiver was started."""
    idle_s: float
    """Part of the slice without load, while the load harness starts and stops."""
    spans: int
    """Acknowledged spans."""
    spans_per_s: float
    p50_ms: float | None
    p99_ms: float | None
    disk_p50_ms: float | None = None
    """Latency of a write and a sync by the disk probe on the same disk."""
    disk_p99_ms: float | None = None
    answers: dict[str, int]
    journal_bytes: int
    processes: dict[str, Process]
    """By role."""


class About(msgspec.Struct):
    """Machine, versions and command of a run."""

    machine: str
    versions: str
    command: str
    concurrent_work: str = msgspec.field(name="beside", default="")
    """Other work on the machine during the run, if known."""


class Run(msgspec.Struct, kw_only=True):
    """Fields that both parts have."""

    about: About
    acknowledged: int = 0
    stored: int = 0
    """Rows in the sink at the end; the rows of an INSERT that was sent twice count twice."""
    error: str = msgspec.field(name="ended", default="")
    """Why the run ended early; empty if it was complete."""


class Growth(Run, kw_only=True):
    """Result of a steady load for a long time."""

    rate: float
    minutes: float
    slice_s: float
    slices: list[Slice] = msgspec.field(default_factory=list)


class Backlog(Run, kw_only=True):
    """Result of a journal that fills while the store hangs, and drains."""

    bytes_wanted: float
    rate: float
    """Spans per second of the low load."""
    slice_s: float
    stages: dict[Stage, list[Slice]] = msgspec.field(default_factory=dict)
    """`filling` has a closed-loop load, all other stages have the low load."""
    drain_s: float | None = None
    drained_spans: int = 0
    """Spans stored during `drain_s`."""
    orphans_s: dict[str, float] = msgspec.field(default_factory=dict)
    """`empty` and `full`: seconds from the kill of the supervisor until its children exited."""
    first_200_s: dict[str, float] = msgspec.field(default_factory=dict)
    """`empty` and `full`: seconds from the start after the kill to the first 200."""


class Results(ResultsFile):
    """Content of long.json."""

    growth: Growth | None = None
    backlog: Backlog | None = None
