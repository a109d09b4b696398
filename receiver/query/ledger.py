"""What became of every span: lines by drain, project and hour of receipt, and how the table compares.

    received = stored + sampled out + rejected + duplicate + dead + in the journal

The table is compared only in rows of our own segments, and only where nothing can move: what was inserted or
booked while the table was being counted is left out on both sides. Compared are the number of rows, their
checksum (rows deleted and others doubled do not cancel out) and whether the companion table finds them by
trace id. Rows that may have expired make an hour `unverifiable`, not `different`. Rows of intake starts that
the ledger does not know are counted by start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from receiver.errors import MalformedBody
from receiver.model import Heading
from receiver.query.ledger_table import Rows, TableRows, UnknownEpoch, read_table, unknown_epochs
from receiver.query.spans import parse_since
from receiver.settings import Store as StoreSettings
from receiver.storage.balance import Balance
from receiver.storage.ledger import Watch
from receiver.storage.ledger_lines import OTHER, Counts
from receiver.storage.store import Store

T = TypeVar("T")

HOUR_S = 3_600
SINCE = "24h"
TRIES_MAX = 3
"""A difference is reported when it is found this often in a row."""
CLOCK_MARGIN_HOURS = 2
"""How far the store's clock may be ahead of ours, and that a row is from anywhere in its hour."""

Verdict = Literal["same", "different", "unverifiable"]


class Stock(Protocol):
    """Source of balances: `receiver.storage.balance`."""

    def balance(self) -> Balance:
        """Take stock."""

    def around(self, ask: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """Call `ask` between two balances; returns its answer, the second and what was booked between."""


class Asked(NamedTuple):
    """A question about the ledger."""

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
    problem: str = ""


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
    """Spans received that are nowhere. Anything but 0 is a defect."""
    table: int | None = None
    """Rows counted in the table; `None`: it was not compared."""
    verdict: str = ""
    problem: str = ""
    """How the rows differ from what was booked; empty: they do not."""


class Unknown(msgspec.Struct, frozen=True):
    """Rows in the table that no segment of this ledger accounts for."""

    epoch: str
    """The intake start that wrote them."""
    rows: int
    first: str
    last: str
    """Hours of receipt, as in a line."""
    is_lost: bool
    """They are this receiver's, and the ledger should know them. Else they may be another receiver's."""


class Answer(msgspec.Struct, frozen=True):
    """The ledger, as it is printed."""

    taken_at: str
    since: str
    complete_from: str
    """Nothing is missing from this hour on; empty: nothing ever."""
    trouble: str
    """Losses of history that are not acknowledged; empty: none."""
    lines: list[Line]
    unknown: list[Unknown]
    """Rows of intake starts that the ledger does not know; counted only when the table is compared."""


def asked_for(query: Mapping[str, str], *, now_s: float, lives_hours: int | None) -> Asked:
    """Parse a question. Raises `MalformedBody`."""
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
    """Answer what became of every span, compared with the table if that is asked."""
    unknown: list[Unknown] = []
    if asked.verify:
        balance, compared, epochs = verified(stock, opened := store(), asked)
        unknown = [_unknown(epoch, balance, is_ours=opened.embedded) for epoch in epochs]
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
        unknown=unknown,
    )


class Verified(NamedTuple):
    """The ledger beside the table."""

    balance: Balance
    compared: dict[Heading, Compared]
    unknown: Sequence[UnknownEpoch]


