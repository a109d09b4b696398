"""Results of the query benchmarks, as stored in query.json. A run replaces the cases that it measured."""

from __future__ import annotations

import msgspec

from benchmarks.results_file import ResultsFile
from benchmarks.store.tables import Name


class Timing(msgspec.Struct):
    """CPU time of the process with the engine, and wall-clock time, of one answer."""

    cpu_ms: float
    wall_ms: float


class Measured(msgspec.Struct):
    """A question on one table."""

    lines: int
    cold: Timing
    """The first time in a new process, after the engine's caches were dropped."""
    warm: list[Timing]

    @property
    def warm_cpu_ms(self) -> list[float]:
        """CPU time of each warm run."""
        return [timing.cpu_ms for timing in self.warm]


class CaseResult(msgspec.Struct):
    """A case on both tables."""

    name: str
    goal_ms: float | None
    tables: dict[Name, Measured]


class SizeResult(msgspec.Struct):
    """All cases with a number of spans and projects."""

    spans: int
    projects: int
    machine: str
    engine: str
    load: float
    """Load average of the machine at the end: what other processes ran."""
    cases: dict[str, CaseResult] = msgspec.field(default_factory=dict)
    """Case by name, in the order of the page."""


class IngestPlan(msgspec.Struct, frozen=True):
    """Load of the part `ingest`."""

    stored_spans: int
    rate: float
    """Spans per second."""
    seconds: float
    """Duration of a round."""
    rounds: int


class IngestLatency(msgspec.Struct):
    """Acknowledgements of one round."""

    clients: int
    """Number of clients that ask heavy questions."""
    requests: int
    p50_ms: float
    p99_ms: float
    max_ms: float
    answers: int
    """Complete answers to questions."""
    refused: int
    sync_p99_ms: float
    """Of a small write with its sync on the same disk, meanwhile, without the receiver."""


class Ingest(msgspec.Struct):
    """Result of the part `ingest`."""

    machine: str
    load: float
    """Load average of the machine before the first round."""
    plan: IngestPlan
    rounds: list[IngestLatency]


class Results(ResultsFile):
    """Content of query.json."""

    sizes: dict[str, SizeResult] = msgspec.field(default_factory=dict)
    """Results by `SPANS/PROJECTS`."""
    ingest: Ingest | None = None

    def add(self, measured: SizeResult) -> None:
        """Replace the measured cases, and keep the others of this size."""
        earlier = self.sizes.get(f"{measured.spans}/{measured.projects}")
        if earlier:
            measured.cases = {**earlier.cases, **measured.cases}
        self.sizes[f"{measured.spans}/{measured.projects}"] = measured
