"""Ledger query: span counts by outcome per drain, project and hour of receipt, compared with the table.

    received = stored + sampled out + rejected + duplicate + dead + in the journal

The comparison covers rows of our own segments and leaves out on both sides the rows that were inserted or
recorded during the count. It compares the number of rows, their checksum (so deleted and doubled rows do not
cancel out) and whether the companion table finds them by trace id. Rows that may have expired make an hour
`unverifiable`, not `different`. Rows of epochs that the ledger does not know are counted by epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal, NamedTuple, Protocol, TypeVar

import msgspec

from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.ledger.balance import Balance
from receiver.ledger.ledger import Watch
from receiver.ledger.line_sums import OTHER, Counts
from receiver.model import Heading
from receiver.query.ledger_table import Rows, TableRows, UnknownEpoch, read_table, unknown_epochs
from receiver.query.spans import parse_since
from receiver.settings import Store as StoreSettings

T = TypeVar("T")

HOUR_S = 3_600
SINCE = "24h"
TRIES_MAX = 3
"""A difference is reported only if this many consecutive comparisons find it."""
CLOCK_MARGIN_HOURS = 2
"""Margin for a store clock ahead of the receiver's and for the position of a row in its hour."""

Verdict = Literal["same", "different", "unverifiable"]


class BalanceSource(Protocol):
    """Source of balances: `receiver.ledger.balance`."""

    def balance(self) -> Balance:
        """Return the current balance."""

    def around(self, ask: Callable[[Balance], T]) -> tuple[T, Balance, Watch]:
        """Call `ask` between two balances; return its result, the second balance and entries in between."""


class LedgerQuery(NamedTuple):
    """Filters of a ledger query."""

    since_hour: int
    now_s: float
    project: str | None = None
    drain: str | None = None
    verify: bool = False
    row_lifetime_hours: int | None = None
    """Hours after receipt in which a row cannot expire; `None`: it never expires."""


class Compared(NamedTuple):
    """Result of comparing one line with the table."""

    table: int
    verdict: Verdict
    problem: str = ""


class Line(msgspec.Struct, frozen=True):
    """Spans of one drain and project, received in one hour."""

    drain: str
    project: str
    hour: str
    """UTC, ISO 8601; empty: all hours older than those that are kept."""
    received: int
    stored: int
    sampled_out: int
    rejected: int
    duplicate: int
    dead: int
    journal: int
    difference: int
    """Received spans without an outcome. Any value but 0 is a bug."""
    table: int | None = None
    """Rows counted in the table; `None`: it was not compared."""
    verdict: str = ""
    problem: str = ""
    """Difference between the rows and the ledger; empty: none."""


class Unknown(msgspec.Struct, frozen=True):
    """Rows in the table from an epoch that this ledger does not know."""

    epoch: str
    """Epoch of the intake that wrote them."""
    rows: int
    first: str
    last: str
    """Hours of receipt, formatted as in a line."""
    is_lost: bool
    """True: this receiver wrote them and the ledger lost them. False: another receiver may have."""


class Answer(msgspec.Struct, frozen=True):
    """Response of a ledger query."""

    taken_at: str
    since: str
    complete_from: str
    """First hour of the complete history; empty: the whole history is complete."""
    trouble: str
    """Losses of history that no operator has acknowledged; empty: none."""
    lines: list[Line]
    unknown: list[Unknown]
    """Rows of epochs that the ledger does not know; filled only if the table is compared."""


