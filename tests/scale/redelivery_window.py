"""Measures the redelivery window on the digests of many deliveries; not a test. Takes 50 bytes of disk each.

python tests/scale/redelivery_window.py DIRECTORY [DELIVERIES=50000000]
"""

from __future__ import annotations

import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from receiver.model import SegmentId
from receiver.redelivery.window import Window
from receiver.settings import Redelivery

A_SEGMENT = 20_000
"""Deliveries in one segment."""
ASKED = 20_000
ASKED_AT_ONCE = 500


def digest(number: int) -> bytes:
    """One that looks like xxh3's."""
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "little")


def fill(root: Path, count: int) -> None:
    """Accept so many deliveries in a day, then ask for old and new ones, then read it all again."""
    limits = Redelivery(entries_max=count + count // 10)
    clock_s = [0.0]
    window = Window(root, limits, lambda: clock_s[0])
    started_s, slowest_s = time.process_time(), 0.0
    for seq, first in enumerate(range(0, count, A_SEGMENT)):
        begun_s = time.monotonic()
        segment = SegmentId(1, seq)
        digests = [digest(number) for number in range(first, min(count, first + A_SEGMENT))]
        window.decide(segment, digests, bytes(len(digests)))
        window.end(segment, digests)
        window.forget(segment)
        clock_s[0] = (first + A_SEGMENT) / count * 86_000
        window.tick()
        slowest_s = max(slowest_s, time.monotonic() - begun_s)
    say("accepted", f"{(time.process_time() - started_s) / count * 1e6:.1f} us of CPU a delivery")
    say("slowest segment", f"{slowest_s:.1f} s, a generation's end with it")
    ask(window, count)
    window.close()
    started_s = time.monotonic()
    window = Window(root, limits, lambda: clock_s[0])
    say("start", f"{time.monotonic() - started_s:.1f} s to read {len(window)} digests")
    ask(window, count)
    say("disk", f"{sum(path.stat().st_size for path in root.iterdir()) / count:.1f} bytes a delivery")
    say("window", window.shortfall or "whole")


def ask(window: Window, count: int) -> None:
    """Every known one must be known and no other."""
    started_s = time.process_time()
    old = [digest(number) for number in range(0, count, max(1, count // ASKED))]
    if any(window.known(some) != set(some) for some in by_segment(old)):
        raise SystemExit("a delivery is not known; expected all of them")
    known_s = time.process_time()
    new = [digest(number) for number in range(count, count + ASKED)]
    if any(window.known(some) for some in by_segment(new)):
        raise SystemExit("a delivery is known that never came")
    new_s = time.process_time()
    say(
        "asked",
        f"{(known_s - started_s) / ASKED * 1e6:.1f} us known, {(new_s - known_s) / ASKED * 1e6:.1f} us new",
    )
    statm = Path("/proc/self/status").read_text()
    anonymous = next(line.split()[1] for line in statm.splitlines() if line.startswith("RssAnon"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    say("memory", f"{int(anonymous) // 1024} MiB of its own; {peak // 1024} MiB at most with mapped files")


def by_segment(digests: list[bytes]) -> Iterator[list[bytes]]:
    """As many as come at once."""
    return (digests[first : first + ASKED_AT_ONCE] for first in range(0, len(digests), ASKED_AT_ONCE))


def say(what: str, how: str) -> None:
    """One line of the result."""
    os.write(1, f"{what:16} {how}\n".encode())


if __name__ == "__main__":
    fill(Path(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 50_000_000)
