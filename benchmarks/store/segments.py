"""Generator of segment files, encoded by the core like those of the intake, with given arrival times."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from benchmarks.store.bodies import Body
from receiver import transcode
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Settings
from trace_drain_testing.load.traffic import Shape

SEGMENT_ROWS = 200_000
"""Approximate rows of a segment that the intake seals under load."""
BODY_SPANS = 520
GROUP_BODIES = 20
"""Bodies per commit, which writes one block."""
BODY_BYTES_MAX = 16 << 20
DAYS = 10
VARIED_MAX = 1_000_000
PROJECTS = 20
BYTES_PER_VARIED_SPAN = 2_500
"""Memory per span of the templates, which are reused with other ids."""
EPOCH = 0x5EED
DIGEST_KEY = bytes(32)


def varied(spans: int, projects: int = PROJECTS) -> int:
    """Return the number of different templates' spans; each is used about ten times, hours or a day apart.

    A template belongs to one project, so each project gets about two.
    """
    return min(VARIED_MAX, max(16 * BODY_SPANS, 2 * projects * BODY_SPANS, spans // 10))


def days_before(now: datetime) -> tuple[datetime, datetime]:
    """Return the start and end of the ten whole days (UTC) before today."""
    to = datetime(now.year, now.month, now.day, tzinfo=UTC)
    return to - timedelta(days=DAYS), to


def spread_over(spans: int, began: datetime, ended: datetime) -> Iterator[int]:
    """Return evenly spaced arrival times in nanoseconds, one per request, all before the end."""
    bodies = -(-spans // BODY_SPANS)
    first_ns, step_ns = (
        int(began.timestamp()) * 10**9,
        int((ended - began).total_seconds() * 10**9) // (bodies + 1),
    )
    return (first_ns + number * step_ns for number in range(1, bodies + 1))


def segment_files(maker: SegmentMaker, spans: int, directory: Path) -> Iterator[tuple[Path, int]]:
    """Yield segment files of the ten days before today, with their rows. Each is deleted after its use."""
    times = spread_over(spans, *days_before(datetime.now(UTC)))
    for number in itertools.count(1):
        if not (arrivals := list(itertools.islice(times, SEGMENT_ROWS // BODY_SPANS))):
            return
        path = directory / f"{number:010d}.native.lz4"
        maker.segment(path, arrivals)
        yield path, len(arrivals) * BODY_SPANS
        path.unlink()


class SegmentMaker:
    """Writer of segment files."""

    def __init__(self, varied_spans: int, seed: int = 1, projects: int = PROJECTS) -> None:
        shape = Shape(spans=BODY_SPANS, seed=seed, projects=projects)
        bodies = [Body(shape, ordinal) for ordinal in range(-(-varied_spans // BODY_SPANS))]
        self._bodies = itertools.cycle(bodies)
        self._dice = Random(seed)  # noqa: S311 - test data
        self._policy = transcode.policy(Settings())
        self._seqs = itertools.count(1)

    def segment(self, path: Path, times_ns: Iterable[int]) -> SegmentId:
        """Write a segment whose requests arrive at these times."""
        identity = SegmentId(EPOCH, next(self._seqs))
        records = bytearray()
        times = iter(times_ns)
        while group := list(itertools.islice(times, GROUP_BODIES)):
            records += self._record(group, identity)
        path.write_bytes(records + transcode.footer(bytes(records)))
        return identity

    def _record(self, times_ns: Sequence[int], segment: SegmentId) -> bytes:
        committed = transcode.commit(
            self._policy, [self._delivery(at_ns) for at_ns in times_ns], segment, DIGEST_KEY
        )
        if committed.rows != len(times_ns) * BODY_SPANS:
            raise AssertionError(
                f"{committed.rows} rows of {len(times_ns)} requests; expected a row per span"
            )
        return committed.record

    def _delivery(self, at_ns: int) -> Delivery:
        body = next(self._bodies).filled(self._dice, at_ns)
        return Delivery(
            "bench", body, ContentKind.PROTOBUF, (), at_ns, strict=False, body_bytes_max=BODY_BYTES_MAX
        )
