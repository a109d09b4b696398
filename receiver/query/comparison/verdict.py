"""The result of a comparison in a sentence."""

from __future__ import annotations

from typing import NamedTuple

from receiver.query.comparison.operation_change import (
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
    if worse:
        also = [f"{counted(len(better), 'operation')} better"] if better else []
        return f"{facts.b} is worse: {', '.join([*_most(worse), *extras, *also])}"
    unchanged = _without_change(facts)
    if facts.new_errors:
        rest = ", ".join(["better: " + _most(better)[0], *_most(better)[1:]]) if better else unchanged
        return f"{facts.b} has {', '.join(extras)}; {rest}"
    if better:
        return f"{facts.b} is better: {', '.join([*_most(better), *extras])}"
    return "; ".join([f"{facts.b} compared with {facts.a}: {unchanged}", *extras])


def _most(operations: list[Judged]) -> list[str]:
    """Return the description of the first operation, and how many more there are."""
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
    judged = [operation for operation in facts.operations if operation.change.words != (TOO_FEW,)]
    if judged:
        return f"no measurable change in {counted(len(judged), 'operation')}"
    return f"too few spans to compare operations, which takes {SPANS_MIN} of an operation on both sides"
