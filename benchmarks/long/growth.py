"""Growth benchmark: a steady load for a long time, to find resources that grow."""

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
    """Run all slices. If one fails, keep the results of the slices before it."""
    count = max(1, round(growth.minutes * 60 / growth.slice_s))
    options = [*BODY.options, "--rate", f"{growth.rate:.0f}"]
    try:
        with peer.running(environment) as running:
            watch = Watch(running, environment.directory / "data", cores)
            for number in range(1, count + 1):
                time_slice = watch.slice(options, growth.slice_s, seed=number)
                growth.slices.append(time_slice)
                growth.acknowledged += time_slice.spans
                log(f"growth {number:3}/{count}  {line_of(time_slice)}")
            environment.sink.wait_for(growth.acknowledged, CATCH_UP_S)
            growth.stored = environment.sink.rows()
    except (MeasurementError, OSError) as error:
        growth.error = str(error)
        log(f"growth failed: {error}")


def slope(points: Sequence[tuple[float, float]]) -> float | None:
    """Return the slope of the least-squares line through (x, y) points; None if there are too few."""
    xs = [x for x, _ in points]
    if len(set(xs)) < 2:  # noqa: PLR2004 - a line has two points
        return None
    return statistics.linear_regression(xs, [y for _, y in points]).slope


def rss_slope_per_hour(slices: Sequence[Slice], role: str) -> float | None:
    """Return the growth of a process's memory in bytes per hour."""
    bytes_per_s = slope([(time_slice.at_s, time_slice.processes[role].rss_bytes) for time_slice in slices])
    return None if bytes_per_s is None else bytes_per_s * HOUR_S


def first_third(slices: Sequence[Slice]) -> Sequence[Slice]:
    """Return the first third, at least one slice if there are any."""
    return slices[: _third(slices)]


def last_third(slices: Sequence[Slice]) -> Sequence[Slice]:
    """Return as many of the last slices as `first_third` returns."""
    return slices[len(slices) - _third(slices) :]


def without_first_third(slices: Sequence[Slice]) -> Sequence[Slice]:
    """Return the slices after the first third, which includes warm-up."""
    return slices[len(slices) // 3 :]


def _third(slices: Sequence[Slice]) -> int:
    return max(1, len(slices) // 3)


def median_of(slices: Sequence[Slice], value_of: Callable[[Slice], float | None]) -> float | None:
    """Return the median of the values that are not None; None if there are none."""
    values = [value for value in map(value_of, slices) if value is not None]
    return statistics.median(values) if values else None
