"""The sums the ledger is made of, and what one segment adds to them. Pure numbers; no files here.

    received = stored + sampled out + rejected + duplicate + dead (+ in the journal)

Received are the spans of deliveries made durable, by the hour of receipt. A duplicate delivery counts all its
spans as duplicate, whatever became of them the first time. Dead are those that were set aside and not
replayed, whether their letter still lies there or was dropped.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import Literal, NamedTuple

from receiver.journal.frame import Answered
from receiver.model import Heading
from receiver.storage.decisions import DUPLICATE

OTHER = "(other)"
"""The project of spans whose project is not counted by name any more."""
UNKNOWN = "(unknown)"
"""The drain of spans that were lost with the note of who sent them. No drain can have this name."""
CHECKSUMS = 1 << 64
"""Checksums are less than this."""
HOUR_NS = 3_600 * 10**9
HOUR_MS = 3_600 * 10**3

Rest = Literal["dead", "duplicate"]
"""What rows are that were accepted and are not stored."""


class Counts(NamedTuple):
    """Spans, by what became of them."""

    received: int = 0
    stored: int = 0
    sampled_out: int = 0
    rejected: int = 0
    duplicate: int = 0
    dead: int = 0
    checksum: int = 0
    """Of the stored rows, as the store computes it (`ROW_CHECKSUM`): modulo 2^64, so it can be added up."""

    def plus(self, other: Counts) -> Counts:
        """Add."""
        total = Counts(*(mine + its for mine, its in zip(self, other, strict=True)))
        return total._replace(checksum=total.checksum % CHECKSUMS)

    def minus(self, other: Counts) -> Counts:
        """Subtract."""
        rest = Counts(*(mine - its for mine, its in zip(self, other, strict=True)))
        return rest._replace(checksum=rest.checksum % CHECKSUMS)

    @property
    def spans(self) -> dict[str, int]:
        """Return the spans by outcome."""
        return dict(zip(OUTCOMES, self, strict=False))

    @property
    def unaccounted(self) -> int:
        """Spans that were received and are nowhere."""
        return self.received - self.stored - self.sampled_out - self.rejected - self.duplicate - self.dead


OUTCOMES = Counts._fields[:-1]
"""What is counted: every field but the checksum."""
_RECEIVED, _STORED, _SAMPLED_OUT, _REJECTED, _DUPLICATE, _DEAD = range(len(OUTCOMES))

Lines = Mapping[Heading, Counts]


def received_of(deliveries: Iterable[Answered]) -> Counter[Heading]:
    """Count the spans that deliveries answer for."""
    found: Counter[Heading] = Counter()
    for one in deliveries:
        for tally in one.tallies:
            found[_heading(one, tally.project)] += tally.received
    return found


def lines_of(
    deliveries: Iterable[Answered],
    verdicts: bytes,
    *,
    stored: Mapping[Heading, int] | None = None,
    rest: Rest = "duplicate",
) -> dict[Heading, Counts]:
    """Sum up what became of a segment's deliveries.

    `stored`: what the store holds of it; `None`: all it should hold. Whatever is missing there is `rest`.
    """
    sums: defaultdict[tuple[str, str, int], list[int]] = defaultdict(lambda: [0] * len(OUTCOMES))
    for one, verdict in zip(deliveries, verdicts, strict=True):
        drain, hour = one.drain, one.received_at_ns // HOUR_NS
        for tally in one.tallies:
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
    return {heading: _short(counts, stored.get(heading, 0), rest) for heading, counts in lines.items()}


def lost(rows: int, hour: int) -> dict[Heading, Counts]:
    """Rows that were accepted and that the disk gave back damaged: nobody knows whose they were."""
    return {Heading(UNKNOWN, OTHER, hour): Counts(received=rows, dead=rows)} if rows else {}


def unanswered(rows: int, stored: Mapping[Heading, int], hour: int) -> dict[Heading, Counts]:
    """Sum up rows that outlived the note of who sent them: of those it holds, the store can tell."""
    alive = {heading: Counts(received=held, stored=held) for heading, held in stored.items()}
    return alive | lost(max(0, rows - sum(stored.values())), hour)


def with_unanswered(
    lines: Lines, rows: int, stored: Mapping[Heading, int], hour: int
) -> dict[Heading, Counts]:
    """Add what is left of a segment's rows when some deliveries of it can be told, and others cannot."""
    more = {heading: held - lines.get(heading, Counts()).stored for heading, held in stored.items()}
    told = sum(counts.stored + counts.dead for counts in lines.values())
    rest = unanswered(rows - told, {heading: held for heading, held in more.items() if held > 0}, hour)
    return {one: lines.get(one, Counts()).plus(rest.get(one, Counts())) for one in {*lines, *rest}}


def replayed(
    deliveries: Iterable[Answered], verdicts: bytes, stored: Mapping[Heading, int]
) -> dict[Heading, Counts]:
    """Sum up what became of dead letters that were handed over as this segment. They were booked as dead."""
    alive: dict[Heading, Counts] = {heading: Counts(stored=rows) for heading, rows in stored.items()}
    for one, verdict in zip(deliveries, verdicts, strict=True):
        for tally in one.tallies if verdict == DUPLICATE else ():
            heading = _heading(one, tally.project)
            alive[heading] = alive.get(heading, Counts()).plus(Counts(duplicate=tally.stored))
    return {heading: one._replace(dead=-one.stored - one.duplicate) for heading, one in alive.items()}


def with_checksums(lines: Lines, checksums: Mapping[Heading, int]) -> dict[Heading, Counts]:
    """Add the checksums of the stored rows to a segment's lines."""
    return {
        heading: lines.get(heading, Counts())._replace(checksum=checksums.get(heading, 0))
        for heading in {*lines, *checksums}
    }


def _heading(delivery: Answered, project: str) -> Heading:
    return Heading(delivery.drain, project, delivery.received_at_ns // HOUR_NS)


def _short(counts: Counts, stored: int, rest: Rest) -> Counts:
    missing = max(0, counts.stored - stored)
    if rest == "dead":
        return counts._replace(stored=counts.stored - missing, dead=counts.dead + missing)
    return counts._replace(stored=counts.stored - missing, duplicate=counts.duplicate + missing)