def parse_ledger_query(
    query: Mapping[str, str], *, now_s: float, row_lifetime_hours: int | None
) -> LedgerQuery:
    """Parse the parameters of a ledger query. Raises `MalformedBody`."""
    return LedgerQuery(
        since_hour=max(0, _since_s(query.get("since") or SINCE, now_s) // HOUR_S),
        now_s=now_s,
        project=query.get("project"),
        drain=query.get("drain"),
        verify=query.get("verify", "") not in {"", "0", "false"},
        row_lifetime_hours=row_lifetime_hours,
    )


def row_lifetime_hours(settings: StoreSettings) -> int | None:
    """Return the minimum row lifetime: spans that would expire sooner are stored with the receive time."""
    days = min(settings.retention_days, settings.late_margin_days)
    return days * 24 if settings.retention_days else None


def ledger(stock: BalanceSource, store: Callable[[], Store], asked: LedgerQuery) -> Answer:
    """Return span counts by outcome, compared with the table if the query asks for it."""
    unknown: list[Unknown] = []
    if asked.verify:
        balance, compared, epochs = verified(stock, opened := store(), asked)
        unknown = [_unknown(epoch, balance, is_ours=opened.embedded) for epoch in epochs]
    else:
        balance, compared = stock.balance(), {}
    lines = balance.sums.lines
    headings = {*lines, *balance.journal, *compared}
    wanted = sorted(
        (heading for heading in headings if _matches(heading, asked)),
        key=lambda heading: (heading.hour, *heading),
    )
    return Answer(
        taken_at=_instant(asked.now_s),
        since=_hour(asked.since_hour),
        complete_from=_hour(balance.sums.complete_from_hour),
        trouble=_trouble(balance.sums.losses),
        lines=[
            _line(
                heading, lines.get(heading, Counts()), balance.journal.get(heading, 0), compared.get(heading)
            )
            for heading in wanted
        ],
        unknown=unknown,
    )


class Verified(NamedTuple):
    """A balance and its comparison with the table."""

    balance: Balance
    compared: dict[Heading, Compared]
    unknown: Sequence[UnknownEpoch]


def verified(stock: BalanceSource, store: Store, asked: LedgerQuery) -> Verified:
    """Compare with the table; repeat on a difference, because a clock change may have caused it."""
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
        if all(line.verdict != "different" for line in compared.values()):
            break
    return Verified(balance, compared, unknown_epochs(table.by_epoch, before, balance))


def compare(
    stored: Mapping[Heading, Rows], table: Mapping[Heading, Rows], complete_from_hour: int, asked: LedgerQuery
) -> dict[Heading, Compared]:
    """Compare ledger and table. Rows of projects that the ledger does not name are counted together."""
    placed: dict[Heading, Rows] = {}
    for heading, rows in table.items():
        other = heading._replace(project=OTHER)
        at = heading if heading in stored or other not in stored else other
        placed[at] = placed.get(at, Rows()).plus(rows)
    sure_from_hour = 0
    if asked.row_lifetime_hours is not None:
        sure_from_hour = int(asked.now_s // HOUR_S) - asked.row_lifetime_hours + CLOCK_MARGIN_HOURS
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
    """Describe how the rows of a line differ from the ledger; empty: they do not."""
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


def _read(store: Store, before: Balance, asked: LedgerQuery) -> TableRows:
    return read_table(store, before, asked.since_hour, asked.now_s)


def _expected(counts: Counts, recorded_meanwhile: Counts) -> Rows:
    rest = counts.minus(recorded_meanwhile)
    return Rows(rest.stored, rest.checksum)


def _unknown(epoch: UnknownEpoch, balance: Balance, *, is_ours: bool) -> Unknown:
    """Report an unknown epoch. Only this receiver writes to an embedded store; others may share a server."""
    is_lost = is_ours and epoch.last_hour >= balance.sums.complete_from_hour
    return Unknown(epoch.epoch, epoch.rows, _hour(epoch.first_hour), _hour(epoch.last_hour), is_lost=is_lost)


def _trouble(losses: Sequence[str]) -> str:
    return f"ledger is missing or damaged: {'; '.join(losses)}" if losses else ""


def _matches(heading: Heading, asked: LedgerQuery) -> bool:
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
    """Parse an age like `24h` or an instant in ISO 8601."""
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
        text = "since is out of range; expected an age like 24h"
        raise MalformedBody(text, field="since") from reason
