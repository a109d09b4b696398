"""Verification of a run against the store: counts every acknowledged span, and compares some traces in full.

Spans are counted per request, because a request's number is in the trace ids of its spans. Assumes that
sampling is off.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from receiver.sizes import counted
from trace_drain_testing.load.expected import wrong_columns
from trace_drain_testing.load.requests import RUN_BYTES, Recipe
from trace_drain_testing.load.run import Result
from trace_drain_testing.load.tally import Tally
from trace_drain_testing.load.traffic import delivery

Row = dict[str, Any]
Query = Callable[[str, Mapping[str, str]], Iterator[Row]]
"""Returns the objects of the API's response to a path and query; none for an unknown trace."""

NUMBER_DIGITS = 8
"""Hex digits of a request number, which follow those of the run."""
PAGE_DIGITS = 5
"""Hex digits of the request number that vary within one query, which covers a million requests."""
EXAMPLES_MAX = 5
POLL_S = 0.5


@dataclass
class Findings:
    """Errors, and the numbers of checked spans."""

    spans: int = 0
    """Number of acknowledged spans, which should be stored."""
    missing: int = 0
    twice: int = 0
    wrong: int = 0
    """Number of compared spans whose content differs."""
    compared: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def are_good(self) -> bool:
        """Whether every acknowledged span is stored exactly once, with the sent content."""
        return not (self.missing or self.twice or self.wrong)

    def add(self, example: str) -> None:
        """Keep an example, up to `EXAMPLES_MAX`."""
        if len(self.examples) < EXAMPLES_MAX:
            self.examples.append(example)

    def document(self) -> dict[str, Any]:
        return {
            "ok": self.are_good,
            "spans": self.spans,
            "missing": self.missing,
            "twice": self.twice,
            "compared": self.compared,
            "wrong": self.wrong,
            "examples": self.examples,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        spans = f"{counted(self.spans, 'span')} acknowledged: {self.missing:,} missing"
        yield (
            "verified",
            f"{spans}, {self.twice:,} stored twice; {self.compared:,} compared: {self.wrong:,} wrong",
        )
        for example in self.examples:
            yield "WRONG", example


@dataclass(frozen=True)
class Verifier:
    """Compares a run with the store through the API."""

    query: Query
    recipe: Recipe
    settle_s: float = 30.0
    """Time without new spans after which the remaining spans count as missing."""
    now: Callable[[], float] = time.monotonic
    sleep: Callable[[float], None] = time.sleep

    def verify(self, result: Result) -> Findings:
        """Wait until all acknowledged spans are stored or no more become readable, and compare."""
        findings = Findings()
        # A minute earlier than the start, because spans are dated before they are sent.
        since = f"{int(time.time() - result.began_ns / 1e9) + 60}s"
        self._count(result.tally, since, findings)
        until_s = self.now() + self.settle_s
        for sample in result.tally.samples:
            self._compare(sample.number, sample.origin.ordinal, sample.origin.base_ns, findings, until_s)
        return findings

    def _count(self, tally: Tally, since: str, findings: Findings) -> None:
        # The array grows in steps, so its end has requests that were never sent.
        last = len(tally.acknowledged.rstrip(b"\0"))
        per_page = 16**PAGE_DIGITS
        for first in range(0, last, per_page):
            expected_by_request = {
                number: tally.spans_per_request - tally.rejected.get(number, 0)
                for number in range(first, min(last, first + per_page))
                if tally.acknowledged[number]
            }
            counts_by_request = self._settled(
                f"{first // per_page:0{NUMBER_DIGITS - PAGE_DIGITS}x}",
                since,
                sum(expected_by_request.values()),
            )
            self._judge(expected_by_request, counts_by_request, findings)

    def _settled(self, page: str, since: str, expected_count: int) -> dict[int, tuple[int, int]]:
        """Query until the acknowledged spans are stored, or no more become readable."""
        most_stored, progress_s = -1, self.now()
        query = {
            "trace_id": self.recipe.run.hex() + page,
            "digits": str(2 * RUN_BYTES + NUMBER_DIGITS),
            "since": since,
        }
        while True:
            rows = self.query("/api/v1/counts", query)
            counts_by_request = {
                int(row["Prefix"][-NUMBER_DIGITS:], 16): (row["Spans"], row["Distinct"]) for row in rows
            }
            stored = sum(distinct for _, distinct in counts_by_request.values())
            # Any progress restarts the wait, because a slow store has lost nothing.
            if stored > most_stored:
                most_stored, progress_s = stored, self.now()
            if stored >= expected_count or self.now() - progress_s > self.settle_s:
                return counts_by_request
            self.sleep(POLL_S)

    def _judge(
        self,
        expected_by_request: Mapping[int, int],
        counts_by_request: Mapping[int, tuple[int, int]],
        findings: Findings,
    ) -> None:
        findings.spans += sum(expected_by_request.values())
        for number, expected in expected_by_request.items():
            _, distinct = counts_by_request.get(number, (0, 0))
            if distinct < expected:
                findings.missing += expected - distinct
                findings.add(f"{self._name(number)}: {distinct} of {expected} acknowledged spans are stored")
        # Also requests without an acknowledgement, which may be stored, but not twice.
        for number, (stored, distinct) in counts_by_request.items():
            if stored > distinct:
                findings.twice += stored - distinct
                findings.add(f"{self._name(number)}: {stored} rows for {distinct} spans")

    def _compare(self, number: int, ordinal: int, base_ns: int, findings: Findings, until_s: float) -> None:
        """Read one trace of a request, and compare every span with the sent span."""
        start = self.recipe.run + number.to_bytes(4, "big")
        resources = delivery(self.recipe.shape, ordinal)
        ends = sorted({span.trace_end for resource in resources for span in resource.spans})
        # Chosen by number, so that not all samples compare the first trace of a request.
        trace_end = ends[number % len(ends)]
        stored = self._readable((start + trace_end).hex(), until_s)
        for resource in resources:
            for span in (span for span in resource.spans if span.trace_end == trace_end):
                findings.compared += 1
                row = stored.get(span.span_id.hex())
                columns = ["all"] if row is None else wrong_columns(row, resource, span, start, base_ns)
                if columns:
                    findings.wrong += 1
                    difference = f"span {span.span_id.hex()} differs in {', '.join(columns)}"
                    findings.add(f"{self._name(number)}: {difference}")

    def _readable(self, trace_id: str, until_s: float) -> dict[str, dict[str, Any]]:
        """Return the spans of a trace by id, once it is readable; empty if it is not readable in time."""
        while True:
            rows = list(self.query(f"/api/v1/traces/{trace_id}", {}))
            # The engine shows the rows of an INSERT before those of the companion table, which finds a trace.
            if rows or self.now() >= until_s:
                return {row["SpanId"]: row for row in rows}
            self.sleep(POLL_S)

    def _name(self, number: int) -> str:
        return f"request {number} (trace ids {(self.recipe.run + number.to_bytes(4, 'big')).hex()}…)"
