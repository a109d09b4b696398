"""Generator of benchmarks/README.md: medians with their spread, next to the goals."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.connections import GOALS_MS, SPANS
from benchmarks.measure import BODIES, Body, Measurement
from benchmarks.peers import PEERS

GOALS = {"p50": 5.0, "p99": 25.0, "settled": 2.0, "start": 1.0, "intake MiB": 250.0, "two intakes": 1.1}
MIB = 1 << 20


@dataclass
class Results:
    """Everything that was measured in one run."""

    measured: list[Measurement] = field(default_factory=list)
    rates: list[tuple[float, Measurement]] = field(default_factory=list)
    by_intakes: dict[int, list[Measurement]] = field(default_factory=dict)
    idle_cpu_share: float | None = None
    start_s: list[float] = field(default_factory=list)
    connections_ms: dict[str, list[float]] = field(default_factory=dict)
    """Kind of connection → CPU milliseconds of a request on a connection of its own."""
    budget: dict[str, float] = field(default_factory=dict)
    skipped: dict[str, str] = field(default_factory=dict)
    """Skipped measurement → reason."""

    def document(self) -> dict[str, Any]:
        """Return the content of results.json."""
        return {
            "machine": machine(),
            "versions": {peer.name: peer.version for peer in PEERS},
            "measured": [measurement.document() for measurement in self.measured],
            "rates": [{"rate": rate, **measurement.document()} for rate, measurement in self.rates],
            "intakes": {
                str(count): [measurement.document() for measurement in measurements]
                for count, measurements in self.by_intakes.items()
            },
            "idle_cpu_share": self.idle_cpu_share,
            "start_s": self.start_s,
            "connections_cpu_ms": self.connections_ms,
            "budget_cpu_s_per_million_spans": self.budget,
            "left_out": self.skipped,
        }

    def of(self, peer: str, body: Body) -> list[Measurement]:
        """Return all runs of a peer with a body."""
        return [
            measurement
            for measurement in self.measured
            if (measurement.peer, measurement.body) == (peer, body.name)
        ]


def machine() -> str:
    """Describe this machine: processor, cores, memory, kernel."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
    cores = sum(line.startswith("processor") for line in lines)
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return f"{model}, {cores} cores, {memory_kib >> 20} GiB, Linux {platform.release()}"


def page(results: Results) -> str:
    """Return the text of README.md."""
    parts = [_head(results), _peers(results), _receiver_only(results), _budget(results), [_TRIED]]
    return "\n".join(line for part in parts for line in part) + "\n"


_HEAD = """\
# Benchmarks

Written by `make bench`; the results of every run are in `results.json`. `make bench ARGS="--help"` lists the
options for partial runs. Machine: {machine}. Versions: {versions}. {runs} runs each.

The receiver is pinned to one core; load and sink share the others. The sink is a ClickHouse stand-in that
decompresses and decodes every row. A run is a warm-up and a closed-loop load (16 clients with 520 spans per
request, 32 with 50, 64 with 10 and 1), and ends when the last row is stored. The cost is the CPU time of
all processes of a receiver during the run, divided by the spans stored. This receiver always acknowledges
after the journal's `fdatasync`; Rotel and otelcol from memory; otelcol-durable from a synced queue on disk.
TLS ends in the receiver (TLS 1.3, ECDSA on P-256), on connections that stay open; Rotel cannot end TLS."""


_TRIED = """
## Optimizations tried for missed goals

* 520 spans: decoding, dictionary encoding and LZ4 are four fifths of the cost. Changes, with numbers:
  [0011](../docs/decisions/0011-core-speed.md), [0003](../docs/decisions/0003-lz4-by-the-c-library.md).
  Faster LZ4 settings and uncompressed columns save at most a tenth, but use as much more disk.
* 10 spans: the fixed cost of a commit group (thread switches, a sync, a record) and about 26 Python
  calls per request:
  [0009](../docs/decisions/0009-known-heads.md), [0012](../docs/decisions/0012-small-groups.md).
  The core looks up duplicates ([0005](../docs/decisions/0005-redelivery.md)). Tried: waiting for requests
  that are still arriving (38 deliveries per group instead of 36, no gain beyond the noise). Not
  tried: reading the
  socket into one buffer per body.
* Tail latency at half of saturation: segments are sealed concurrently with commits. The rest comes from
  bursts of the store process on the same core; lowering its priority had no effect beyond the noise.
* Results of the same program vary by half and more on this machine, whose two cores probably share
  one physical core.

Results for a backlog of 10 GB and for half an hour at a constant rate: [LONG.md](LONG.md)."""


def _head(results: Results) -> Iterator[str]:
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in PEERS)
    runs = max((len(results.of(measurement.peer, BODIES[0])) for measurement in results.measured), default=0)
    yield _HEAD.format(machine=machine(), versions=versions, runs=runs)
    for name, why in results.skipped.items():
        yield f"\nSkipped: {name}: {why}."


