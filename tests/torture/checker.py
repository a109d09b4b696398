"""The checker: what lies in the store, against what was issued and what was acknowledged.

Keeps: `judge` is pure, so that a test can show it every way in which a store can be wrong.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import orjson

from receiver.engine.store import COMPANION, TABLE, Store
from receiver.query.limits import SETTINGS
from tests.torture.oracle import Delivery, Key, Oracle
from tests.torture.senders import Fate

PAGE = 2_000
"""Deliveries whose rows are read at once."""
EXAMPLES_MAX = 5

Row = dict[str, Any]


@dataclass
class Findings:
    """What is right, counted; what is wrong, counted and with some examples."""

    counts: Counter[str] = field(default_factory=Counter)
    violations: Counter[str] = field(default_factory=Counter)
    examples: dict[str, list[str]] = field(default_factory=dict)

    def wrong(self, what: str, example: str, count: int = 1) -> None:
        self.violations[what] += count
        examples = self.examples.setdefault(what, [])
        if len(examples) < EXAMPLES_MAX:
            examples.append(example)


def judge(findings: Findings, delivery: Delivery, fate: Fate, rows: Iterable[Row]) -> None:
    """Hold the rows that bear a delivery's number against the delivery."""
    stored: Counter[Key] = Counter()
    for row in rows:
        key = (row["TraceId"], row["SpanId"])
        stored[key] += 1
        _judge_fields(findings, delivery, key, row)
    missing = delivery.rows.keys() - stored
    name = f"delivery {delivery.number} ({fate.attempts} tries, {fate.acknowledged} times acknowledged)"
    findings.counts["spans stored"] += len(stored)
    findings.counts["deliveries stored, never acknowledged"] += bool(stored) and not fate.acknowledged
    if missing and fate.acknowledged:
        findings.wrong("acknowledged and lost", f"{name}: {len(missing)} spans", len(missing))
    elif missing and stored:
        findings.wrong("stored in part", f"{name}: {len(missing)} of {len(delivery.rows)} missing")
    extra = sum(stored.values()) - len(stored)
    if extra:
        what = "redelivered and stored twice" if fate.attempts > 1 else "sent once and stored twice"
        findings.wrong(what, f"{name}: {extra} rows too many", extra)
    findings.counts["deliveries acknowledged twice, stored once"] += fate.acknowledged > 1 and not extra


def _judge_fields(findings: Findings, delivery: Delivery, key: Key, row: Row) -> None:
    wanted = delivery.rows.get(key)
    if wanted is None:
        findings.wrong("stored and never issued", f"span {key} of delivery {delivery.number}")
        return
    differing = [column for column, value in wanted.items() if row[column] != value]
    if differing:
        columns = ", ".join(f"{name}={row[name]!r} for {wanted[name]!r}" for name in differing)
        findings.wrong("a field differs", f"span {key} of delivery {delivery.number}: {columns}")


def check(store: Store, oracle: Oracle, fates: Mapping[int, Fate]) -> Findings:
    """Read the whole store, page by page, and judge every delivery that was ever sent."""
    findings = Findings()
    numbers = sorted(fates)
    for first in range(0, len(numbers), PAGE):
        page = numbers[first : first + PAGE]
        by_number = _by_number(store, oracle, page[0], page[-1])
        for number in page:
            judge(findings, oracle.delivery(number), fates[number], by_number.pop(number, []))
        for number, rows in by_number.items():
            findings.wrong("stored and never issued", f"delivery {number}", len(rows))
        findings.counts["rows"] += sum(map(len, by_number.values()))
    _check_whole(findings, store, oracle, numbers)
    return findings


def _by_number(store: Store, oracle: Oracle, first: int, last: int) -> dict[int, list[Row]]:
    statement = (
        f"SELECT * FROM {TABLE} WHERE TraceId >= {{first:String}} AND TraceId < {{end:String}} {SETTINGS}"  # noqa: S608 - constants
    )
    bounds = {"first": oracle.first_trace_id(first), "end": oracle.first_trace_id(last + 1)}
    found: dict[int, list[Row]] = {}
    for row in _lines(store.lines(statement, bounds)):
        number = oracle.number_of(row["TraceId"])
        found.setdefault(-1 if number is None else number, []).append(row)
    return found


def _lines(pieces: Iterator[bytes]) -> Iterator[Row]:
    for piece in pieces:
        for line in piece.splitlines():
            yield orjson.loads(line)


def _check_whole(findings: Findings, store: Store, oracle: Oracle, numbers: list[int]) -> None:
    """What no page sees: rows of nobody, and traces that the companion does not know."""
    bounds = {
        "first": oracle.first_trace_id(numbers[0]) if numbers else "",
        "end": oracle.first_trace_id(numbers[-1] + 1) if numbers else "",
    }
    strange = (
        f"SELECT count() FROM {TABLE} WHERE NOT (TraceId >= {{first:String}} AND TraceId < {{end:String}})"  # noqa: S608
    )
    count = int(store.rows(strange, bounds)[0][0])
    if count:
        findings.wrong("stored and never issued", "rows whose trace id is none of ours", count)
    unknown = f"SELECT uniqExact(TraceId) FROM {TABLE} WHERE TraceId NOT IN (SELECT TraceId FROM {COMPANION})"  # noqa: S608
    count = int(store.rows(unknown)[0][0])
    if count:
        findings.wrong("not in the companion table", "traces that cannot be looked up by id", count)
    findings.counts["rows"] = int(store.rows(f"SELECT count() FROM {TABLE}")[0][0])  # noqa: S608


def judge_ledger(findings: Findings, answer: Mapping[str, Any], exit_code: int) -> None:
    """Hold what `trace-drain ledger --verify` says of an empty journal against the rows that were counted."""
    lines: list[Row] = answer["lines"]
    for line in lines:
        name = f"drain {line['drain']}, {line['hour']}"
        if line["verdict"] != "same":
            told = f"{line['stored']} stored, {line['table']} in the table: {line['verdict']}"
            findings.wrong("the ledger does not agree with the table", f"{name}: {told}")
        if line["difference"] or line["journal"]:
            findings.wrong("the ledger does not add up", f"{name}: {line}")
    counted = sum(line["table"] for line in lines)
    if counted != findings.counts["rows"]:
        findings.wrong("the ledger counts other rows", f"{counted}; {findings.counts['rows']} are there")
    if exit_code or answer["trouble"] or answer["complete_from"]:
        text = f"exit code {exit_code}, complete from '{answer['complete_from']}', '{answer['trouble']}'"
        findings.wrong("the ledger is not sure", text)


def segments_stored(store: Store) -> set[str]:
    """Segments that rows of the table came from, spelled as in the journal."""
    found = store.rows(f"SELECT DISTINCT SegmentEpoch, SegmentSeq FROM {TABLE}")  # noqa: S608 - a constant
    return {f"{int(epoch):016x}/{int(seq):010d}" for epoch, seq in found}
