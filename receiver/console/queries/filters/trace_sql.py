"""Compiler of conditions on traces to ClickHouse's SQL.

Each spanset is a condition on rows; the groups of the traces are tested with the results. A field of the
trace is tested by a subquery over the whole traces, so that it can stand anywhere in a condition on spans.

Invariant: the condition is made of constants of this module. Every key and every value is a query parameter.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, assert_never

from receiver.console.queries.filters.filter import (
    And,
    Comparison,
    Exists,
    Filter,
    HasSpan,
    Not,
    Or,
    TraceAnd,
    TraceFilter,
    TraceNot,
    TraceOr,
    reads_trace,
    spansets,
    terms,
)
from receiver.console.queries.filters.filter_sql import Compiler
from receiver.console.queries.traces.trace_model import IDENTITY
from receiver.engine.sql_text import Sql, compose, joined, started_between
from receiver.engine.store import Store

# The id decides between equal times, so that an answer repeats.
ROOT_FIRST: Final = Sql("(ParentSpanId != '', Timestamp, SpanId)")
"""Order of the spans of a trace: the root, or else the earliest span, is first."""
TRACE_VALUES: Final[Mapping[str, Sql]] = {
    "trace:service": compose("argMin(ServiceName, {root_first})", root_first=ROOT_FIRST),
    "trace:name": compose("argMin(SpanName, {root_first})", root_first=ROOT_FIRST),
    "trace:duration": Sql(
        # 128 bits: a duration is any 64-bit number, and the sum with its start may exceed 63 bits.
        "max(toInt128(toUnixTimestamp64Nano(Timestamp)) + Duration) - min(toUnixTimestamp64Nano(Timestamp))"
    ),
    # Distinct spans: two senders may have sent the same span.
    "trace:spans": compose("uniqExact({identity})", identity=IDENTITY),
    "trace:errors": compose("uniqExactIf({identity}, StatusCode = 'Error')", identity=IDENTITY),
}
"""Field of a trace → aggregate over its spans."""
trace_compose: Final = compose.knowing(
    identity=IDENTITY,
    root_first=ROOT_FIRST,
    **{name.replace(":", "_"): value for name, value in TRACE_VALUES.items()},
)
_WHOLE = started_between("whole_from_ns", "whole_to_ns", is_closed=True)
_TRUE = And(())
_FALSE = Not(_TRUE)


class TraceCondition(NamedTuple):
    """A condition on rows, a condition on their groups by trace, and the parameters of both."""

    where: Sql
    having: Sql
    """Empty: every group matches."""
    candidates: Sql
    """Statement for the ids of all traces that can match; empty if no field of a trace is compared.

    Both conditions then need the parameters `whole_from_ns` and `whole_to_ns`: the range of their spans.
    """
    parameters: dict[str, str | int]


def compiled_traces(store: Store, tree: TraceFilter) -> TraceCondition:
    """Compile a condition on traces. The statement has the parameters `from_ns` and `to_ns`, too."""
    compiler = _TraceCompiler(store)
    found = spansets(tree)
    needs_all = _matches_without(tree)
    if any(reads_trace(term) for spanset in found for term in terms(spanset.part)):
        # Before the conditions, because each comparison with a field of the trace contains the candidates.
        bounds = _any([compiler.sql(_upper_bound(spanset.part)) for spanset in found])
        compiler.candidates = compose("SELECT TraceId FROM {table} WHERE {in_range} AND ({any})", any=bounds)
    conditions = {spanset: compiler.sql(spanset.part) for spanset in found}
    return TraceCondition(
        # A trace may match because it lacks a span: then all its spans must reach the group.
        where=Sql("1") if needs_all else _any(list(conditions.values())),
        # A single spanset is tested row by row; every group that remains has such a span.
        having=Sql("") if isinstance(tree, HasSpan) else _having(tree, conditions),
        candidates=compiler.candidates,
        parameters=compiler.parameters,
    )


class _TraceCompiler(Compiler):
    """Compiler that knows the candidates for the fields of their traces."""

    def __init__(self, store: Store) -> None:
        super().__init__(store)
        self.candidates = Sql("")

    def sql(self, tree: Filter) -> Sql:
        """Return the condition of a tree as a piece of a statement."""
        return Sql(self.condition(tree))

    def _of_intrinsic(self, name: str, comparison: Comparison) -> str:
        if name not in TRACE_VALUES:
            return super()._of_intrinsic(name, comparison)
        return compose(
            "TraceId IN (SELECT TraceId FROM {table} WHERE {whole} AND TraceId IN ({candidates}) "
            "GROUP BY TraceId HAVING {test})",
            whole=_WHOLE,
            candidates=self.candidates,
            test=Sql(self._test(f"({TRACE_VALUES[name]})", comparison)),
        )


def _any(conditions: Iterable[Sql]) -> Sql:
    return joined(" OR ", (compose("({each})", each=each) for each in conditions))


def _having(tree: TraceFilter, conditions: Mapping[HasSpan, Sql]) -> Sql:
    match tree:
        case HasSpan():
            return compose("max({condition})", condition=conditions[tree])
        case TraceNot(part):
            return compose("NOT ({part})", part=_having(part, conditions))
        case TraceAnd(parts):
            return joined(" AND ", (compose("({part})", part=_having(part, conditions)) for part in parts))
        case TraceOr(parts):
            return _any(_having(part, conditions) for part in parts)
        case _:
            assert_never(tree)


def _matches_without(tree: TraceFilter) -> bool:
    """Return whether a trace matches without a span that matches any spanset."""
    match tree:
        case HasSpan():
            return False
        case TraceNot(part):
            return not _matches_without(part)
        case TraceAnd(parts):
            return all(map(_matches_without, parts))
        case TraceOr(parts):
            return any(map(_matches_without, parts))
        case _:
            assert_never(tree)


def _upper_bound(tree: Filter, *, is_negated: bool = False) -> Filter:
    """Return a condition that matches at least the spans of this condition, without fields of the trace."""
    match tree:
        case Comparison() | Exists():
            # Below a negation the bound of the part must match too few spans, so that its negation matches
            # enough.
            unknown: Filter = _FALSE if is_negated else _TRUE
            return unknown if reads_trace(tree) else tree
        case Not(part):
            return Not(_upper_bound(part, is_negated=not is_negated))
        case And(parts):
            return And(tuple(_upper_bound(part, is_negated=is_negated) for part in parts))
        case Or(parts):
            return Or(tuple(_upper_bound(part, is_negated=is_negated) for part in parts))
        case _:
            assert_never(tree)
