"""One measurement: start a peer with an empty sink, warm it up, load it, wait for the last row."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from benchmarks import sink as sinks
from benchmarks.peers import ROOT, Environment, MeasurementError, Peer, Running, make_certificate
from benchmarks.processes import Cores, Usage, UsageMeter, usage_of

WARM_UP_REQUESTS = 100
CATCH_UP_S = 90.0


@dataclass(frozen=True)
class Body:
    """A kind of request."""

    name: str
    encoding: str
    compression: str
    spans: int
    connections: int
    goal: float | None = None
    """Upper limit for CPU seconds per million spans."""
    uses_tls: bool = False

    @property
    def options(self) -> list[str]:
        """Command-line options for the load harness."""
        return [
            *("--encoding", self.encoding, "--compression", self.compression, "--spans", str(self.spans)),
            *("--connections", str(self.connections)),
            *["--insecure"][: self.uses_tls],
        ]


BODIES = (
    Body("protobuf, 520 spans", "protobuf", "none", 520, 16, 1.2),
    Body("protobuf, gzip", "protobuf", "gzip", 520, 16, 1.7),
    Body("JSON, 520 spans", "json", "none", 520, 16, 2.2),
    Body("JSON, gzip", "json", "gzip", 520, 16, 3.0),
    Body("protobuf, 50 spans", "protobuf", "none", 50, 32),
    Body("protobuf, 10 spans", "protobuf", "none", 10, 64, 3.0),
    Body("protobuf, 1 span", "protobuf", "none", 1, 64),
    Body("protobuf, 520 spans, TLS", "protobuf", "none", 520, 16, uses_tls=True),
    Body("protobuf, 10 spans, TLS", "protobuf", "none", 10, 64, uses_tls=True),
)
COMPRESSED_REQUESTS = 2_000
"""Request limit for compressed bodies: the load harness compresses them before the clock starts."""


@dataclass(frozen=True)
class Measurement:
    """Result of one run."""

    peer: str
    body: str
    spans: int
    """Stored in the sink during the measurement."""
    missing: int
    """Acknowledged, but not in the sink when the wait timed out."""
    elapsed_s: float
    spans_per_s: float
    user_s: float
    system_s: float
    by_role: dict[str, tuple[float, float]]
    """User and system CPU seconds."""
    peak_bytes: dict[str, int]
    latency_ms: dict[str, float | None]
    """By quantile; `None` if no request was answered."""
    answers: dict[str, int]
    settled_s: float
    """Time from the last acknowledgement until the last row was stored."""
    sink_bytes: int
    load_busy: float
    """Share of a core that the load harness used."""
    sink_busy: float

    @property
    def cpu_s_per_million(self) -> float:
        """User and system CPU seconds per million stored spans: the headline number."""
        return (self.user_s + self.system_s) / max(self.spans, 1) * 1e6

    def document(self) -> dict[str, Any]:
        """Return the entry for results.json."""
        return {**asdict(self), "cpu_s_per_million_spans": round(self.cpu_s_per_million, 4)}


@contextmanager
def started_with_sink(
    peer: Peer, cores: Cores, intakes: int = 1, *, uses_tls: bool = False
) -> Iterator[tuple[Running, sinks.Sink]]:
    """Start a peer and its sink, both empty."""
    with (
        tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as name,
        sinks.running(cores.others) as sink,
    ):
        directory = Path(name)
        certificate = make_certificate(directory) if uses_tls else None
        environment = Environment(directory, sink, cores.receiver, intakes, certificate=certificate)
        with peer.running(environment) as running:
            yield running, sink


@dataclass(frozen=True)
class RunOptions:
    """Options of one run."""

    cores: Cores
    duration_s: float
    intakes: int = 1
    options: tuple[str, ...] = ()
    """Additional options for the load harness."""
    during: Callable[[Running], AbstractContextManager[object]] = nullcontext
    """Context manager that is active during the load."""


def measure(peer: Peer, body: Body, run_options: RunOptions) -> Measurement:
    """Run one measurement."""
    cores = run_options.cores
    with started_with_sink(peer, cores, run_options.intakes, uses_tls=body.uses_tls) as (running, sink):
        warm = load(running.url, cores, [*body.options, "--requests", str(WARM_UP_REQUESTS)])
        sink.wait_for(warm["spans"], CATCH_UP_S)
        before, sink_before = sink.counts(), usage_of(sink.pid)
        meter = UsageMeter(running.roles)
        meter.begin()
        limits = ["--duration", str(run_options.duration_s)]
        if body.compression != "none":
            limits += ["--requests", str(COMPRESSED_REQUESTS)]
        with run_options.during(running):
            report = load(running.url, cores, [*body.options, *limits, *run_options.options])
        settled_s = sink.wait_for(before["rows"] + report["spans"], CATCH_UP_S)
        return _measurement(
            peer,
            body,
            report,
            meter,
            _SinkDelta(before, sink.counts(), usage_of(sink.pid) - sink_before, settled_s),
        )


@dataclass(frozen=True)
class _SinkDelta:
    before: dict[str, int]
    after: dict[str, int]
    used: Usage
    settled_s: float


def _measurement(
    peer: Peer, body: Body, report: dict[str, Any], meter: UsageMeter, sink_delta: _SinkDelta
) -> Measurement:
    used = meter.used()
    total = sum(used.values(), Usage())
    stored = sink_delta.after["rows"] - sink_delta.before["rows"]
    return Measurement(
        peer=peer.name,
        body=body.name,
        spans=stored,
        missing=max(0, report["spans"] - stored),
        elapsed_s=report["elapsed_s"],
        spans_per_s=report["spans_per_s"],
        user_s=total.user_s,
        system_s=total.system_s,
        by_role={role: (usage.user_s, usage.system_s) for role, usage in used.items()},
        peak_bytes=meter.peaks(),
        latency_ms=report["latency_ms"],
        answers=report["answers"],
        settled_s=sink_delta.settled_s,
        sink_bytes=sink_delta.after["bytes"] - sink_delta.before["bytes"],
        load_busy=report["load_cpu_s"] / max(report["elapsed_s"], 1e-9),
        sink_busy=sink_delta.used.cpu_s / max(report["elapsed_s"] + sink_delta.settled_s, 1e-9),
    )


def load(url: str, cores: Cores, options: Sequence[str]) -> dict[str, Any]:
    """Run the load harness and return its report. Raise if no request was acknowledged."""
    command = [
        *("taskset", "-c", cores.others, sys.executable, "-m", "receiver.cli", "load", url),
        *("--format", "json", *options),
    ]
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    try:
        report: dict[str, Any] = json.loads(result.stdout)
    except ValueError as error:
        raise MeasurementError(
            f"the load harness exited with {result.returncode}: {result.stderr[-300:]}"
        ) from error
    if not report["spans"]:
        raise MeasurementError(f"no request was acknowledged: {report['answers']} {report['said']}")
    return report
