"""`make bench`: measures, prints as it goes, writes results.json and README.md."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click

from benchmarks import sink as sinks
from benchmarks.measure import BODIES, Measured, measure
from benchmarks.peers import PEERS, NotToBeHad, Peer
from benchmarks.processes import Cores

HERE = Path(__file__).parent


@click.command()
@click.option("--only", multiple=True, type=click.Choice([peer.name for peer in PEERS]), help="These peers.")
@click.option(
    "--body", multiple=True, type=click.Choice([body.name for body in BODIES]), help="These bodies."
)
@click.option("--runs", default=3, show_default=True, type=click.IntRange(1))
@click.option("--duration", default=10.0, show_default=True, help="Seconds of load in a run.")
def main(only: tuple[str, ...], body: tuple[str, ...], runs: int, duration: float) -> None:
    """Measure receivers side by side."""
    sinks.build()
    peers = [peer for peer in PEERS if not only or peer.name in only]
    bodies = [one for one in BODIES if not body or one.name in body]
    cores = Cores.of_this_machine()
    able = [peer for peer in peers if _is_able(peer)]
    results: list[Measured] = []
    for number in range(runs):
        for one in bodies:
            for peer in able:
                try:
                    results.append(measure(peer, one, cores, duration_s=duration))
                except NotToBeHad as reason:
                    _say(f"{peer.name}: {reason}")
                    continue
                _say(f"run {number + 1}  {line_of(results[-1])}")
    (HERE / "results.json").write_text(json.dumps([one.document() for one in results], indent=1) + "\n")


def _is_able(peer: Peer) -> bool:
    _say(f"preparing {peer.name} {peer.version}")
    try:
        peer.build()
    except NotToBeHad as reason:
        _say(f"{peer.name} is left out: {reason}")
        return False
    return True


def line_of(one: Measured) -> str:
    """One measurement, as it is told."""
    roles = ", ".join(
        f"{role} {user / one.spans * 1e6:.2f}+{system / one.spans * 1e6:.2f}"
        for role, (user, system) in one.by_role.items()
    )
    peaks = ", ".join(f"{role} {size >> 20}" for role, size in one.peak_bytes.items())
    return (
        f"{one.body:<20} {one.peer:<16} {one.cpu_s_per_million:6.2f} s/M spans ({roles})  {one.spans_per_s:9,.0f} spans/s  "
        f"MiB {peaks}  p50 {one.latency_ms['p50']:.1f} p99 {one.latency_ms['p99']:.1f} ms  settled {one.settled_s:.1f} s  "
        f"missing {one.missing}  load {one.load_busy:.0%} sink {one.sink_busy:.0%}  {one.answers}"
    )


def _say(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


if __name__ == "__main__":
    main()
