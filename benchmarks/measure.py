"""One measurement: a peer with an empty sink, warmed up, loaded, watched until the last row has arrived."""

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
from benchmarks.peers import ROOT, NotToBeHad, Peer, Running, Site
from benchmarks.processes import Cores, Usage, Watched, usage_of

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
    goal: float
    """CPU seconds per million spans."""

    @property
    def options(self) -> list[str]:
        """As the load harness takes them."""
        return [
            *("--encoding", self.encoding, "--compression", self.compression, "--spans", str(self.spans)),
            *("--connections", str(self.connections)),
        ]


BODIES = (
    Body("protobuf, 520 spans", "protobuf", "none", 520, 16, 1.2),
    Body("protobuf, gzip", "protobuf", "gzip", 520, 16, 1.7),
    Body("JSON, 520 spans", "json", "none", 520, 16, 2.2),
    Body("JSON, gzip", "json", "gzip", 520, 16, 3.0),
    Body("protobuf, 10 spans", "protobuf", "none", 10, 64, 3.0),
)
COMPRESSED_REQUESTS = 2_000
"""Made before the clock starts; what is made later would be measured as load."""


@dataclass(frozen=True)
class Measured:
    """What one run amounts to."""

    peer: str
    body: str
    spans: int
    """In the sink, of those sent while measuring."""
    missing: int
    """Acknowledged, and not in the sink when we stopped waiting."""
    elapsed_s: float
    spans_per_s: float
    user_s: float
    system_s: float
    by_role: dict[str, tuple[float, float]]
    """User and system seconds."""
    peak_bytes: dict[str, int]
    latency_ms: dict[str, float | None]
    """By quantile; `None`: nothing was answered."""
    answers: dict[str, int]
    settled_s: float
    """From the last acknowledgement until the last row had arrived."""
    sink_bytes: int
    load_busy: float
    """Share of a core that the load harness used."""
    sink_busy: float

    @property
    def cpu_s_per_million(self) -> float:
        """What is quoted first."""
        return (self.user_s + self.system_s) / max(self.spans, 1) * 1e6

    def document(self) -> dict[str, Any]:
        """For results.json."""
        return {**asdict(self), "cpu_s_per_million_spans": round(self.cpu_s_per_million, 4)}


@contextmanager
def standing(peer: Peer, cores: Cores, intakes: int = 1) -> Iterator[tuple[Running, sinks.Sink]]:
    """A peer and its sink, with nothing in them."""
    with (
        tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as directory,
        sinks.running(cores.others) as sink,
        peer.running(Site(Path(directory), sink, cores.receiver, intakes)) as running,
    ):
        yield running, sink


@dataclass(frozen=True)
class Manner:
    """How a run is done."""

    cores: Cores
    duration_s: float
    intakes: int = 1
    options: tuple[str, ...] = ()
    """More, for the load harness."""
    beside: Callable[[Running], AbstractContextManager[object]] = nullcontext
    """What goes on while the load does."""


def measure(peer: Peer, body: Body, manner: Manner) -> Measured:
    """Run once."""
    cores = manner.cores
    with standing(peer, cores, manner.intakes) as (running, sink):
        warm = load(running.url, cores, [*body.options, "--requests", str(WARM_UP_REQUESTS)])
        sink.wait_for(warm["spans"], CATCH_UP_S)
        before, sink_before = sink.counts(), usage_of(sink.pid)
        watched = Watched(running.roles)
        watched.begin()
        limits = ["--duration", str(manner.duration_s)]
        if body.compression != "none":
            limits += ["--requests", str(COMPRESSED_REQUESTS)]
        with manner.beside(running):
            said = load(running.url, cores, [*body.options, *limits, *manner.options])
        settled_s = sink.wait_for(before["rows"] + said["spans"], CATCH_UP_S)
        return _summed(
            peer,
            body,
            said,
            watched,
            _Taken(before, sink.counts(), usage_of(sink.pid) - sink_before, settled_s),
        )


@dataclass(frozen=True)
class _Taken:
    before: dict[str, int]
    after: dict[str, int]
    used: Usage
    settled_s: float


def _summed(peer: Peer, body: Body, said: dict[str, Any], watched: Watched, taken: _Taken) -> Measured:
    used = watched.used()
    total = sum(used.values(), Usage())
    stored = taken.after["rows"] - taken.before["rows"]
    return Measured(
        peer=peer.name,
        body=body.name,
        spans=stored,
        missing=max(0, said["spans"] - stored),
        elapsed_s=said["elapsed_s"],
        spans_per_s=said["spans_per_s"],
        user_s=total.user_s,
        system_s=total.system_s,
        by_role={role: (one.user_s, one.system_s) for role, one in used.items()},
        peak_bytes=watched.peaks(),
        latency_ms=said["latency_ms"],
        answers=said["answers"],
        settled_s=taken.settled_s,
        sink_bytes=taken.after["bytes"] - taken.before["bytes"],
        load_busy=said["load_cpu_s"] / max(said["elapsed_s"], 1e-9),
        sink_busy=taken.used.cpu_s / max(said["elapsed_s"] + taken.settled_s, 1e-9),
    )


def load(url: str, cores: Cores, options: Sequence[str]) -> dict[str, Any]:
    """Run the load harness; what it says. A run in which nothing was acknowledged is none."""
    command = [
        *("taskset", "-c", cores.others, sys.executable, "-m", "receiver.cli", "load", url),
        *("--format", "json", *options),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    try:
        said: dict[str, Any] = json.loads(done.stdout)
    except ValueError as reason:
        raise NotToBeHad(f"the load harness ended with {done.returncode}: {done.stderr[-300:]}") from reason
    if not said["spans"]:
        raise NotToBeHad(f"nothing was acknowledged: {said['answers']} {said['said']}")
    return said
