"""Arithmetic of ledger lines: counts, and the contribution of a segment to them. This module opens no files.

    received = stored + sampled out + rejected + duplicate + dead + deleted (+ in the journal)

"Received" counts the spans of durable deliveries by the hour of receipt. A duplicate delivery counts all its
spans as duplicate, for any outcome of the first delivery. "Dead" counts the rows that became dead letters
and were not replayed, even if the dead letter was dropped. "Deleted" counts stored spans that an operator or
the limit of disk space deleted; spans that expire stay counted as stored.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from receiver.engine.store import RowSum
from receiver.journal.frame import Answered
from receiver.model import Heading
from receiver.redelivery.decisions import DUPLICATE

OTHER = "(other)"
"""Project name for spans whose projects are not counted separately."""
UNKNOWN = "(unknown)"
"""Drain name for lost spans whose drain is unknown. No drain can have this name."""
CHECKSUMS = 1 << 64
"""Modulus of the checksums."""
HOUR_NS = 3_600 * 10**9
HOUR_MS = 3_600 * 10**3

Rest = Literal["dead", "duplicate"]
"""Outcome of rows that were accepted but are not in the store."""


class Counts(NamedTuple):
    received: int = 0
    stored: int = 0
    sampled_out: int = 0
    rejected: int = 0
    duplicate: int = 0
    dead: int = 0
    checksum: int = 0
    """Checksum of the stored rows, as the store computes it (`ROW_CHECKSUM`); additive modulo 2^64."""
    deleted: int = 0
    """After the checksum, because older logs end there."""

    def plus(self, other: Counts) -> Counts:
        total = Counts(*(left + right for left, right in zip(self, other, strict=True)))
        return total._replace(checksum=total.checksum % CHECKSUMS)

    def minus(self, other: Counts) -> Counts:
        # The store's checksum wraps, so a difference below 0 must wrap as well.
        difference = Counts(*(left - right for left, right in zip(self, other, strict=True)))
        return difference._replace(checksum=difference.checksum % CHECKSUMS)

    @property
    def spans(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in OUTCOMES}

    @property
    def unaccounted(self) -> int:
        """Received spans without an outcome."""
        outcomes = self.spans
        return outcomes.pop("received") - sum(outcomes.values())


OUTCOMES = tuple(name for name in Counts._fields if name != "checksum")
"""Names of the counts: every field except the checksum."""
_RECEIVED, _STORED, _SAMPLED_OUT, _REJECTED, _DUPLICATE = _OF_DELIVERIES = range(5)

Lines = Mapping[Heading, Counts]


def received_of(deliveries: Iterable[Answered]) -> Counter[Heading]:
    """Count the received spans of deliveries by heading."""
    received: Counter[Heading] = Counter()
    for delivery in deliveries:
        for tally in delivery.tallies:
            received[_heading(delivery, tally.project)] += tally.received
    return received


def lines_of(
    deliveries: Iterable[Answered],
    verdicts: bytes,
    *,
    stored: Mapping[Heading, int] | None = None,
    rest: Rest = "duplicate",
) -> dict[Heading, Counts]:
    """Sum up the outcomes of a segment's deliveries.

    `stored`: rows of the segment in the store; `None` if all are stored. Missing rows get the outcome `rest`.
    """
    sums: defaultdict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0] * len(_OF_DELIVERIES))
    for delivery, verdict in zip(deliveries, verdicts, strict=True):
        drain, hour = delivery.drain, delivery.received_at_ns // HOUR_NS
        for tally in delivery.tallies:
            # Plain lists, because creating a named tuple for each tally is slow.
            line = sums[drain, tally.project, hour]
            line[_RECEIVED] += tally.received
            if verdict == DUPLICATE:
                line[_DUPLICATE] += tally.received
            else:
                line[_STORED] += tally.stored
                line[_SAMPLED_OUT] += tally.sampled_out
                line[_REJECTED] += tally.rejected
    lines = {Heading(*heading): Counts(*line) for heading, line in sums.items()}
    if stored is None:
        return lines
    return {heading: _with_missing(counts, stored.get(heading, 0), rest) for heading, counts in lines.items()}


def lost(rows: int, hour: int) -> dict[Heading, Counts]:
    """Return a line for accepted rows that were lost to disk damage and whose drain is unknown."""
    return {Heading(UNKNOWN, OTHER, hour): Counts(received=rows, dead=rows)} if rows else {}


def unanswered(rows: int, stored: Mapping[Heading, int], hour: int) -> dict[Heading, Counts]:
    """Sum up rows without delivery records. The store attributes stored rows; all other rows are lost."""
    lines = {
        heading: Counts(received=stored_rows, stored=stored_rows) for heading, stored_rows in stored.items()
    }
    return lines | lost(max(0, rows - sum(stored.values())), hour)


def with_unanswered(
    lines: Lines, rows: int, stored: Mapping[Heading, int], hour: int
) -> dict[Heading, Counts]:
    """Add the remaining rows of a segment to `lines` when some of its delivery records are unreadable."""
    unlisted = {
        heading: stored_rows - lines.get(heading, Counts()).stored for heading, stored_rows in stored.items()
    }
    listed = sum(counts.stored + counts.dead for counts in lines.values())
    unlisted = {heading: unlisted_rows for heading, unlisted_rows in unlisted.items() if unlisted_rows > 0}
    rest = unanswered(rows - listed, unlisted, hour)
    return {
        heading: lines.get(heading, Counts()).plus(rest.get(heading, Counts())) for heading in {*lines, *rest}
    }


def replayed(
    deliveries: Iterable[Answered], verdicts: bytes, stored: Mapping[Heading, int]
) -> dict[Heading, Counts]:
    """Sum up a segment of replayed dead letters, which were recorded as dead before."""
    outcomes: dict[Heading, Counts] = {heading: Counts(stored=rows) for heading, rows in stored.items()}
    for delivery, verdict in zip(deliveries, verdicts, strict=True):
        for tally in delivery.tallies if verdict == DUPLICATE else ():
            heading = _heading(delivery, tally.project)
            outcomes[heading] = outcomes.get(heading, Counts()).plus(Counts(duplicate=tally.stored))
    return {
        # The negative count removes the spans from `dead`, where the earlier record of their first delivery
        # put them.
        heading: counts._replace(dead=-counts.stored - counts.duplicate)
        for heading, counts in outcomes.items()
    }


def deleted(rows: Mapping[Heading, RowSum]) -> dict[Heading, Counts]:
    """Count stored rows as deleted."""
    return {
        heading: Counts()
        .minus(Counts(stored=row_sum.rows, checksum=row_sum.checksum))
        ._replace(deleted=row_sum.rows)
        for heading, row_sum in rows.items()
    }


def with_checksums(lines: Lines, checksums: Mapping[Heading, int]) -> dict[Heading, Counts]:
    """Add the checksums of the stored rows to a segment's lines."""
    return {
        heading: lines.get(heading, Counts())._replace(checksum=checksums.get(heading, 0))
        for heading in {*lines, *checksums}
    }


def _heading(delivery: Answered, project: str) -> Heading:
    return Heading(delivery.drain, project, delivery.received_at_ns // HOUR_NS)


def _with_missing(counts: Counts, stored: int, rest: Rest) -> Counts:
    missing = max(0, counts.stored - stored)
    if rest == "dead":
        return counts._replace(stored=counts.stored - missing, dead=counts.dead + missing)
    return counts._replace(stored=counts.stored - missing, duplicate=counts.duplicate + missing)
