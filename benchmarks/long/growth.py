"""A steady load for long, in slices, into one receiver: what grows with time."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence

from benchmarks.long.results import Growth, Slice
from benchmarks.long.watch import Log, Watch, line_of
from benchmarks.measure import BODIES, CATCH_UP_S
from benchmarks.peers import Environment, MeasurementError, Peer
from benchmarks.processes import Cores

HOUR_S = 3_600.0
BODY = BODIES[0]


def grow(peer: Peer, environment: Environment, cores: Cores, growth: Growth, log: Log) -> None:
    """Load and look, until the time is over or something is wrong; what was seen is kept either way."""
    count = max(1, round(growth.minutes * 60 / growth.slice_s))
    options = [*BODY.options, "--rate", f"{growth.rate:.0f}"]
    try:
        with peer.running(environment) as running:
            watch = Watch(running, environment.directory / "data", cores)
            for number in range(1, count + 1):
                one = watch.slice(options, growth.slice_s, seed=number)
                growth.slices.append(one)
                growth.acknowledged += one.spans
                log(f"growth {number:3}/{count}  {line_of(one)}")
            environment.sink.wait_for(growth.acknowledged, CATCH_UP_S)
            growth.stored = environment.sink.rows()
    except (MeasurementError, OSError) as error:
        growth.ended = str(error)
        log(f"growth ends: {error}")


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """By how much the second grows with the first, by least squares; too few points: `None`."""
    times = [at for at, _ in points]
    if len(set(times)) < 2:  # noqa: PLR2004 - a line has two points
        return None
    return statistics.linear_regression(times, [value for _, value in points]).slope


def rss_slope_per_hour(slices: Sequence[Slice], role: str) -> float | None:
    """Bytes an hour by which a process grows."""
    found = slope([(one.at_s, one.processes[role].rss_bytes) for one in slices])
    return None if found is None else found * HOUR_S


def first_third(slices: Sequence[Slice]) -> Sequence[Slice]:
    """At least one of them, if there is one."""
    return slices[: _third(slices)]


def last_third(slices: Sequence[Slice]) -> Sequence[Slice]:
    """As many as in the first."""
    return slices[len(slices) - _third(slices) :]


def without_first_third(slices: Sequence[Slice]) -> Sequence[Slice]:
    """What is left when everything has been used once."""
    return slices[len(slices) // 3 :]


def _third(slices: Sequence[Slice]) -> int:
    return max(1, len(slices) // 3)


def median_of(slices: Sequence[Slice], of: Callable[[Slice], float | None]) -> float | None:
    """Of those that have one."""
    values = [value for value in map(of, slices) if value is not None]
    return statistics.median(values) if values else None
