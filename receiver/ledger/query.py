"""Ledger query: span counts by outcome per drain, project and hour of receipt, compared with the table.

    received = stored + sampled out + rejected + duplicate + dead + deleted + in the journal

The comparison covers rows of our own segments and leaves out on both sides the rows that were inserted or
recorded during the count. It compares the number of rows, their checksum (so deleted and doubled rows do not
cancel out) and whether the companion table finds them by trace id. Rows that may have expired make an hour
`unverifiable`, not `different`; so do rows that are being deleted. Rows of epochs that the ledger does not
know are counted by epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from receiver.engine.store import Store
from receiver.errors import MalformedBody
from receiver.ledger.balance import Balance, BalanceSource
from receiver.ledger.line_sums import OTHER, Counts
from receiver.ledger.table import Rows, UnknownEpoch, read_table, unknown_epochs
from receiver.model import Heading
from receiver.reports import LEDGER_SINCE, LedgerLine, LedgerReport, UnknownRows
from receiver.settings import Store as StoreSettings
from receiver.time_range import instant_text, parse_instant, parse_since

HOUR_S = 3_600
TRIES_MAX = 3
"""A difference is reported only if this many consecutive comparisons find it."""
CLOCK_MARGIN_HOURS = 2
"""Margin for a store clock ahead of the receiver's and for the position of a row in its hour."""

Verdict = Literal["same", "different", "unverifiable"]


class LedgerQuery(NamedTuple):
    since_hour: int
    now_s: float
    project: str | None = None
    drain: str | None = None
    verify: bool = False
    row_lifetime_hours: int | None = None
    """Hours after receipt in which a row cannot expire; `None`: it never expires."""


class Compared(NamedTuple):
    table: int
    verdict: Verdict
    problem: str = ""


