"""`make bench`: measures, says how it goes, and writes results.json and README.md."""

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

from benchmarks import ours
from benchmarks import sink as sinks
from benchmarks.measure import BODIES, Body, Manner, Measured, measure
from benchmarks.peers import PEERS, NotToBeHad, Peer
from benchmarks.processes import Cores
from benchmarks.report import Results, milliseconds, page

HERE = Path(__file__).parent
PARTS = HERE / ".last"
"""Where a run of parts only is written; not committed."""


@dataclass
class Bench:
    """A run of everything that was asked for. What cannot be had is told, noted and left out."""

    runs: int
    duration_s: float
    cores: Cores = field(default_factory=Cores.of_this_machine)
    results: Results = field(default_factory=Results)

    def peers(self, peers: list[Peer], bodies: list[Body]) -> None:
        """Side by side: every peer once, then all again."""
        able = [peer for peer in peers if self._try(peer.name, peer.build)]
        for number in range(1, self.runs + 1):
            for body in bodies:
                for peer in able:
                    self._try(f"{peer.name}, {body.name}", partial(self._once, peer, body, number))

    def _once(self, peer: Peer, body: Body, number: int) -> None:
        one = measure(peer, body, Manner(self.cores, self.duration_s))
        self.results.measured.append(one)
        say(f"run {number}  {line_of(one)}")

    def alone(self, peer: Peer) -> None:
        """What is asked of ours only."""
        saturated = [one.spans_per_s for one in self.results.of(peer.name, BODIES[0])]
        for _ in range(self.runs):
            self._try("start", lambda: self.results.start_s.append(ours.start_s(peer, self.cores)))
        self._try("idle", lambda: self._idle(peer))
        if saturated:
            self._try("rates", lambda: self._rates(peer, statistics.median(saturated)))
            self._try("intakes", lambda: self._intakes(peer, statistics.median(saturated) / 2))
        self._try(
            "budget", lambda: self.results.budget.update(ours.budget(peer, self.cores, self.duration_s))
        )

    def _idle(self, peer: Peer) -> None:
        self.results.idle_cpu_share = ours.idle_cpu_share(peer, self.cores)
        say(f"start {self.results.start_s}, idle {self.results.idle_cpu_share:.2%} of a core")

    def _rates(self, peer: Peer, saturation: float) -> None:
        self.results.rates = ours.rates(peer, self.cores, self.duration_s, saturation)
        for rate, one in self.results.rates:
            say(f"{rate:,.0f} spans/s  {line_of(one)}")

    def _intakes(self, peer: Peer, rate: float) -> None:
        """One and two in turn, so that a machine that changes its speed does so for both."""
        for _ in range(self.runs):
            for count in (1, 2):
                one = ours.intakes(peer, self.duration_s, count, rate)
                self.results.by_intakes.setdefault(count, []).append(one)
                say(f"{count} intakes  {line_of(one)}")

    def _try(self, name: str, act: Callable[[], object]) -> bool:
        try:
            act()
        except NotToBeHad as reason:
            self.results.left_out[name] = str(reason)
            say(f"{name} is left out: {reason}")
            return False
        return True


@click.command()
@click.option("--only", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="These peers.")
@click.option("--body", multiple=True, type=click.Choice([one.name for one in BODIES]), help="These bodies.")
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1))
@click.option("--duration", default=10.0, show_default=True, help="Seconds of load in a run.")
@click.option("--peers-only", is_flag=True, help="Without what is asked of ours alone.")
def main(
    only: tuple[str, ...], body: tuple[str, ...], *, runs: int, duration: float, peers_only: bool
) -> None:
    """Measure receivers side by side. A run of all of it is written to benchmarks/README.md."""
    signal.signal(signal.SIGTERM, _interrupted)
    sinks.build()
    bench = Bench(runs, duration)
    chosen = [peer for peer in PEERS if not only or peer.name in only]
    is_whole = not (only or body or peers_only)
    try:
        bench.peers(chosen, [one for one in BODIES if not body or one.name in body])
        if not peers_only and PEERS[0] in chosen:
            bench.alone(PEERS[0])
    except KeyboardInterrupt:
        is_whole = False
    directory = HERE if is_whole else PARTS
    directory.mkdir(exist_ok=True)
    (directory / "results.json").write_text(json.dumps(bench.results.document(), indent=1) + "\n")
    (directory / "README.md").write_text(page(bench.results))
    say(f"written to {directory}")


def line_of(one: Measured) -> str:
    """One measurement, as it is told."""
    spans = max(one.spans, 1)
    roles = ", ".join(
        f"{role} {user / spans * 1e6:.2f}+{system / spans * 1e6:.2f}"
        for role, (user, system) in one.by_role.items()
    )
    peaks = ", ".join(f"{role} {size >> 20}" for role, size in one.peak_bytes.items())
    return (
        f"{one.body:<20} {one.peer:<16} {one.cpu_s_per_million:6.2f} s/M spans ({roles})  "
        f"{one.spans_per_s:9,.0f} spans/s  MiB {peaks}  p50 {milliseconds(one.latency_ms['p50'])} "
        f"p99 {milliseconds(one.latency_ms['p99'])} ms  settled {one.settled_s:.1f} s  "
        f"missing {one.missing}  load {one.load_busy:.0%} sink {one.sink_busy:.0%}  {one.answers}"
    )


def _interrupted(*_: object) -> None:
    """End as Ctrl-C does: whatever was started is ended on the way out."""
    raise KeyboardInterrupt


def say(text: str) -> None:
    """How it goes."""
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
