"""Segments full of spans, laid out by the core as the intake does it; times are the caller's."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

from benchmarks.store.press import Body
from receiver import transcode
from receiver.load.traffic import Shape
from receiver.model import ContentKind, Delivery, SegmentId
from receiver.settings import Settings

SEGMENT_ROWS = 200_000
"""As the intake seals them under load."""
BODY_SPANS = 520
GROUP_BODIES = 20
"""Of one commit, which is one block."""
BODY_BYTES_MAX = 16 << 20
DAYS = 10
VARIED_MAX = 1_000_000
BYTES_PER_VARIED_SPAN = 2_500
"""Memory of a span that is kept to be sent again under other ids."""
EPOCH = 0x5EED
DIGEST_KEY = bytes(32)


def varied(spans: int) -> int:
    """How many spans differ in all that is random: each comes some ten times, a day apart or hours."""
    return min(VARIED_MAX, max(16 * BODY_SPANS, spans // 10))


def days_before(now: datetime) -> tuple[datetime, datetime]:
    """The ten whole days (UTC) before today: from, to."""
    to = datetime(now.year, now.month, now.day, tzinfo=UTC)
    return to - timedelta(days=DAYS), to


def spread_over(spans: int, began: datetime, ended: datetime) -> Iterator[int]:
    """When each request arrives, in nanoseconds: evenly, the last a little before the end."""
    bodies = -(-spans // BODY_SPANS)
    first_ns, step_ns = (
        int(began.timestamp()) * 10**9,
        int((ended - began).total_seconds() * 10**9) // (bodies + 1),
    )
    return (first_ns + number * step_ns for number in range(1, bodies + 1))


class Press:
    """Makes segments."""

    def __init__(self, varied_spans: int, seed: int = 1) -> None:
        shape = Shape(spans=BODY_SPANS, seed=seed)
        made = [Body(shape, ordinal) for ordinal in range(-(-varied_spans // BODY_SPANS))]
        self._bodies = itertools.cycle(made)
        self._dice = Random(seed)  # noqa: S311 - test data
        self._policy = transcode.policy(Settings())
        self._seqs = itertools.count(1)

    def segment(self, path: Path, times_ns: Iterable[int]) -> SegmentId:
        """Write one whose requests arrive at these times."""
        identity = SegmentId(EPOCH, next(self._seqs))
        records = bytearray()
        times = iter(times_ns)
        while group := list(itertools.islice(times, GROUP_BODIES)):
            records += self._record(group, identity)
        path.write_bytes(records + transcode.footer(bytes(records)))
        return identity

    def _record(self, times_ns: Sequence[int], segment: SegmentId) -> bytes:
        done = transcode.commit(
            self._policy, [self._delivery(at_ns) for at_ns in times_ns], segment, DIGEST_KEY
        )
        if done.rows != len(times_ns) * BODY_SPANS:
            raise AssertionError(f"{done.rows} rows of {len(times_ns)} requests; expected all of their spans")
        return done.record

    def _delivery(self, at_ns: int) -> Delivery:
        body = next(self._bodies).filled(self._dice, at_ns)
        return Delivery(
            "bench", body, ContentKind.PROTOBUF, (), at_ns, strict=False, body_bytes_max=BODY_BYTES_MAX
        )