def verified(stock: Stock, store: Store, asked: Asked) -> Verified:
    """Compare with the table, again when there is a difference: it may be a clock that was set just then."""
    for _ in range(TRIES_MAX):
        (table, before), balance, seen = stock.around(lambda before: (_read(store, before, asked), before))
        moving = seen.since | balance.waiting
        found: dict[Heading, Rows] = {}
        for heading, segment, rows in table.by_segment:
            if segment not in moving:
                found[heading] = found.get(heading, Rows()).plus(rows)
        stored = {
            heading: _expected(counts, seen.lines.get(heading, Counts()))
            for heading, counts in balance.sums.lines.items()
            if heading.hour >= asked.since_hour
        }
        compared = compare(stored, found, balance.sums.complete_from_hour, asked)
        if all(one.verdict != "different" for one in compared.values()):
            break
    return Verified(balance, compared, unknown_epochs(table.by_epoch, before, balance))


def compare(
    stored: Mapping[Heading, Rows], table: Mapping[Heading, Rows], complete_from_hour: int, asked: Asked
) -> dict[Heading, Compared]:
    """Compare what should be there with what is. Projects the ledger does not name are counted together."""
    placed: dict[Heading, Rows] = {}
    for heading, rows in table.items():
        other = heading._replace(project=OTHER)
        at = heading if heading in stored or other not in stored else other
        placed[at] = placed.get(at, Rows()).plus(rows)
    sure_from_hour = 0
    if asked.lives_hours is not None:
        sure_from_hour = int(asked.now_s // HOUR_S) - asked.lives_hours + CLOCK_MARGIN_HOURS
    compared = {}
    for heading in {*stored, *placed}:
        expected, found = stored.get(heading, Rows()), placed.get(heading, Rows())
        problem = _problem(expected, found)
        may_be_gone = found.rows < expected.rows and heading.hour < sure_from_hour
        verdict: Verdict = "different" if problem else "same"
        if problem and not found.unreachable and (may_be_gone or heading.hour < complete_from_hour):
            verdict = "unverifiable"
        compared[heading] = Compared(found.rows, verdict, problem)
    return compared


def _problem(expected: Rows, found: Rows) -> str:
    """Describe how the rows of a line differ from those that were booked; empty: they do not."""
    problems = []
    if found.rows < expected.rows:
        problems.append(f"{_rows_are(expected.rows - found.rows)} missing")
    elif found.rows > expected.rows:
        problems.append(f"{_rows_are(found.rows - expected.rows)} too many")
    elif found.checksum != expected.checksum:
        problems.append("as many rows as were stored, but not the same ones")
    if found.unreachable:
        problems.append(f"{_rows_are(found.unreachable)} not found by trace id")
    return "; ".join(problems)


def _rows_are(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


def _read(store: Store, before: Balance, asked: Asked) -> TableRows:
    return read_table(store, before, asked.since_hour, asked.now_s)


def _expected(counts: Counts, booked_meanwhile: Counts) -> Rows:
    rest = counts.minus(booked_meanwhile)
    return Rows(rest.stored, rest.checksum)


def _unknown(epoch: UnknownEpoch, balance: Balance, *, is_ours: bool) -> Unknown:
    """Judge an unknown epoch. Nobody else writes to an embedded store; to a server other receivers do."""
    is_lost = is_ours and epoch.last_hour >= balance.sums.complete_from_hour
    return Unknown(epoch.epoch, epoch.rows, _hour(epoch.first_hour), _hour(epoch.last_hour), is_lost=is_lost)


def _trouble(losses: Sequence[str]) -> str:
    return f"ledger is missing or damaged: {'; '.join(losses)}" if losses else ""


def _is_wanted(heading: Heading, asked: Asked) -> bool:
    return (
        heading.hour >= asked.since_hour
        and asked.project in {None, heading.project}
        and asked.drain in {None, heading.drain}
    )


def _line(heading: Heading, counts: Counts, journal: int, compared: Compared | None) -> Line:
    spans = counts.spans | {"received": counts.received + journal}
    return Line(
        drain=heading.drain,
        project=heading.project,
        hour=_hour(heading.hour),
        **spans,
        journal=journal,
        difference=counts.unaccounted,
        table=compared.table if compared else None,
        verdict=compared.verdict if compared else "",
        problem=compared.problem if compared else "",
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
