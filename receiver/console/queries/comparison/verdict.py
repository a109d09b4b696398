"""The result of a comparison in a sentence."""

from __future__ import annotations

from typing import NamedTuple

from receiver.console.queries.comparison.error_levels import FEWER, MORE, ErrorChange, ErrorLevels
from receiver.console.queries.comparison.operation_change import (
    CHANGE_MIN,
    SAME,
    SPANS_MIN,
    TOO_FEW,
    Change,
    Samples,
    relative_changes,
)
from receiver.sizes import counted, percent


class Judged(NamedTuple):
    """An operation with its samples on both sides and its change."""

    service: str
    name: str
    kind: str
    a: Samples
    b: Samples
    change: Change


class Facts(NamedTuple):
    """Input of the verdict: the deployments and their differences."""

    a: str
    b: str
    levels: ErrorLevels
    operations: list[Judged]
    """Sorted, the worst first."""
    new_errors: int
    vanished: int
    """Operations with at least `SPANS_MIN` spans that have vanished."""
    appeared: int


def verdict_of(facts: Facts) -> str:
    """Return a sentence about the second deployment."""
    worse = [judged for judged in facts.operations if judged.change.is_worse]
    better = [
        judged
        for judged in facts.operations
        if not judged.change.is_worse and judged.change.words[0] not in (SAME, TOO_FEW)
    ]
    extras = [
        counted(count, noun)
        for count, noun in (
            (facts.new_errors, "new error"),
            (facts.vanished, "vanished operation"),
            (facts.appeared, "new operation"),
        )
        if count
    ]
    if worst := [*_levels(facts, MORE, worse), *_most(worse)]:
        also = [f"{counted(len(better), 'operation')} better"] if better else []
        return f"{facts.b} is worse: {', '.join([*worst, *extras, *also])}"
    best = [*_levels(facts, FEWER, better), *_most(better)]
    unchanged = _without_change(facts)
    if facts.new_errors:
        rest = ", ".join([f"better: {best[0]}", *best[1:]]) if best else unchanged
        return f"{facts.b} has {', '.join(extras)}; {rest}"
    if best:
        return f"{facts.b} is better: {', '.join([*best, *extras])}"
    return "; ".join([f"{facts.b} compared with {facts.a}: {unchanged}", *extras])


def _levels(facts: Facts, change: str, operations: list[Judged]) -> list[str]:
    """Return the change of errors of services and of the whole, where no part of them shows it."""
    shown = {judged.service for judged in operations if change in judged.change.words}
    services = [row for row in facts.levels.services if row["change"] == change]
    hidden = [row for row in services if row["service"] not in shown]
    if hidden:
        more = len(hidden) - 1
        return [
            f"service {hidden[0]['service']} {_traces(hidden[0])}",
            *([counted(more, "more service")] if more else []),
        ]
    if facts.levels.whole["change"] == change and not (services or shown):
        return [f"all services together {_traces(facts.levels.whole)}"]
    return []


def _traces(row: ErrorChange) -> str:
    a, b = row["a"], row["b"]
    return (
        f"traces with errors {percent(a['error_rate'])} → {percent(b['error_rate'])} "
        f"(n = {a['traces']:,} and {b['traces']:,})"
    )


def _most(operations: list[Judged]) -> list[str]:
    """Return the description of the first operation, and how many more there are."""
    if not operations:
        return []
    more = len(operations) - 1
    return [_described(operations[0]), *([counted(more, "more operation")] if more else [])]


def _described(judged: Judged) -> str:
    a, b, words = judged.a, judged.b, judged.change.words
    parts = []
    if "more errors" in words or "fewer errors" in words:
        parts.append(f"errors {percent(a.errors / a.spans)} → {percent(b.errors / b.spans)}")
    if "slower" in words or "faster" in words:
        parts.append(_percentile(a, b, 1 if "slower" in words else -1))
    operation = f"{judged.service} {judged.name}".strip()
    return f"{operation} {' and '.join(parts)} (n = {a.spans:,} and {b.spans:,})"


def _percentile(a: Samples, b: Samples, direction: int) -> str:
    """Return the change of p95, or of the percentile that has changed noticeably."""
    named = dict(zip(("p50", "p95", "p99"), relative_changes(a, b), strict=True))
    # p95 first, which operators watch; the others explain a change that p95 does not show.
    for name in ("p95", "p50", "p99"):
        change = named[name]
        if change is not None and change * direction >= CHANGE_MIN:
            return f"{name} {change * 100:+.0f} %"
    return "slower" if direction > 0 else "faster"


def _without_change(facts: Facts) -> str:
    """Return how many operations have not changed, and which change would have been found."""
    judged = [operation for operation in facts.operations if operation.change.words != (TOO_FEW,)]
    if not judged:
        return f"too few spans to compare operations, which takes {SPANS_MIN} of an operation on both sides"
    whole = facts.levels.whole
    detectable = whole["detectable_error_rate"]
    power = (
        ""
        if detectable is None
        else f" (a rise of traces with errors from {percent(whole['a']['error_rate'])} to "
        f"{percent(detectable)} would have been found)"
    )
    return f"no measurable change in {counted(len(judged), 'operation')}{power}"
