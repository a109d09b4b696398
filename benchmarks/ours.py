"""Measurements of this receiver only: cost and latency at several rates, start time, CPU time by part."""

from __future__ import annotations

import re
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import Any

from benchmarks import sink as sinks
from benchmarks.measure import BODIES, Measurement, RunOptions, measure
from benchmarks.peers import READY_S, Environment, MeasurementError, Peer, Running
from benchmarks.processes import Cores, usage_of

RATES = (1_000, 10_000, 50_000)
"""Spans a second, below half of saturation."""
SETTLED_S = 5.0
"""Time after which all processes have finished starting."""
IDLE_S = 10.0
PROTOBUF = BODIES[0]
EMPTY = b""
"""Request body without spans, for the readiness check."""

_PERF_LINE = re.compile(r"\s*([0-9.]+)%\s+(\S+)\s+\[(.)\]\s+(.+)")
_BUDGET: tuple[tuple[str, str], ...] = (
    ("compress", r"lz4|LZ4"),
    ("checksum", r"xxh|XXH"),
    ("unpack", r"deflate|inflate|crc32|unpack"),
    ("copy", r"mem(cpy|move|set)"),
    ("decode and encode", r"_transcode|memcmp|memchr"),
    ("HTTP", r"_http_parser|llhttp|multidict|yarl|_http_writer"),
    ("event loop", r"uvloop|libuv"),
    ("disk", r"ext4|jbd2|blk_|fsync|xfs_|overlay|writeback|filemap"),
    ("socket", r"tcp|sock|skb|inet|ip_|recv|send|net_|epoll"),
    ("kernel, other", r"\[k\]"),
    ("Python", r"python|Py"),
)
"""Part and the pattern of its samples; the first matching pattern wins."""


def rates(peer: Peer, cores: Cores, duration_s: float, saturation: float) -> list[tuple[float, Measurement]]:
    """Measure cost and latency at fixed rates and at half of saturation."""
    target_rates = [rate for rate in RATES if rate < saturation / 2] + [saturation / 2]
    run_options = [RunOptions(cores, duration_s, options=("--rate", f"{rate:.0f}")) for rate in target_rates]
    return [
        (rate, measure(peer, PROTOBUF, measurement))
        for rate, measurement in zip(target_rates, run_options, strict=True)
    ]


def intakes(peer: Peer, duration_s: float, count: int, rate: float) -> Measurement:
    """Measure with `count` intakes on all cores, at a rate below saturation."""
    everywhere = Cores.all_of_this_machine()
    return measure(peer, PROTOBUF, RunOptions(everywhere, duration_s, count, ("--rate", f"{rate:.0f}")))


def idle_cpu_share(peer: Peer, cores: Cores) -> float:
    """Return the share of a core that the receiver uses without requests."""
    with _environment(cores) as environment, peer.running(environment) as running:
        time.sleep(SETTLED_S)
        before = sum(usage_of(pid).cpu_s for pid in running.roles)
        time.sleep(IDLE_S)
        return (sum(usage_of(pid).cpu_s for pid in running.roles) - before) / IDLE_S


def start_s(peer: Peer, cores: Cores) -> float:
    """Return the seconds from the command to the first 200."""
    with _environment(cores) as environment, answering(peer, environment) as (_, first_200_s):
        return first_200_s


@contextmanager
def answering(peer: Peer, environment: Environment) -> Iterator[tuple[Running, float]]:
    """Start a receiver; yield it after its first 200, with the seconds from the command to that answer."""
    began_s = time.monotonic()
    with peer.running(environment) as running:
        while not _is_answered(running.url):
            if time.monotonic() - began_s > READY_S:
                raise MeasurementError(f"no 200 within {READY_S:g} s")
            time.sleep(0.005)
        yield running, time.monotonic() - began_s


@contextmanager
def _environment(cores: Cores) -> Iterator[Environment]:
    with (
        tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as directory,
        sinks.running(cores.others) as sink,
    ):
        yield Environment(Path(directory), sink, cores.receiver)


def _is_answered(url: str) -> bool:
    request = urllib.request.Request(url, EMPTY, {"Content-Type": "application/x-protobuf"})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=1) as answer:  # noqa: S310 - as above
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, urllib.error.HTTPError):
        return False


def budget(peer: Peer, cores: Cores, duration_s: float) -> dict[str, float]:
    """Return CPU seconds per million spans by part, for all processes together, sampled by `perf`."""
    with tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as directory:
        samples = Path(directory) / "perf.data"
        measurement = measure(peer, PROTOBUF, RunOptions(cores, duration_s, during=_sampled(samples)))
        shares = _shares(samples)
    total = sum(shares.values()) or 1.0
    return {part: share / total * measurement.cpu_s_per_million for part, share in shares.items()}


def _sampled(samples: Path) -> Callable[[Running], Any]:
    @contextmanager
    def during(running: Running) -> Iterator[None]:
        pids = ",".join(map(str, running.roles))
        command = ["perf", "record", "--freq", "499", "--output", str(samples), "--pid", pids]
        try:
            perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - our own command
        except OSError as error:
            raise MeasurementError("`perf` cannot be run") from error
        try:
            yield
        finally:
            perf.terminate()
            perf.wait()

    return during


def _shares(samples: Path) -> dict[str, float]:
    command = [
        "perf",
        "report",
        "--stdio",
        "--input",
        str(samples),
        "--sort",
        "dso,symbol",
        "--percent-limit",
        "0",
    ]
    result = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own command
    shares: dict[str, float] = defaultdict(float)
    for line in result.stdout.splitlines():
        if match := _PERF_LINE.match(line):
            shares[part_of(f"{match[2]} [{match[3]}] {match[4]}")] += float(match[1])
    if not shares:
        raise MeasurementError(f"`perf` recorded no samples: {result.stderr.strip()[-200:]}")
    return dict(sorted(shares.items(), key=lambda measurement: -measurement[1]))


def part_of(sample: str) -> str:
    """Return the part of the budget that a sample belongs to."""
    return next((part for part, pattern in _BUDGET if re.search(pattern, sample)), "other")
