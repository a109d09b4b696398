"""What became of every span: lines by drain, project and hour of receipt, and how the table compares.

    received = stored + sampled out + rejected + duplicate + dead + in the journal

The table is compared only in rows of our own segments, and only where nothing can move: what was inserted or
booked while the table was being counted is left out on both sides. Rows that may have expired are missed by
nobody: such an hour is `unverifiable`, not `different`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from receiver.errors import MalformedBody
from receiver.model import Heading, SegmentId
from receiver.query.limits import SETTINGS
from receiver.query.spans import parse_since
from receiver.settings import Store as StoreSettings
from receiver.storage.balance import Balance
from receiver.storage.ledger import Watch
from receiver.storage.ledger_lines import HOUR_MS, OTHER, Counts
from receiver.storage.store import TABLE, Parameters, Store

T = TypeVar("T")

HOUR_S = 3_600
SINCE = "24h"
TRIES_MAX = 3
"""A difference is believed when it is found so often."""
CLOCK_MARGIN_HOURS = 2
"""How far the store's clock may be ahead of ours, and that a row is from anywhere in its hour."""
RECENT_S = 600
"""Rows received so lately are asked for segment by segment: they may move while they are counted."""

_TABLE = f"""
SELECT
    Drain, ProjectId, toUInt32(intDiv(toUnixTimestamp64Milli(ReceivedAt), {HOUR_MS})) AS Hour,
    ReceivedAt >= fromUnixTimestamp64Milli({{recent_ms:Int64}}, 'UTC')
        OR SegmentSeq IN {{seqs:Array(UInt64)}} AND SegmentEpoch IN {{waiting:Array(UInt64)}} AS MayMove,
    if(MayMove, SegmentEpoch, 0) AS Epoch, if(MayMove, SegmentSeq, 0) AS Seq, count()
FROM {TABLE}
WHERE SegmentEpoch IN {{epochs:Array(UInt64)}}
  AND ReceivedAt >= fromUnixTimestamp64Milli({{from_ms:Int64}}, 'UTC')
GROUP BY Drain, ProjectId, Hour, MayMove, Epoch, Seq
{SETTINGS}
"""  # noqa: S608 - constants of ours

Verdict = Literal["same", "different", "unverifiable"]


