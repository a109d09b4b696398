"""Results of the storage benchmarks, as stored in store.json. A run replaces only its own part."""

from __future__ import annotations

import msgspec

from benchmarks.results_file import ResultsFile
from benchmarks.store.tables import Name


class Table(msgspec.Struct):
    """Results of a table with a number of spans."""

    rows: int = 0
    disk_bytes: int = 0
    insert_cpu_s: list[float] = msgspec.field(default_factory=list)
    """CPU time of each segment's INSERT."""
    insert_rows: list[int] = msgspec.field(default_factory=list)
    merge_cpu_s: float = 0.0
    query_cpu_ms: dict[str, list[float]] = msgspec.field(name="question_cpu_ms", default_factory=dict)
    """CPU time of each query by run."""
    query_rows: dict[str, int] = msgspec.field(name="question_rows", default_factory=dict)
    """Rows that each query returned."""

    @property
    def insert_cpu_s_per_million(self) -> list[float]:
        """Return the cost of every segment's INSERT, lowest first."""
        return sorted(
            cpu_s / rows * 1e6 for cpu_s, rows in zip(self.insert_cpu_s, self.insert_rows, strict=True)
        )

    @property
    def bytes_per_span(self) -> float:
        """Disk space per span after all merges."""
        return self.disk_bytes / max(self.rows, 1)


class Moment(msgspec.Struct):
    """State of the store at a time during the run."""

    at_s: float
    rows: int
    queued: int
    """Segments waiting to be inserted."""
    parts: int
    parts_of_today_max: int
    """Parts of the largest partition; the engine delays INSERTs at 1,000."""
    merges: int
    merging_rows: int
    """Rows of the running merges."""
    merged_rows: int
    """Rows written by all merges so far, including those of the companion table."""
    disk_bytes: int
    cpu_s: float


class Sustained(msgspec.Struct):
    """Result of inserting at a rate for a long time."""

    spans_per_s: float
    duration_s: float
    insert_ms: list[float]
    """Median, 99th percentile and maximum."""
    moments: list[Moment]
    verdict: str
    machine: str
    engine: str


class Results(ResultsFile):
    """Content of store.json."""

    machine: str = ""
    engine: str = ""
    sizes: dict[str, dict[Name, Table]] = msgspec.field(default_factory=dict)
    """Results by number of spans."""
    sustained: dict[str, Sustained] = msgspec.field(name="fed", default_factory=dict)
    """Results by spans per second."""
