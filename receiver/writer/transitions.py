"""Rules of the writer: the next state of a unit after an observation. ARCHITECTURE.md draws them.

    a statement failed, the store refuses a probe row too    the store is at fault: wait and keep the order
    a statement failed, the store accepts the probe row      the unit is at fault: split it if its data is
                                                                 suspected; otherwise let other segments go
                                                                 first

Invariant: after a failed INSERT the rows are counted before anything is sent again.
Invariant: a unit that keeps failing while the store accepts other rows never delays other segments, and
raises an alarm.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, get_args

from receiver.engine.error_codes import FAULT_OF, OF_ONE_SEGMENT, SLOW, TOO_LARGE, Fault
from receiver.writer.outcome import Completeness
from receiver.writer.segment_state import (
    ActiveState,
    Alarm,
    CannotSplit,
    Closing,
    Counted,
    DeadLettered,
    Deduplicated,
    DiskFailed,
    Done,
    Doubtful,
    EndTurn,
    Evidence,
    Failed,
    Finished,
    Found,
    Observation,
    Opened,
    Pause,
    ProbeAnswered,
    Recorded,
    Resumed,
    RowsCounted,
    SegmentState,
    SharesDelivery,
    SplitCause,
    Splitting,
    Step,
    StillRunning,
    Suspected,
    Suspicion,
    Unusable,
    WaitingFor,
)

INSERTS_OK_MAX = 2
"""INSERTs that must return OK before missing rows are an error, if every earlier answer is known."""
INSERTS_OK_IN_DOUBT_MAX = 8
"""The same for a unit in doubt, for which earlier processes may have used up some tokens."""
INCONSISTENT_COUNTS_MAX = 2
"""Inconsistent counts of one unit, with a pause in between, after which it becomes a dead letter."""
TOO_LARGE_MAX = 3
"""Failures for lack of time or memory, while a probe row is accepted, after which a unit is split."""
REFUSALS_MAX = 5
"""Refusals of one unit, while a probe row is accepted, after which its data is assumed to be at fault."""
FAILURES_MAX = 4
"""Failures of one unit in a row, of any kind, after which the store is probed and an alarm is raised."""
RUNNING_STALL_S = 60.0
"""Time that a statement whose response was lost may keep running before an alarm is raised."""
FEWER_DAYS = 3
"""Divisor for the number of days in a companion statement that the store refused as too large."""


def next_step(state: SegmentState, observation: Observation) -> Step:
    """Return the next state after an observation, and whether to proceed, pause or end the turn."""
    return RULES[type(state), type(observation)](state, observation)


def _resumed(state: ActiveState, _observation: Resumed) -> Step:
    return Step(state)


def _waited(state: WaitingFor, _observation: Resumed) -> Step:
    # Read again, because the outcome of the other segment changes the verdicts.
    return Step(Found(state.evidence))


def _opened(state: Found, opened: Opened) -> Step:
    evidence = replace(
        state.evidence,
        in_doubt=opened.in_doubt,
        rows=opened.rows,
        may_split=opened.may_split,
        refused_code=opened.refused_code,
        running_since_s=None,
        failures=0,
    )
    # Without rows there is nothing to insert, and the count is complete at once.
    return Step(Doubtful(evidence) if opened.in_doubt or not opened.rows else Deduplicated(evidence))


def _shares_delivery(state: Found, observation: SharesDelivery) -> Step:
    return Step(WaitingFor(state.evidence, observation.other), EndTurn(is_soon=True))


def _inserted(state: Deduplicated, _observation: Done) -> Step:
    evidence = state.evidence
    return Step(Doubtful(replace(evidence, inserts_ok=evidence.inserts_ok + 1, failures=0)))


def _counted(state: Doubtful, counted: RowsCounted) -> Step:
    evidence, comparison = replace(state.evidence, running_since_s=None), counted.comparison
    # Rows are stored although no INSERT of this process returned OK: an answer was lost.
    if counted.days_stored and not evidence.inserts_ok:
        evidence = replace(evidence, in_doubt=True)
    match comparison.completeness:
        case Completeness.COMPLETE:
            return _close(Counted(evidence), counted.days_stored)
        case Completeness.INCONSISTENT:
            return _count_again(evidence, comparison.days, counted.days_stored)
        # Suspected rows are split and not sent again unchanged, even if only some days are missing.
        case _ if state.suspicion is not None:
            return _close(_split(evidence, state.suspicion, comparison.days), counted.days_stored)
        case Completeness.MISSING:
            missing = Suspicion(SplitCause.MISSING)
            return _close(Splitting(evidence, missing, comparison.days), counted.days_stored)
        case Completeness.NOTHING:
            return Step(_insert_again(evidence))


def _count_again(evidence: Evidence, days: Sequence[str], days_stored: tuple[str, ...]) -> Step:
    """Count again at the next turn: no INSERT can repair days that are stored partly."""
    evidence = replace(evidence, inconsistent_counts=evidence.inconsistent_counts + 1)
    names = ", ".join(days)
    alarm = Alarm("odd", f"segment {evidence.unit} is stored only partly on {names}")
    if evidence.inconsistent_counts < INCONSISTENT_COUNTS_MAX:
        return Step(Doubtful(evidence), EndTurn(), alarm)
    text = f"the number of stored rows is wrong on {names}; expected none or all"
    return replace(_close(DeadLettered(evidence, "odd", text), days_stored), alarm=alarm)


def _insert_again(evidence: Evidence) -> Deduplicated | DeadLettered:
    inserts_max = INSERTS_OK_IN_DOUBT_MAX if evidence.in_doubt else INSERTS_OK_MAX
    if evidence.inserts_ok < inserts_max:
        return Deduplicated(evidence)
    text = f"rows are missing after {evidence.inserts_ok} INSERTs that returned OK; expected {evidence.rows}"
    return DeadLettered(evidence, "short", text)


def _split(evidence: Evidence, suspicion: Suspicion, days: Sequence[str]) -> Splitting | DeadLettered:
    """Split suspected rows. A single refused row is dead; at the limit of splits, all suspected rows are."""
    if suspicion.cause is SplitCause.REFUSED and evidence.rows == 1:
        return DeadLettered(evidence, "poison", suspicion.text, days)
    if suspicion.cause is SplitCause.REFUSED and not evidence.may_split:
        return DeadLettered(evidence, "refused", suspicion.text, days)
    return Splitting(evidence, suspicion, days)


def _close(next_state: Counted | Splitting | DeadLettered, days_stored: tuple[str, ...]) -> Step:
    """Complete the stored rows first: the companion table of a unit in doubt may lack some of them."""
    if not days_stored and not isinstance(next_state, Counted):
        return Step(next_state)
    # Newest days first, because they are queried most.
    refill = tuple(sorted(days_stored, reverse=True)) if next_state.evidence.in_doubt else ()
    return Step(Closing(next_state.evidence, next_state, refill))


def _closed(state: Closing, _observation: Done) -> Step:
    """Continue after a group of days was refilled, or after the sync that follows the last group."""
    evidence = replace(state.evidence, failures=0)
    if not state.refill:
        return Step(state.next_state)
    rest = state.refill[state.days_per_statement :]
    closing = replace(state, evidence=evidence, refill=rest)
    return Step(closing, EndTurn(is_soon=True)) if rest else Step(closing)


def _still_running(state: Found | Doubtful, observation: StillRunning) -> Step:
    """Check again soon, but let other segments go first; raise an alarm if the statement does not end."""
    resume = replace(state, evidence=replace(state.evidence, running_since_s=observation.since_s))
    if observation.waited_s < RUNNING_STALL_S:
        return Step(resume, EndTurn(is_soon=True))
    return Step(resume, EndTurn(stall=f"an INSERT of it is still running after {observation.waited_s:.0f} s"))


def _unusable(state: Deduplicated | Splitting, observation: Unusable) -> Step:
    return Step(DeadLettered(state.evidence, observation.cause, observation.text))


def _counted_unusable(state: Doubtful, observation: Unusable) -> Step:
    return _close(DeadLettered(state.evidence, observation.cause, observation.text), observation.days_stored)


def _cannot_split(state: Splitting, _observation: CannotSplit) -> Step:
    stall = f"its INSERT fails, but the store accepts other rows: {state.suspicion.text}"
    return Step(Doubtful(state.evidence), EndTurn(stall=stall))


def _recorded(state: Counted, _observation: Done) -> Step:
    return Step(Recorded(state.evidence))


def _finished(state: Splitting | DeadLettered | Recorded, _observation: Done) -> Step:
    return Step(Finished(state.evidence), EndTurn(is_soon=True))


def _failed(state: ActiveState, failure: Failed) -> Step:
    is_insert = isinstance(state, Deduplicated)
    too_many_days = failure.fault is Fault.BY_DAY
    if is_insert and too_many_days:
        # The store checks the number of partitions before it writes a row. Rows are counted anyway.
        return Step(Doubtful(state.evidence, Suspicion(SplitCause.DAYS, failure.label, failure.code)))
    if isinstance(state, Closing) and (too_many_days or failure.code in TOO_LARGE):
        fewer = state.days_per_statement // FEWER_DAYS
        # At 0, even one day per statement failed, so this is handled like any other failure.
        if fewer:
            return Step(replace(state, days_per_statement=fewer))
    evidence = replace(
        state.evidence, failures=state.evidence.failures + 1, in_doubt=state.evidence.in_doubt or is_insert
    )
    # The rows of a failed INSERT may be stored, so they are counted before the next one.
    resume = Doubtful(evidence) if is_insert else replace(state, evidence=evidence)
    # Other failures, such as a lost connection, say nothing about the unit, so the probe would be wasted.
    # Before a long pause the probe is always sent, because other segments would have to wait, too.
    is_suspect = failure.fault in SLOW or failure.code in OF_ONE_SEGMENT
    if is_suspect or evidence.failures >= FAILURES_MAX:
        return Step(Suspected(evidence, failure, resume, is_insert))
    return Step(resume, Pause(is_slow=failure.fault in SLOW))


def _probed(state: Suspected, probe: ProbeAnswered) -> Step:
    failure = state.failure
    if not probe.is_accepted:
        is_operator_needed = failure.fault in {Fault.HOLD, Fault.POISON}
        alarm = Alarm(failure.fault, f"the store refuses every segment: {failure.label}")
        return Step(state.resume, Pause(is_slow=failure.fault in SLOW), alarm if is_operator_needed else None)
    evidence = replace(state.evidence, refusals=state.evidence.refusals + 1)
    suspicion = _suspicion(evidence, failure) if state.is_insert else None
    if suspicion is not None:
        return Step(Doubtful(evidence, suspicion))
    is_stalled = evidence.failures >= FAILURES_MAX or failure.fault is Fault.HOLD
    statement = "its INSERT" if state.is_insert else "a statement about its stored rows"
    stall = f"{statement} fails, but the store accepts other rows: {failure.label}" if is_stalled else ""
    return Step(replace(state.resume, evidence=evidence), EndTurn(stall=stall))


def _suspicion(evidence: Evidence, failure: Failed) -> Suspicion | None:
    """Return why the data of a unit is suspected after a refused INSERT; `None` while it is not."""
    is_code_unknown = failure.code not in {None, *FAULT_OF} and evidence.refusals >= REFUSALS_MAX
    is_same_refusal = failure.code is not None and failure.code == evidence.refused_code
    if failure.fault is Fault.POISON or is_code_unknown or is_same_refusal:
        return Suspicion(SplitCause.REFUSED, failure.text, failure.code)
    # A single row cannot be split.
    if failure.code in TOO_LARGE and evidence.rows > 1 and evidence.refusals >= TOO_LARGE_MAX:
        return Suspicion(SplitCause.SIZE, failure.label, failure.code)
    return None


def _disk_failed(state: ActiveState, observation: DiskFailed) -> Step:
    """Restart the unit at its next turn, with a count before anything is sent."""
    evidence = Evidence(state.evidence.unit, in_doubt=True)
    return Step(Found(evidence), EndTurn(stall=f"the disk cannot read or delete it: {observation.text}"))


_ACTIVE = get_args(ActiveState)
_USES_STORE = (Found, Deduplicated, Doubtful, Closing, Counted)
"""States whose action uses the store: its statements can fail."""

RULES: dict[tuple[type, type], Callable[[Any, Any], Step]] = {
    **{(state, Resumed): _resumed for state in _ACTIVE},
    **{(state, DiskFailed): _disk_failed for state in _ACTIVE},
    **{(state, Failed): _failed for state in _USES_STORE},
    (WaitingFor, Resumed): _waited,
    (Found, Opened): _opened,
    (Found, SharesDelivery): _shares_delivery,
    (Found, StillRunning): _still_running,
    (Deduplicated, Done): _inserted,
    (Deduplicated, Unusable): _unusable,
    (Doubtful, RowsCounted): _counted,
    (Doubtful, StillRunning): _still_running,
    (Doubtful, Unusable): _counted_unusable,
    (Suspected, ProbeAnswered): _probed,
    (Closing, Done): _closed,
    (Splitting, Done): _finished,
    (Splitting, CannotSplit): _cannot_split,
    (Splitting, Unusable): _unusable,
    (DeadLettered, Done): _finished,
    (Counted, Done): _recorded,
    (Recorded, Done): _finished,
}
"""Rule by state and observation. Any other observation in a state is a defect of the writer."""