def parse_ledger_query(
    query: Mapping[str, str], *, now_s: float, row_lifetime_hours: int | None
) -> LedgerQuery:
    """Parse the parameters of a ledger query. Raises `MalformedBody`."""
    return LedgerQuery(
        since_hour=max(0, _since_s(query.get("since") or LEDGER_SINCE, now_s) // HOUR_S),
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


def ledger(balances: BalanceSource, store: Callable[[], Store], query: LedgerQuery) -> LedgerReport:
    """Return span counts by outcome, compared with the table if the query asks for it."""
    unknown: list[UnknownRows] = []
    if query.verify:
        # The store is opened only here, so that the ledger can be read while ClickHouse is down.
        balance, compared, epochs = verified(balances, opened := store(), query)
        unknown = [_unknown(epoch, balance, is_ours=opened.embedded) for epoch in epochs]
    else:
        balance, compared = balances.balance(), {}
    lines = balance.sums.lines
    headings = {*lines, *balance.journal, *compared}
    matching = sorted(
        (heading for heading in headings if _matches(heading, query)),
        key=lambda heading: (heading.hour, *heading),
    )
    return LedgerReport(
        taken_at=_instant(query.now_s),
        since=_hour(query.since_hour),
        complete_from=_hour(balance.sums.complete_from_hour),
        trouble=_trouble(balance.sums.losses),
        lines=[
            _line(
                heading, lines.get(heading, Counts()), balance.journal.get(heading, 0), compared.get(heading)
            )
            for heading in matching
        ],
        unknown=unknown,
    )


class Verified(NamedTuple):
    balance: Balance
    compared: dict[Heading, Compared]
    unknown: Sequence[UnknownEpoch]


def verified(balances: BalanceSource, store: Store, query: LedgerQuery) -> Verified:
    """Compare with the table; repeat on a difference, because a clock change may have caused it."""
    for _ in range(TRIES_MAX):
        (table, before), balance, seen = balances.between_balances(
            lambda before: (read_table(store, before, query.since_hour, query.now_s), before)
        )
        # Rows of these segments may have been inserted before, during or after the count.
        moving = seen.since | balance.waiting
        table_rows: dict[Heading, Rows] = {}
        for heading, segment, rows in table.by_segment:
            if segment not in moving:
                table_rows[heading] = table_rows.get(heading, Rows()).plus(rows)
        stored = {
            heading: _expected(counts, seen.lines.get(heading, Counts()))
            for heading, counts in balance.sums.lines.items()
            if heading.hour >= query.since_hour
        }
        # The file of a deletion may be left from a time with an embedded store, and says nothing of a server.
        is_deleting = (before.is_deleting or balance.is_deleting) and store.embedded
        compared = compare(
            stored, table_rows, balance.sums.complete_from_hour, query, is_deleting=is_deleting
        )
        if all(line.verdict != "different" for line in compared.values()):
            break
    return Verified(balance, compared, unknown_epochs(table.by_epoch, before, balance))


def compare(
    stored: Mapping[Heading, Rows],
    table: Mapping[Heading, Rows],
    complete_from_hour: int,
    query: LedgerQuery,
    *,
    is_deleting: bool = False,
) -> dict[Heading, Compared]:
    """Compare ledger and table. Rows of projects that the ledger does not name are counted together."""
    placed: dict[Heading, Rows] = {}
    for heading, rows in table.items():
        other = heading._replace(project=OTHER)
        # The ledger names a limited number of projects; the table has the names of all.
        at = heading if heading in stored or other not in stored else other
        placed[at] = placed.get(at, Rows()).plus(rows)
    sure_from_hour = 0
    if query.row_lifetime_hours is not None:
        sure_from_hour = int(query.now_s // HOUR_S) - query.row_lifetime_hours + CLOCK_MARGIN_HOURS
    compared = {}
    for heading in {*stored, *placed}:
        expected, actual = stored.get(heading, Rows()), placed.get(heading, Rows())
        problem = _problem(expected, actual)
        # Expiry explains missing rows only, never rows too many or another checksum.
        may_be_gone = actual.rows < expected.rows and heading.hour < sure_from_hour
        is_unsure = is_deleting or may_be_gone or heading.hour < complete_from_hour
        verdict: Verdict = "different" if problem else "same"
        # Unreachable rows are present, so no expiry explains them.
        if problem and not actual.unreachable and is_unsure:
            verdict = "unverifiable"
        compared[heading] = Compared(actual.rows, verdict, problem)
    return compared


def _problem(expected: Rows, actual: Rows) -> str:
    """Describe how the rows of a line differ from the ledger; empty if they do not differ."""
    problems = []
    if actual.rows < expected.rows:
        problems.append(f"{_rows_are(expected.rows - actual.rows)} missing")
    elif actual.rows > expected.rows:
        problems.append(f"{_rows_are(actual.rows - expected.rows)} too many")
    elif actual.checksum != expected.checksum:
        problems.append("as many rows as were stored, but with another checksum")
    if actual.unreachable:
        problems.append(f"{_rows_are(actual.unreachable)} not found by trace id")
    return "; ".join(problems)


def _rows_are(count: int) -> str:
    return "1 row is" if count == 1 else f"{count} rows are"


def _expected(counts: Counts, recorded_meanwhile: Counts) -> Rows:
    # The rows of these entries were left out of the table's side, too.
    rest = counts.minus(recorded_meanwhile)
    return Rows(rest.stored, rest.checksum)


def _unknown(epoch: UnknownEpoch, balance: Balance, *, is_ours: bool) -> UnknownRows:
    """Report an unknown epoch. An embedded store has one writer; receivers may share a server."""
    is_lost = is_ours and epoch.last_hour >= balance.sums.complete_from_hour
    return UnknownRows(
        epoch.epoch, epoch.rows, _hour(epoch.first_hour), _hour(epoch.last_hour), is_lost=is_lost
    )


def _trouble(losses: Sequence[str]) -> str:
    return f"ledger is missing or damaged: {'; '.join(losses)}" if losses else ""


def _matches(heading: Heading, query: LedgerQuery) -> bool:
    return (
        heading.hour >= query.since_hour
        and query.project in {None, heading.project}
        and query.drain in {None, heading.drain}
    )


def _line(heading: Heading, counts: Counts, journal: int, compared: Compared | None) -> LedgerLine:
    spans = counts.spans | {"received": counts.received + journal}
    return LedgerLine(
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
    instant_s = parse_instant(text)
    return int(now_s) - parse_since(text) if instant_s is None else int(instant_s)


def _hour(hour: int) -> str:
    return _instant(hour * HOUR_S) if hour else ""


def _instant(seconds: float) -> str:
    try:
        return instant_text(int(seconds), "minutes", zone="Z")
    except (OverflowError, ValueError, OSError) as error:
        text = "since is out of range; expected an age like 24h"
        raise MalformedBody(text, field="since") from error
