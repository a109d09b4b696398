"""README.md of the benchmarks, out of what was measured: medians with their spread, goals beside them."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.measure import BODIES, Body, Measured
from benchmarks.peers import PEERS

GOALS = {"p50": 5.0, "p99": 25.0, "settled": 2.0, "start": 1.0, "intake MiB": 250.0, "two intakes": 1.1}
MIB = 1 << 20


@dataclass
class Results:
    """Everything that was measured in one run."""

    measured: list[Measured] = field(default_factory=list)
    rates: list[tuple[float, Measured]] = field(default_factory=list)
    by_intakes: dict[int, list[Measured]] = field(default_factory=dict)
    idle_cpu_share: float | None = None
    start_s: list[float] = field(default_factory=list)
    budget: dict[str, float] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)
    """What could not be had, and why."""

    def document(self) -> dict[str, Any]:
        """For results.json."""
        return {
            "machine": machine(),
            "versions": {peer.name: peer.version for peer in PEERS},
            "measured": [one.document() for one in self.measured],
            "rates": [{"rate": rate, **one.document()} for rate, one in self.rates],
            "intakes": {
                str(count): [one.document() for one in ones] for count, ones in self.by_intakes.items()
            },
            "idle_cpu_share": self.idle_cpu_share,
            "start_s": self.start_s,
            "budget_cpu_s_per_million_spans": self.budget,
            "left_out": self.left_out,
        }

    def of(self, peer: str, body: Body) -> list[Measured]:
        """All runs of one peer with one body."""
        return [one for one in self.measured if (one.peer, one.body) == (peer, body.name)]


def machine() -> str:
    """What it was measured on."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown"
    )
    cores = sum(line.startswith("processor") for line in lines)
    memory_kib = int(Path("/proc/meminfo").read_text().split()[1])
    return f"{model}, {cores} cores, {memory_kib >> 20} GiB, Linux {platform.release()}"


def page(results: Results) -> str:
    """README.md."""
    parts = [_head(results), _peers(results), _alone(results), _budget(results), [_TRIED]]
    return "\n".join(line for part in parts for line in part) + "\n"


_HEAD = """\
# Benchmarks

Written by `make bench`; what every single run said is in `results.json`. `make bench ARGS="--help"` tells how
to measure a part. Machine: {machine}. Versions: {versions}. {runs} runs each.

The receiver is pinned to one core, load and sink share the others. The sink is a ClickHouse stand-in that
unpacks and decodes every row. A run is warmed up, loaded in a closed loop (16 clients with 520 spans a
request, 64 with 10), and ends when the last row has arrived: the CPU of all processes of a receiver until
then, per span stored. Ours acknowledges after the journal's `fdatasync`, always; Rotel and otelcol from
memory; otelcol-durable from a synced queue on disk."""


_TRIED = """
## What was tried where a goal is missed

* 520 spans: decode, dictionary and LZ4 are four fifths of it. What was taken and what was not, with numbers:
  [0011](../docs/decisions/0011-core-speed.md), [0003](../docs/decisions/0003-lz4-by-the-c-library.md).
  Faster settings of LZ4 and columns stored as they are save at most a tenth, for as much more disk.
* 10 spans: what a group costs whatever is in it (changes of thread, a sync, a record), some 26 Python calls
  per request: [0009](../docs/decisions/0009-known-heads.md), [0012](../docs/decisions/0012-small-groups.md).
  Whether they came before is asked of the core ([0005](../docs/decisions/0005-redelivery.md)). Tried: waiting
  for who is just sending (38 deliveries a group in place of 36, no gain beyond the noise). Not tried: one
  buffer a body to read the socket into.
* The tail at half of saturation: segments are sealed beside the commits. What is left comes with bursts of
  the store process on the same core; a lower priority for it changed nothing that noise would not.
* The same program moves by half and more on this machine, whose two cores are most likely one.

A backlog of 10 GB and half an hour at one rate: [LONG.md](LONG.md)."""


def _head(results: Results) -> Iterator[str]:
    versions = ", ".join(f"{peer.name} {peer.version}" for peer in PEERS)
    runs = max((len(results.of(one.peer, BODIES[0])) for one in results.measured), default=0)
    yield _HEAD.format(machine=machine(), versions=versions, runs=runs)
    for name, why in results.left_out.items():
        yield f"\nLeft out: {name}: {why}."