class Stock(Protocol):
    """Whoever can take stock: `receiver.storage.balance`."""

    def balance(self) -> Balance:
        """Take stock."""

    def around(self, ask: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """Ask something between two looks; also what was booked meanwhile."""


class Asked(NamedTuple):
    """What somebody wants to see."""

    since_hour: int
    now_s: float
    project: str | None = None
    drain: str | None = None
    verify: bool = False
    lives_hours: int | None = None
    """A row cannot expire within so many hours of its receipt; `None`: it never does."""


class Compared(NamedTuple):
    """What the table says of one line."""

    table: int
    verdict: Verdict


class Line(msgspec.Struct, frozen=True):
    """Spans of one drain and project, received in one hour."""

    drain: str
    project: str
    hour: str
    """UTC, ISO 8601; empty: all that is older than the hours that are kept."""
    received: int
    stored: int
    sampled_out: int
    rejected: int
    duplicate: int
    dead: int
    journal: int
    difference: int
    """What was received and is nowhere. 0, or there is a defect."""
    table: int | None = None
    """Rows counted there; `None`: nobody asked."""
    verdict: str = ""


class Answer(msgspec.Struct, frozen=True):
    """The ledger, as it is printed."""

    taken_at: str
    since: str
    complete_from: str
    """Nothing is missing from this hour on; empty: nothing ever."""
    trouble: str
    """Why something may be missing all the same; empty: nothing was found wrong."""
    lines: list[Line]


def asked_for(query: Mapping[str, str], *, now_s: float, lives_hours: int | None) -> Asked:
    """Read what is wanted. Raises `MalformedBody`."""
    return Asked(
        since_hour=max(0, _since_s(query.get("since") or SINCE, now_s) // HOUR_S),
        now_s=now_s,
        project=query.get("project"),
        drain=query.get("drain"),
        verify=query.get("verify", "") not in {"", "0", "false"},
        lives_hours=lives_hours,
    )


def lives_hours(settings: StoreSettings) -> int | None:
    """How long a row lives at least: spans that would go sooner are stored under their receive time."""
    days = min(settings.retention_days, settings.late_margin_days)
    return days * 24 if settings.retention_days else None


def ledger(stock: Stock, store: Callable[[], Store], asked: Asked) -> Answer:
    """Print the ledger."""
    if asked.verify:
        balance, compared = verified(stock, store(), asked)
    else:
        balance, compared = stock.balance(), {}
    lines = balance.sums.lines
    headings = {*lines, *balance.journal, *compared}
    wanted = sorted((one for one in headings if _is_wanted(one, asked)), key=lambda one: (one.hour, *one))
    return Answer(
        taken_at=_instant(asked.now_s),
        since=_hour(asked.since_hour),
        complete_from=_hour(balance.sums.complete_from_hour),
        trouble=_trouble(balance.sums.losses),
        lines=[
            _line(one, lines.get(one, Counts()), balance.journal.get(one, 0), compared.get(one))
            for one in wanted
        ],
    )


def verified(stock: Stock, store: Store, asked: Asked) -> tuple[Balance, dict[Heading, Compared]]:
    """Compare with the table, again when there is a difference: it may be a clock that was set just then."""
    for _ in range(TRIES_MAX):
        rows, balance, seen = stock.around(lambda before: _counted(store, before, asked))
        moving = seen.since | balance.waiting
        table: Counter[Heading] = Counter()
        for heading, segment, count in rows:
            if segment not in moving:
                table[heading] += count
        stored = {
            heading: counts.stored - seen.lines.get(heading, Counts()).stored
            for heading, counts in balance.sums.lines.items()
            if heading.hour >= asked.since_hour
        }
        compared = compare(stored, table, balance.sums.complete_from_hour, asked)
        if all(one.verdict != "different" for one in compared.values()):
            break
    return balance, compared


def compare(
    stored: Mapping[Heading, int], table: Mapping[Heading, int], complete_from_hour: int, asked: Asked
) -> dict[Heading, Compared]:
    """Hold what should be there against what is. Projects the ledger does not name are counted together."""
    placed: Counter[Heading] = Counter()
    for heading, count in table.items():
        other = heading._replace(project=OTHER)
        placed[heading if heading in stored or other not in stored else other] += count
    sure_from_hour = 0
    if asked.lives_hours is not None:
        sure_from_hour = int(asked.now_s // HOUR_S) - asked.lives_hours + CLOCK_MARGIN_HOURS
    compared = {}
    for heading in {*stored, *placed}:
        expected, found = stored.get(heading, 0), placed[heading]
        may_be_gone = found < expected and heading.hour < sure_from_hour
        if expected == found:
            verdict: Verdict = "same"
        else:
            verdict = "unverifiable" if may_be_gone or heading.hour < complete_from_hour else "different"
        compared[heading] = Compared(found, verdict)
    return compared


def _counted(store: Store, before: Balance, asked: Asked) -> list[tuple[Heading, SegmentId, int]]:
    """Count the table in one statement: one state of it."""
    parameters: Parameters = {
        "from_ms": asked.since_hour * HOUR_MS,
        "recent_ms": int(asked.now_s - RECENT_S) * 1_000,
        "seqs": sorted({segment.seq for segment in before.waiting}),
        "waiting": sorted({segment.epoch for segment in before.waiting}),
        "epochs": sorted({*before.sums.epochs, *(segment.epoch for segment in before.waiting)}),
    }
    return [
        (Heading(drain, project, hour), SegmentId(epoch, seq), count)
        for drain, project, hour, _, epoch, seq, count in store.rows(_TABLE, parameters)
    ]


def _trouble(losses: Sequence[str]) -> str:
    return f"ledger is missing or damaged: {'; '.join(losses)}" if losses else ""


def _is_wanted(heading: Heading, asked: Asked) -> bool:
    return (
        heading.hour >= asked.since_hour
        and asked.project in {None, heading.project}
        and asked.drain in {None, heading.drain}
    )


def _line(heading: Heading, counts: Counts, journal: int, compared: Compared | None) -> Line:
    told = counts._replace(received=counts.received + journal)
    return Line(
        drain=heading.drain,
        project=heading.project,
        hour=_hour(heading.hour),
        **told._asdict(),
        journal=journal,
        difference=told.unaccounted - journal,
        table=compared.table if compared else None,
        verdict=compared.verdict if compared else "",
    )


def _since_s(text: str, now_s: float) -> int:
    """Read an age like `24h`, or an instant in ISO 8601."""
    try:
        instant = datetime.fromisoformat(text)
    except ValueError:
        pass
    else:
        return int((instant if instant.tzinfo else instant.replace(tzinfo=UTC)).timestamp())
    try:
        return int(now_s) - parse_since(text)
    except MalformedBody as reason:
        raise MalformedBody(f"{reason}, or an instant, like 2026-01-31T10:00Z", field="since") from reason


def _hour(hour: int) -> str:
    return _instant(hour * HOUR_S) if hour else ""


def _instant(seconds: float) -> str:
    try:
        return datetime.fromtimestamp(int(seconds), UTC).strftime("%Y-%m-%dT%H:%MZ")
    except (OverflowError, ValueError, OSError) as reason:
        text = "since is no time of this calendar; expected one like 24h"
        raise MalformedBody(text, field="since") from reason
