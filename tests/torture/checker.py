"""Checker: compares the rows in the store with what was sent and what was acknowledged.

Invariant: `judge` is pure, so that a test can show it every way in which a store can be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from receiver.engine.sql_text import SETTINGS
from receiver.engine.store import COMPANION, TABLE, Store
from tests.torture.oracle import Delivery, Key, Oracle
from tests.torture.senders import SendCounts

PAGE_DELIVERIES = 2_000
"""Deliveries whose rows are read in one query."""
EXAMPLES_MAX = 5

Row = dict[str, Any]


@dataclass
class Findings:
    """Counts of correct deliveries and rows, and counts and examples of violations."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def violation(self, what: str, example: str, count: int = 1) -> None:
        self.violations[what] += count
        examples = self.examples.setdefault(what, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)


def judge(findings: Findings, delivery: Delivery, counts: SendCounts, rows: Iterable[Row]) -> None:
    """Compare a delivery with the stored rows that bear its number."""
    stored: Counter[Key] = Counter()
    for row in rows:
        key = (row["TraceId"], row["SpanId"])
        stored[key] += 1
        _judge_fields(findings, delivery, key, row)
    missing = delivery.rows.keys() - stored
    name = (
        f"delivery {delivery.number} (sent {counts.attempts} times, acknowledged {counts.acknowledged} times)"
    )
    findings.counts["spans stored"] += len(stored)
    findings.counts["deliveries stored, never acknowledged"] += bool(stored) and not counts.acknowledged
    if missing and counts.acknowledged:
        findings.violation("acknowledged and lost", f"{name}: {len(missing)} spans", len(missing))
    elif missing and stored:
        findings.violation("stored in part", f"{name}: {len(missing)} of {len(delivery.rows)} missing")
    extra = sum(stored.values()) - len(stored)
    if extra:
        what = "redelivered and stored twice" if counts.attempts > 1 else "sent once and stored twice"
        findings.violation(what, f"{name}: {extra} rows too many", extra)
    findings.counts["deliveries acknowledged twice, stored once"] += counts.acknowledged > 1 and not extra


def _judge_fields(findings: Findings, delivery: Delivery, key: Key, row: Row) -> None:
    expected = delivery.rows.get(key)
    if expected is None:
        findings.violation("stored and never issued", f"span {key} of delivery {delivery.number}")
        return
    differing = [column for column, value in expected.items() if row[column] != value]
    if differing:
        columns = ", ".join(f"{name}={row[name]!r}, expected {expected[name]!r}" for name in differing)
        findings.violation("a field differs", f"span {key} of delivery {delivery.number}: {columns}")


def check(store: Store, oracle: Oracle, sent: Mapping[int, SendCounts]) -> Findings:
    """Read the whole store page by page and compare every delivery that was ever sent."""
    findings = Findings()
    numbers = sorted(sent)
    for first in range(0, len(numbers), PAGE_DELIVERIES):
        page = numbers[first : first + PAGE_DELIVERIES]
        by_number = _by_number(store, oracle, page[0], page[-1])
        for number in page:
            judge(findings, oracle.delivery(number), sent[number], by_number.pop(number, []))
        for number, rows in by_number.items():
            findings.violation("stored and never issued", f"delivery {number}", len(rows))
        findings.counts["rows"] += sum(map(len, by_number.values()))
    _check_whole(findings, store, oracle, numbers)
    return findings


def _by_number(store: Store, oracle: Oracle, first: int, last: int) -> dict[int, list[Row]]:
    statement = (
        f"SELECT * FROM {TABLE} WHERE TraceId >= {{first:String}} AND TraceId < {{end:String}} {SETTINGS}"  # noqa: S608 - constants
    )
    bounds = {"first": oracle.first_trace_id(first), "end": oracle.first_trace_id(last + 1)}
    rows_by_number: dict[int, list[Row]] = {}
    for row in _lines(store.lines(statement, bounds)):
        number = oracle.number_of(row["TraceId"])
        rows_by_number.setdefault(-1 if number is None else number, []).append(row)
    return rows_by_number


def _lines(pieces: Iterator[bytes]) -> Iterator[Row]:
    for piece in pieces:
        for line in piece.splitlines():
            yield orjson.loads(line)


def _check_whole(findings: Findings, store: Store, oracle: Oracle, numbers: list[int]) -> None:
    """Find what no page contains: rows of unknown origin, and traces that the companion table lacks."""
    bounds = {
        "first": oracle.first_trace_id(numbers[0]) if numbers else "",
        "end": oracle.first_trace_id(numbers[-1] + 1) if numbers else "",
    }
    foreign = (
        f"SELECT count() FROM {TABLE} WHERE NOT (TraceId >= {{first:String}} AND TraceId < {{end:String}})"  # noqa: S608
    )
    count = int(store.rows(foreign, bounds)[0][0])
    if count:
        findings.violation("stored and never issued", "rows whose trace id was not issued", count)
    not_in_companion = (
        f"SELECT uniqExact(TraceId) FROM {TABLE} WHERE TraceId NOT IN (SELECT TraceId FROM {COMPANION})"  # noqa: S608
    )
    count = int(store.rows(not_in_companion)[0][0])
    if count:
        findings.violation("not in the companion table", "traces that cannot be looked up by id", count)
    findings.counts["rows"] = int(store.rows(f"SELECT count() FROM {TABLE}")[0][0])  # noqa: S608


def judge_ledger(findings: Findings, answer: Mapping[str, Any], exit_code: int) -> None:
    """Compare the output of `trace-drain ledger --verify`, with an empty journal, with the counted rows."""
    lines: list[Row] = answer["lines"]
    for line in lines:
        name = f"drain {line['drain']}, {line['hour']}"
        if line["verdict"] != "same":
            numbers = f"{line['stored']} stored, {line['table']} in the table: {line['verdict']}"
            findings.violation("the ledger disagrees with the table", f"{name}: {numbers}")
        if line["difference"] or line["journal"]:
            findings.violation("the ledger does not balance", f"{name}: {line}")
    counted = sum(line["table"] for line in lines)
    if counted != findings.counts["rows"]:
        findings.violation("the ledger counts other rows", f"{counted}, not {findings.counts['rows']}")
    if exit_code or answer["trouble"] or answer["complete_from"]:
        text = f"exit code {exit_code}, complete from '{answer['complete_from']}', '{answer['trouble']}'"
        findings.violation("the ledger is not certain", text)


def segments_stored(store: Store) -> set[str]:
    """Return the segments that the rows of the table came from, named as in the journal."""
    rows = store.rows(f"SELECT DISTINCT SegmentEpoch, SegmentSeq FROM {TABLE}")  # noqa: S608 - a constant
    return {f"{int(epoch):016x}/{int(seq):010d}" for epoch, seq in rows}
