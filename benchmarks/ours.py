"""What is asked of this receiver alone: cost and latency at every rate, its start, where its time goes."""

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
from benchmarks.measure import BODIES, Manner, Measured, measure
from benchmarks.peers import READY_S, NotToBeHad, Peer, Running, Site
from benchmarks.processes import Cores, usage_of

RATES = (1_000, 10_000, 50_000)
"""Spans a second, below half of saturation."""
SETTLED_S = 5.0
"""After this a start has ended in all processes."""
IDLE_S = 10.0
PROTOBUF = BODIES[0]
EMPTY = b""
"""A request of no spans, to find out whether anybody answers."""

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
"""Part → what its samples look like; the first that fits."""


def rates(peer: Peer, cores: Cores, duration_s: float, saturation: float) -> list[tuple[float, Measured]]:
    """Cost and latency from next to nothing to half of what it can take."""
    wanted = [rate for rate in RATES if rate < saturation / 2] + [saturation / 2]
    manners = [Manner(cores, duration_s, options=("--rate", f"{rate:.0f}")) for rate in wanted]
    return [(rate, measure(peer, PROTOBUF, one)) for rate, one in zip(wanted, manners, strict=True)]


def intakes(peer: Peer, duration_s: float, count: int, rate: float) -> Measured:
    """So many intakes on all cores, at a rate that all can take."""
    everywhere = Cores.all_of_this_machine()
    return measure(peer, PROTOBUF, Manner(everywhere, duration_s, count, ("--rate", f"{rate:.0f}")))


def idle_cpu_share(peer: Peer, cores: Cores) -> float:
    """Of a core, while nothing comes."""
    with _site(cores) as site, peer.running(site) as running:
        time.sleep(SETTLED_S)
        before = sum(usage_of(pid).cpu_s for pid in running.roles)
        time.sleep(IDLE_S)
        return (sum(usage_of(pid).cpu_s for pid in running.roles) - before) / IDLE_S


def start_s(peer: Peer, cores: Cores) -> float:
    """From the command to the first 200."""
    with _site(cores) as site, answering(peer, site) as (_, first_200_s):
        return first_200_s


@contextmanager
def answering(peer: Peer, site: Site) -> Iterator[tuple[Running, float]]:
    """A receiver that has answered, and seconds from the command to the first 200."""
    began_s = time.monotonic()
    with peer.running(site) as running:
        while not _is_answered(running.url):
            if time.monotonic() - began_s > READY_S:
                raise NotToBeHad(f"no 200 within {READY_S:g} s")
            time.sleep(0.005)
        yield running, time.monotonic() - began_s


@contextmanager
def _site(cores: Cores) -> Iterator[Site]:
    with (
        tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as directory,
        sinks.running(cores.others) as sink,
    ):
        yield Site(Path(directory), sink, cores.receiver)


def _is_answered(url: str) -> bool:
    request = urllib.request.Request(url, EMPTY, {"Content-Type": "application/x-protobuf"})  # noqa: S310 - loopback
    try:
        with urllib.request.urlopen(request, timeout=1) as answer:  # noqa: S310 - as above
            return bool(answer.status == HTTPStatus.OK)
    except (OSError, urllib.error.HTTPError):
        return False


def budget(peer: Peer, cores: Cores, duration_s: float) -> dict[str, float]:
    """CPU seconds per million spans by part, of intake and store together, sampled by `perf`."""
    with tempfile.TemporaryDirectory(prefix="trace-drain-bench-") as directory:
        samples = Path(directory) / "perf.data"
        one = measure(peer, PROTOBUF, Manner(cores, duration_s, beside=_sampled(samples)))
        shares = _shares(samples)
    total = sum(shares.values()) or 1.0
    return {part: share / total * one.cpu_s_per_million for part, share in shares.items()}


def _sampled(samples: Path) -> Callable[[Running], Any]:
    @contextmanager
    def beside(running: Running) -> Iterator[None]:
        pids = ",".join(map(str, running.roles))
        command = ["perf", "record", "--freq", "499", "--output", str(samples), "--pid", pids]
        try:
            perf = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)  # noqa: S603 - ours
        except OSError as reason:
            raise NotToBeHad("no `perf`") from reason
        try:
            yield
        finally:
            perf.terminate()
            perf.wait()

    return beside


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
    said = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - ours
    shares: dict[str, float] = defaultdict(float)
    for line in said.stdout.splitlines():
        if found := _PERF_LINE.match(line):
            shares[part_of(f"{found[2]} [{found[3]}] {found[4]}")] += float(found[1])
    if not shares:
        raise NotToBeHad(f"`perf` sampled nothing: {said.stderr.strip()[-200:]}")
    return dict(sorted(shares.items(), key=lambda one: -one[1]))


def part_of(sample: str) -> str:
    """Which part of the budget a sample belongs to."""
    return next((part for part, looks in _BUDGET if re.search(looks, sample)), "other")