def _peers(results: Results) -> Iterator[str]:
    tables: list[tuple[str, Callable[[Measurement], float], str]] = [
        ("CPU seconds per million spans", lambda measurement: measurement.cpu_s_per_million, ".2f"),
        ("Spans per second", lambda measurement: measurement.spans_per_s, ",.0f"),
        (
            "Peak memory of the largest process, MiB",
            lambda measurement: max(measurement.peak_bytes.values()) / MIB,
            ",.0f",
        ),
    ]
    names = [
        peer.name for peer in PEERS if any(measurement.peer == peer.name for measurement in results.measured)
    ]
    for title, of, form in tables:
        has_goal = of is tables[0][1]
        yield f"\n## {title}\n\nMedian (lowest to highest).\n"
        yield row(["bodies", *names, *["goal"][:has_goal]])
        yield row(["---"] * (len(names) + 1 + has_goal))
        for body in BODIES:
            cells = [
                spread([of(measurement) for measurement in results.of(name, body)], form) for name in names
            ]
            yield row([body.name, *cells, *[_goal(body, results.of("ours", body))][:has_goal]])
    yield from _split(results)


def _goal(body: Body, ours: Sequence[Measurement]) -> str:
    """Return the goal, and the ratio to it if it is missed; empty without a goal."""
    if body.goal is None:
        return ""
    median = statistics.median(measurement.cpu_s_per_million for measurement in ours) if ours else 0.0
    return (
        f"≤ {body.goal}"
        if median <= body.goal
        else f"≤ {body.goal}; ours is {median / body.goal:.1f} times that"
    )


def _split(results: Results) -> Iterator[str]:
    """Return the table of this receiver's CPU time by process."""
    yield "\n## This receiver by process\n\nCPU seconds per million spans, user + system, medians.\n"
    yield "| bodies | supervisor | intake | store |"
    yield "|---|---|---|---|"
    for body in BODIES:
        measurements = results.of("ours", body)
        if measurements:
            cells = [_role(measurements, role) for role in ("supervisor", "intake", "store")]
            yield f"| {body.name} | {' | '.join(cells)} |"


def _role(measurements: Sequence[Measurement], role: str) -> str:
    halves = [
        statistics.median(
            measurement.by_role[role][half] / max(measurement.spans, 1) * 1e6 for measurement in measurements
        )
        for half in (0, 1)
    ]
    return f"{halves[0]:.2f} + {halves[1]:.2f}"


def _receiver_only(results: Results) -> Iterator[str]:
    saturated = results.of("ours", BODIES[0])
    yield "\n## This receiver only\n\n| what | measured | goal |\n|---|---|---|"
    if results.start_s:
        yield f"| start to first 200, s | {spread(results.start_s, '.2f')} | ≤ {GOALS['start']:g} |"
    if saturated:
        peaks = [measurement.peak_bytes["intake"] / MIB for measurement in saturated]
        goal = f"≤ {GOALS['intake MiB']:g}"
        yield row(["peak memory of an intake at saturation, MiB", spread(peaks, ".0f"), goal])
    if results.idle_cpu_share is not None:
        yield f"| idle CPU, share of a core | {results.idle_cpu_share:.2%} | |"
    for kind, cpu_ms in results.connections_ms.items():
        goal = f"≤ {GOALS_MS[kind]:g}" if kind in GOALS_MS else ""
        yield row(
            [f"one request of {SPANS} spans per connection, {kind}, CPU ms", spread(cpu_ms, ".2f"), goal]
        )
    if len(results.by_intakes) > 1:
        one_intake, two_intakes = (
            statistics.median(run.cpu_s_per_million for run in results.by_intakes[count]) for count in (1, 2)
        )
        ratio = f"{two_intakes / one_intake:.2f} ({two_intakes:.2f} / {one_intake:.2f})"
        yield f"| CPU per span, two intakes relative to one | {ratio} | ≤ {GOALS['two intakes']:g} |"
    if results.rates:
        yield from _rates(results)


def _rates(results: Results) -> Iterator[str]:
    yield "\nOpen loop, protobuf with 520 spans; the last row is half of saturation. Without idle CPU time."
    goals = f"p50 ≤ {GOALS['p50']:g} ms, p99 ≤ {GOALS['p99']:g} ms, stored ≤ {GOALS['settled']:g} s after"
    yield f"Goals at half: {goals}.\n"
    yield "| spans/s | CPU s per million | p50 ms | p99 ms | stored after the last 200, s |"
    yield "|---|---|---|---|---|"
    for rate, measurement in results.rates:
        idle_s = (results.idle_cpu_share or 0.0) * (measurement.elapsed_s + measurement.settled_s)
        cost = measurement.cpu_s_per_million - idle_s / max(measurement.spans, 1) * 1e6
        latency = measurement.latency_ms
        quantiles = (milliseconds(latency[name], ".2f") for name in ("p50", "p99"))
        yield row([f"{rate:,.0f}", f"{cost:.2f}", *quantiles, f"{measurement.settled_s:.2f}"])


def _budget(results: Results) -> Iterator[str]:
    if results.budget:
        yield "\n## CPU time by part\n\nProtobuf, 520 spans, all processes, by `perf`."
        yield "If the core is built without symbols, compression and checksums count as decode and encode.\n"
        yield "| part | CPU s per million spans |\n|---|---|"
        for part, cost in results.budget.items():
            yield f"| {part} | {cost:.3f} |"


def row(cells: Sequence[str]) -> str:
    """Return a Markdown table row."""
    return f"| {' | '.join(cells)} |"


def milliseconds(latency_ms: float | None, form: str = ".1f") -> str:
    """Format a latency; `None` if no request was answered."""
    return "-" if latency_ms is None else format(latency_ms, form)


def spread(values: Sequence[float], form: str) -> str:
    """Format the median with the lowest and the highest value."""
    if not values:
        return "-"
    median = format(statistics.median(values), form)
    return (
        f"{median} ({format(min(values), form)} to {format(max(values), form)})"
        if len(values) > 1
        else median
    )
