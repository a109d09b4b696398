"""Measurement of the deduplication window with many digests. Takes 50 bytes of disk per delivery.

python benchmarks/redelivery_window.py DIRECTORY [DELIVERIES=50000000]
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

DELIVERIES = 50_000_000
DELIVERIES_PER_SEGMENT = 20_000
LOOKUPS = 20_000
LOOKUPS_AT_ONCE = 500


def digest(number: int) -> bytes:
    """Return a distinct digest whose bytes look random, as those of xxh3 do."""
    return (number * 0x9E3779B97F4A7C15F39CC0605CEDC835 % (1 << 128)).to_bytes(16, "little")


def fill(root: Path, count: int) -> None:
    """Accept `count` deliveries in a simulated day, look up old and new ones, and open the window again."""
    limits = Redelivery(entries_max=count + count // 10)
    clock_s = [0.0]
    window = Window(root, limits, lambda: clock_s[0])
    started_s, slowest_s = time.process_time(), 0.0
    for seq, first in enumerate(range(0, count, DELIVERIES_PER_SEGMENT)):
        segment_started_s = time.monotonic()
        segment = SegmentId(1, seq)
        digests = [digest(number) for number in range(first, min(count, first + DELIVERIES_PER_SEGMENT))]
        window.decide(segment, digests, bytes(len(digests)))
        window.end(segment, digests)
        window.forget(segment)
        clock_s[0] = (first + DELIVERIES_PER_SEGMENT) / count * 86_000
        window.tick()
        slowest_s = max(slowest_s, time.monotonic() - segment_started_s)
    print_result("accepted", f"{(time.process_time() - started_s) / count * 1e6:.1f} us CPU per delivery")
    print_result("slowest segment", f"{slowest_s:.1f} s, including the end of a generation")
    look_up(window, count)
    window.close()
    started_s = time.monotonic()
    window = Window(root, limits, lambda: clock_s[0])
    print_result("start", f"{time.monotonic() - started_s:.1f} s to read {len(window)} digests")
    look_up(window, count)
    print_result(
        "disk", f"{sum(path.stat().st_size for path in root.iterdir()) / count:.1f} bytes a delivery"
    )
    print_result("window", window.shortfall or "complete")


def look_up(window: Window, count: int) -> None:
    """Look up old and new digests: exactly the old ones must be known."""
    started_s = time.process_time()
    old = [digest(number) for number in range(0, count, max(1, count // LOOKUPS))]
    if any(window.known(batch) != set(batch) for batch in by_segment(old)):
        raise SystemExit("an accepted delivery is not known; expected every accepted delivery")
    known_s = time.process_time()
    new = [digest(number) for number in range(count, count + LOOKUPS)]
    if any(window.known(batch) for batch in by_segment(new)):
        raise SystemExit("a delivery is known that was never accepted")
    new_s = time.process_time()
    print_result(
        "lookup",
        f"{(known_s - started_s) / LOOKUPS * 1e6:.1f} us old, {(new_s - known_s) / LOOKUPS * 1e6:.1f} us new",
    )
    statm = Path("/proc/self/status").read_text()
    anonymous = next(line.split()[1] for line in statm.splitlines() if line.startswith("RssAnon"))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print_result("memory", f"{int(anonymous) // 1024} MiB anonymous; peak {peak // 1024} MiB")


def by_segment(digests: list[bytes]) -> Iterator[list[bytes]]:
    """Split the digests into batches as large as a segment's lookup."""
    return (digests[first : first + LOOKUPS_AT_ONCE] for first in range(0, len(digests), LOOKUPS_AT_ONCE))


def print_result(name: str, text: str) -> None:
    """Print one line of the result."""
    os.write(1, f"{name:16} {text}\n".encode())


if __name__ == "__main__":
    directory, *count = sys.argv[1:]
    fill(Path(directory), int(count[0]) if count else DELIVERIES)
