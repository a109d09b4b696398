"""Command line of `make bench`: runs the measurements and writes results.json and README.md."""

from __future__ import annotations

import json
import signal
import statistics
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import click

from benchmarks import connections, ours
from benchmarks import sink as sinks
from benchmarks.measure import BODIES, Body, Measurement, RunOptions, measure
from benchmarks.peers import PEERS, MeasurementError, Peer
from benchmarks.processes import Cores
from benchmarks.report import Results, milliseconds, page

HERE = Path(__file__).parent
PARTS = HERE / ".last"
"""Output directory of partial runs; not committed."""


@dataclass
class Bench:
    """A run of the selected benchmarks. A failed measurement is logged, recorded and skipped."""

    runs: int
    duration_s: float
    cores: Cores = field(default_factory=Cores.of_this_machine)
    results: Results = field(default_factory=Results)

    def peers(self, peers: list[Peer], bodies: list[Body]) -> None:
        """Measure the peers in turn, `runs` times, so that changes of machine speed affect all of them."""
        built_peers = [peer for peer in peers if self._try(peer.name, peer.build)]
        for number in range(1, self.runs + 1):
            for body in bodies:
                for peer in built_peers:
                    self._try(f"{peer.name}, {body.name}", partial(self._once, peer, body, number))

    def _once(self, peer: Peer, body: Body, number: int) -> None:
        measurement = measure(peer, body, RunOptions(self.cores, self.duration_s))
        self.results.measured.append(measurement)
        log(f"run {number}  {line_of(measurement)}")

    def measure_receiver_only(self, peer: Peer) -> None:
        """Run the measurements that apply to this receiver only."""
        saturated = [measurement.spans_per_s for measurement in self.results.of(peer.name, BODIES[0])]
        for _ in range(self.runs):
            self._try("start", lambda: self.results.start_s.append(ours.start_s(peer, self.cores)))
        for kind in connections.KINDS * self.runs:
            self._try(f"one request per connection, {kind.name}", partial(self._connections, peer, kind))
        self._try("idle", lambda: self._idle(peer))
        if saturated:
            self._try("rates", lambda: self._rates(peer, statistics.median(saturated)))
            self._try("intakes", lambda: self._intakes(peer, statistics.median(saturated) / 2))
        self._try(
            "budget", lambda: self.results.budget.update(ours.budget(peer, self.cores, self.duration_s))
        )

    def _idle(self, peer: Peer) -> None:
        self.results.idle_cpu_share = ours.idle_cpu_share(peer, self.cores)
        log(f"start {self.results.start_s}, idle {self.results.idle_cpu_share:.2%} of a core")

    def _connections(self, peer: Peer, kind: connections.Kind) -> None:
        cpu_ms = connections.cpu_ms_per_request(peer, self.cores, kind)
        self.results.connections_ms.setdefault(kind.name, []).append(cpu_ms)
        log(f"one request per connection, {kind.name}: {cpu_ms:.2f} CPU ms")

    def _rates(self, peer: Peer, saturation: float) -> None:
        self.results.rates = ours.rates(peer, self.cores, self.duration_s, saturation)
        for rate, measurement in self.results.rates:
            log(f"{rate:,.0f} spans/s  {line_of(measurement)}")

    def _intakes(self, peer: Peer, rate: float) -> None:
        """Measure one and two intakes in turn, so that changes of machine speed affect both."""
        for _ in range(self.runs):
            for count in (1, 2):
                measurement = ours.intakes(peer, self.duration_s, count, rate)
                self.results.by_intakes.setdefault(count, []).append(measurement)
                log(f"{count} intakes  {line_of(measurement)}")

    def _try(self, name: str, action: Callable[[], object]) -> bool:
        try:
            action()
        # A process that ended has no files in /proc any more.
        except (MeasurementError, OSError) as error:
            self.results.skipped[name] = str(error)
            log(f"{name} skipped: {error}")
            return False
        return True


@click.command()
@click.option(
    "--only",
    multiple=True,
    type=click.Choice([peer.name for peer in PEERS]),
    help="Measure this peer only; repeatable.",
)
@click.option(
    "--body",
    multiple=True,
    type=click.Choice([measurement.name for measurement in BODIES]),
    help="Measure this body only; repeatable.",
)
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1))
@click.option("--duration", default=10.0, show_default=True, help="Seconds of load per run.")
@click.option("--peers-only", is_flag=True, help="Skip the measurements of this receiver only.")
def main(
    only: tuple[str, ...], body: tuple[str, ...], *, runs: int, duration: float, peers_only: bool
) -> None:
    """Compare receivers. Only a complete run is written to benchmarks/README.md."""
    signal.signal(signal.SIGTERM, _interrupted)
    sinks.build()
    bench = Bench(runs, duration)
    chosen = [peer for peer in PEERS if not only or peer.name in only]
    is_whole = not (only or body or peers_only)
    try:
        bench.peers(chosen, [measurement for measurement in BODIES if not body or measurement.name in body])
        if not peers_only and PEERS[0] in chosen:
            bench.measure_receiver_only(PEERS[0])
    except KeyboardInterrupt:
        is_whole = False
    directory = HERE if is_whole else PARTS
    directory.mkdir(exist_ok=True)
    (directory / "results.json").write_text(json.dumps(bench.results.document(), indent=1) + "\n")
    (directory / "README.md").write_text(page(bench.results))
    log(f"results written to {directory}")


def line_of(run: Measurement) -> str:
    """Format a measurement as a progress line."""
    spans = max(run.spans, 1)
    roles = ", ".join(
        f"{role} {user / spans * 1e6:.2f}+{system / spans * 1e6:.2f}"
        for role, (user, system) in run.by_role.items()
    )
    peaks = ", ".join(f"{role} {size >> 20}" for role, size in run.peak_bytes.items())
    return (
        f"{run.body:<20} {run.peer:<16} {run.cpu_s_per_million:6.2f} s/M spans ({roles})  "
        f"{run.spans_per_s:9,.0f} spans/s  MiB {peaks}  p50 {milliseconds(run.latency_ms['p50'])} "
        f"p99 {milliseconds(run.latency_ms['p99'])} ms  stored after {run.settled_s:.1f} s  "
        f"missing {run.missing}  load {run.load_busy:.0%} sink {run.sink_busy:.0%}  {run.answers}"
    )


def _interrupted(*_: object) -> None:
    """Handle SIGTERM like Ctrl-C, so that context managers end the started processes."""
    raise KeyboardInterrupt


def log(text: str) -> None:
    """Write a progress line to standard error."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