def _peers(results: Results) -> Iterator[str]:
    tables: list[tuple[str, Callable[[Measured], float], str]] = [
        ("CPU seconds per million spans", lambda one: one.cpu_s_per_million, ".2f"),
        ("Spans a second", lambda one: one.spans_per_s, ",.0f"),
        ("Peak memory of the largest process, MiB", lambda one: max(one.peak_bytes.values()) / MIB, ",.0f"),
    ]
    names = [peer.name for peer in PEERS if any(one.peer == peer.name for one in results.measured)]
    for title, of, form in tables:
        has_goal = of is tables[0][1]
        yield f"\n## {title}\n\nMedian (lowest to highest).\n"
        yield row(["bodies", *names, *["goal"][:has_goal]])
        yield row(["---"] * (len(names) + 1 + has_goal))
        for body in BODIES:
            cells = [spread([of(one) for one in results.of(name, body)], form) for name in names]
            yield row([body.name, *cells, *[_goal(body, results.of("ours", body))][:has_goal]])
    yield from _split(results)


def _goal(body: Body, ours: Sequence[Measured]) -> str:
    """It, and by how much it is missed."""
    median = statistics.median(one.cpu_s_per_million for one in ours) if ours else 0.0
    return (
        f"≤ {body.goal}"
        if median <= body.goal
        else f"≤ {body.goal}; ours is {median / body.goal:.1f} times that"
    )


def _split(results: Results) -> Iterator[str]:
    """Ours by process, user and system."""
    yield "\n## Ours by process\n\nCPU seconds per million spans, user + system, medians.\n"
    yield "| bodies | supervisor | intake | store |"
    yield "|---|---|---|---|"
    for body in BODIES:
        ones = results.of("ours", body)
        if ones:
            cells = [_role(ones, role) for role in ("supervisor", "intake", "store")]
            yield f"| {body.name} | {' | '.join(cells)} |"


def _role(ones: Sequence[Measured], role: str) -> str:
    halves = [
        statistics.median(one.by_role[role][half] / max(one.spans, 1) * 1e6 for one in ones)
        for half in (0, 1)
    ]
    return f"{halves[0]:.2f} + {halves[1]:.2f}"


def _alone(results: Results) -> Iterator[str]:
    saturated = results.of("ours", BODIES[0])
    yield "\n## This receiver alone\n\n| what | measured | goal |\n|---|---|---|"
    if results.start_s:
        yield f"| start to first 200, s | {spread(results.start_s, '.2f')} | ≤ {GOALS['start']:g} |"
    if saturated:
        peaks = [one.peak_bytes["intake"] / MIB for one in saturated]
        goal = f"≤ {GOALS['intake MiB']:g}"
        yield row(["memory of an intake at saturation, MiB", spread(peaks, ".0f"), goal])
    if results.idle_cpu_share is not None:
        yield f"| idle, share of a core | {results.idle_cpu_share:.2%} | |"
    if len(results.by_intakes) > 1:
        one, two = (
            statistics.median(run.cpu_s_per_million for run in results.by_intakes[count]) for count in (1, 2)
        )
        said = f"{two / one:.2f} ({two:.2f} / {one:.2f})"
        yield f"| CPU per span, two intakes against one | {said} | ≤ {GOALS['two intakes']:g} |"
    if results.rates:
        yield from _rates(results)


def _rates(results: Results) -> Iterator[str]:
    yield "\nOpen loop, protobuf with 520 spans; the last line is half of saturation. Idle CPU is taken off."
    goals = f"p50 ≤ {GOALS['p50']:g} ms, p99 ≤ {GOALS['p99']:g} ms, stored ≤ {GOALS['settled']:g} s after"
    yield f"Goals at half: {goals}.\n"
    yield "| spans/s | CPU s per million | p50 ms | p99 ms | stored after the last 200, s |"
    yield "|---|---|---|---|---|"
    for rate, one in results.rates:
        idle_s = (results.idle_cpu_share or 0.0) * (one.elapsed_s + one.settled_s)
        cost = one.cpu_s_per_million - idle_s / max(one.spans, 1) * 1e6
        latency = one.latency_ms
        quantiles = (milliseconds(latency[name], ".2f") for name in ("p50", "p99"))
        yield row([f"{rate:,.0f}", f"{cost:.2f}", *quantiles, f"{one.settled_s:.2f}"])


def _budget(results: Results) -> Iterator[str]:
    if results.budget:
        yield "\n## Where the time goes\n\nProtobuf, 520 spans, all processes, by `perf`."
        yield "A core without symbols counts compression and checksums as decode and encode.\n"
        yield "| part | CPU s per million spans |\n|---|---|"
        for part, cost in results.budget.items():
            yield f"| {part} | {cost:.3f} |"


def row(cells: Sequence[str]) -> str:
    """A line of a table."""
    return f"| {' | '.join(cells)} |"


def milliseconds(latency_ms: float | None, form: str = ".1f") -> str:
    """A latency; `None`: nothing was answered."""
    return "-" if latency_ms is None else format(latency_ms, form)


def spread(values: Sequence[float], form: str) -> str:
    """The median, and from where to where."""
    if not values:
        return "-"
    median = format(statistics.median(values), form)
    return (
        f"{median} ({format(min(values), form)} to {format(max(values), form)})"
        if len(values) > 1
        else median
    )
