"""What was measured, as store.json keeps it; a run replaces its own part and leaves the other."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.store.tables import Name


class Table(msgspec.Struct):
    """One table at one size."""

    rows: int = 0
    disk_bytes: int = 0
    insert_cpu_s: list[float] = msgspec.field(default_factory=list)
    """By segment."""
    insert_rows: list[int] = msgspec.field(default_factory=list)
    merge_cpu_s: float = 0.0
    question_cpu_ms: dict[str, list[float]] = msgspec.field(default_factory=dict)
    """By run."""
    question_rows: dict[str, int] = msgspec.field(default_factory=dict)
    """Rows that came back."""

    @property
    def insert_cpu_s_per_million(self) -> list[float]:
        """By segment, cheapest first."""
        return sorted(
            cpu_s / rows * 1e6 for cpu_s, rows in zip(self.insert_cpu_s, self.insert_rows, strict=True)
        )

    @property
    def bytes_per_span(self) -> float:
        """Merged."""
        return self.disk_bytes / max(self.rows, 1)


class Moment(msgspec.Struct):
    """How the store stood while it was fed."""

    at_s: float
    rows: int
    queued: int
    """Segments that wait to be inserted."""
    parts: int
    parts_of_today_max: int
    """Of the partition that has most: the engine delays INSERTs at 1,000."""
    merges: int
    merging_rows: int
    """Of the merges under way."""
    merged_rows: int
    """By all merges so far, the companion's too."""
    disk_bytes: int
    cpu_s: float


class Sustained(msgspec.Struct):
    """A long feed at a rate."""

    spans_per_s: float
    duration_s: float
    insert_ms: list[float]
    """Median, 99th percentile, longest."""
    moments: list[Moment]
    verdict: str
    machine: str
    engine: str


class Results(msgspec.Struct):
    """All of it."""

    machine: str = ""
    engine: str = ""
    sizes: dict[str, dict[Name, Table]] = msgspec.field(default_factory=dict)
    """By spans."""
    fed: dict[str, Sustained] = msgspec.field(default_factory=dict)
    """By spans a second."""

    @classmethod
    def read(cls, path: Path) -> Results:
        """What is there; nothing yet is ordinary."""
        return msgspec.json.decode(path.read_bytes(), type=cls) if path.exists() else cls()

    def write(self, path: Path) -> None:
        """Keep it."""
        path.write_bytes(msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n")
