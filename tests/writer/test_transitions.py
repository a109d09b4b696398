"""The writer's transitions: every state with every observation, and the diagram in ARCHITECTURE.md."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import get_args

import pytest

from receiver.engine.error_codes import Fault
from receiver.model import SegmentId
from receiver.writer.outcome import Comparison, Completeness
from receiver.writer.segment_state import (
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
from receiver.writer.transitions import FAILURES_MAX, RULES, next_step

ARCHITECTURE = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
UNIT = SegmentId(7, 1)
DAYS = ("20260102", "20260101")
FAILURES = [
    Failed(Fault.RETRY, 210, "NETWORK (210)", "network"),
    Failed(Fault.UNKNOWN, None, "no answer", "no answer"),
    Failed(Fault.SLOWER, 241, "MEMORY (241)", "memory limit"),
    Failed(Fault.HOLD, 117, "SCHEMA (117)", "schema"),
    Failed(Fault.HOLD, 31_337, "UNKNOWN (31337)", "unknown"),
    Failed(Fault.POISON, 469, "CONSTRAINT (469)", "constraint"),
    Failed(Fault.BY_DAY, 252, "PARTS (252)", "too many partitions"),
]
SUSPICIONS = [Suspicion(cause, "text", 469) for cause in SplitCause]
EVIDENCE = [
    Evidence(
        UNIT,
        in_doubt=in_doubt,
        rows=rows,
        may_split=may_split,
        inserts_ok=inserts_ok,
        failures=failures,
        refusals=failures,
        inconsistent_counts=failures,
    )
    for in_doubt, rows, may_split, inserts_ok, failures in product(
        (False, True), (1, 500), (False, True), (0, 2, 8), (0, FAILURES_MAX - 1, 2 * FAILURES_MAX)
    )
]
OBSERVATIONS: list[Observation] = [
    Resumed(),
    *[Opened(rows, in_doubt) for rows in (0, 500) for in_doubt in (False, True)],
    SharesDelivery(SegmentId(7, 2)),
    Done(),
    *[
        RowsCounted(Comparison(completeness, days), stored)
        for completeness in Completeness
        for days in ((), DAYS)
        for stored in ((), DAYS)
    ],
    StillRunning(since_s=7.0, waited_s=1.0),
    StillRunning(since_s=7.0, waited_s=120.0),
    Unusable("unreadable", "block is malformed"),
    Unusable("unreadable", "block is malformed", DAYS),
    CannotSplit(),
    *FAILURES,
    ProbeAnswered(is_accepted=True),
    ProbeAnswered(is_accepted=False),
    DiskFailed("Input/output error"),
]


def states_of(evidence: Evidence) -> Iterator[SegmentState]:
    """Yield states of every kind."""
    yield Found(evidence)
    yield WaitingFor(evidence, SegmentId(7, 2))
    yield Deduplicated(evidence)
    yield Doubtful(evidence)
    yield from (Doubtful(evidence, suspicion) for suspicion in SUSPICIONS)
    outcomes: list[Counted | Splitting | DeadLettered] = [
        Counted(evidence),
        Splitting(evidence, SUSPICIONS[0], DAYS),
        DeadLettered(evidence, "poison", "text"),
    ]
    yield from outcomes
    yield from (Closing(evidence, end, days) for end in outcomes for days in ((), DAYS * 60))
    yield Closing(evidence, outcomes[0], DAYS, days_per_statement=1)
    for failure, is_insert in product(FAILURES, (False, True)):
        yield Suspected(evidence, failure, Doubtful(evidence), is_insert)
    yield Recorded(evidence)
    yield Finished(evidence)


def every_step() -> Iterator[tuple[SegmentState, Observation, Step]]:
    """Yield every state with each observation that it expects and the step that follows."""
    for evidence in EVIDENCE:
        for state, observation in product(states_of(evidence), OBSERVATIONS):
            if (type(state), type(observation)) in RULES:
                yield state, observation, next_step(state, observation)


def types_in(union: object) -> set[type]:
    return {kind for member in get_args(union) for kind in get_args(member) or (member,)}


def test_samples_cover_every_state_and_observation() -> None:
    assert {type(state) for state in states_of(EVIDENCE[0])} == types_in(SegmentState)
    assert {type(observation) for observation in OBSERVATIONS} == types_in(Observation)
    assert {(type(state), type(observation)) for state, observation, _ in every_step()} == RULES.keys()


@pytest.mark.parametrize("state", [pytest.param(kind, id=kind.__name__) for kind in types_in(SegmentState)])
def test_every_state_except_finished_has_a_way_out(state: type) -> None:
    steps = [step for before, _, step in every_step() if type(before) is state]

    assert ((state, Resumed) in RULES) == (state not in {Finished, Suspected})
    assert any(type(step.state) is not state for step in steps) == (state is not Finished)


@pytest.mark.parametrize(
    "observation", [pytest.param(kind, id=kind.__name__) for kind in types_in(Observation)]
)
def test_unexpected_observation_raises(observation: type) -> None:
    sample = next(sample for sample in OBSERVATIONS if type(sample) is observation)

    with pytest.raises(KeyError):
        next_step(Finished(EVIDENCE[0]), sample)


def test_turn_never_ends_in_the_state_suspected() -> None:
    assert not any(
        isinstance(step.state, Suspected) and isinstance(step.action, EndTurn) for _, _, step in every_step()
    )


def test_rows_are_counted_after_every_failed_insert() -> None:
    for state, observation, step in every_step():
        if isinstance(state, Deduplicated) and isinstance(observation, Failed):
            resumed = step.state.resume if isinstance(step.state, Suspected) else step.state
            assert isinstance(resumed, Doubtful)
            assert resumed.evidence.in_doubt or observation.fault is Fault.BY_DAY


def test_rows_are_counted_after_every_failure_of_the_disk() -> None:
    for _, observation, step in every_step():
        if isinstance(observation, DiskFailed):
            assert isinstance(step.state, Found)
            assert step.state.evidence.in_doubt


def test_companion_table_is_refilled_for_rows_of_an_insert_that_never_returned_ok() -> None:
    for state, observation, step in every_step():
        if isinstance(observation, RowsCounted) and isinstance(step.state, Closing):
            is_in_doubt = state.evidence.in_doubt or not state.evidence.inserts_ok
            assert step.state.refill == (observation.days_stored if is_in_doubt else ())


def test_insert_follows_only_a_count_of_zero_or_a_new_segment() -> None:
    for state, observation, step in every_step():
        if isinstance(step.state, Deduplicated) and not isinstance(state, Deduplicated):
            is_new = isinstance(observation, Opened) and not observation.in_doubt
            assert is_new or (
                isinstance(observation, RowsCounted)
                and observation.comparison.completeness is Completeness.NOTHING
            )


def test_rows_become_dead_letters_only_after_a_count_or_if_they_cannot_be_read() -> None:
    for state, observation, step in every_step():
        if isinstance(step.state, DeadLettered) and not isinstance(state, DeadLettered | Closing):
            assert isinstance(observation, RowsCounted | Unusable)


def test_segment_is_recorded_only_after_a_complete_count() -> None:
    for state, observation, step in every_step():
        closes = isinstance(step.state, Closing) and isinstance(step.state.next_state, Counted)
        if closes and not isinstance(state, Closing):
            assert isinstance(observation, RowsCounted)
            assert observation.comparison.completeness is Completeness.COMPLETE


def test_no_state_is_repeated_without_a_pause_or_the_end_of_the_turn() -> None:
    for state, observation, step in every_step():
        if step.state == state and not isinstance(observation, Resumed):
            assert isinstance(step.action, Pause | EndTurn)


def test_writer_pauses_only_while_the_store_refuses_a_probe_row_or_briefly_before_the_probe() -> None:
    for _, observation, step in every_step():
        if isinstance(step.action, Pause):
            is_store_at_fault = isinstance(observation, ProbeAnswered) and not observation.is_accepted
            is_brief = not step.action.is_slow and step.state.evidence.failures < FAILURES_MAX
            assert is_store_at_fault or is_brief


def test_unit_is_suspected_of_poison_only_after_the_store_accepts_a_probe_row() -> None:
    for state, _, step in every_step():
        suspicion = step.state.suspicion if isinstance(step.state, Doubtful) else None
        if suspicion is not None and not isinstance(state, Doubtful):
            assert suspicion.cause is SplitCause.DAYS or isinstance(state, Suspected)


def test_companion_table_is_refilled_in_groups_of_days_one_per_turn() -> None:
    state: SegmentState = Closing(EVIDENCE[0], Counted(EVIDENCE[0]), tuple(map(str, range(200))))
    sizes, turns = [], 0
    while isinstance(state, Closing) and state.refill:
        sizes.append(min(len(state.refill), state.days_per_statement))
        step = next_step(state, Done())
        state, turns = step.state, turns + isinstance(step.action, EndTurn)

    assert sizes == [*[30] * 6, 20]
    assert turns == 6


def test_refused_group_of_companion_days_shrinks_to_a_single_day() -> None:
    state = Closing(EVIDENCE[0], Counted(EVIDENCE[0]), DAYS * 60)
    too_many = FAILURES[-1]
    sizes = [state.days_per_statement]
    while sizes[-1] > 1:
        step = next_step(state, too_many)
        assert isinstance(step.state, Closing)
        state = step.state
        sizes.append(state.days_per_statement)

    assert sizes == [30, 10, 3, 1]
    assert isinstance(next_step(state, too_many).state, Suspected)


def test_error_code_that_split_the_segment_refuses_its_pieces_at_once() -> None:
    evidence = replace(EVIDENCE[0], refused_code=31_337)
    unknown = FAILURES[4]

    first = next_step(Suspected(EVIDENCE[0], unknown, Doubtful(EVIDENCE[0]), True), ProbeAnswered(True))  # noqa: FBT003
    again = next_step(Suspected(evidence, unknown, Doubtful(evidence), True), ProbeAnswered(True))  # noqa: FBT003

    assert isinstance(first.action, EndTurn)
    assert isinstance(again.state, Doubtful)
    assert again.state.suspicion is not None


def test_diagram_in_the_architecture_shows_the_transitions_of_the_rules() -> None:
    """The diagram omits `Suspected` and failures of the local disk; a sentence next to it describes them."""
    edges = {
        (type(state).__name__, type(step.state).__name__)
        for state, observation, step in every_step()
        if not isinstance(observation, DiskFailed) and type(state) is not type(step.state)
    }
    edges = {edge for edge in edges if Suspected.__name__ not in edge}
    drawn = set(re.findall(r"^    (\w+) --> (\w+)", ARCHITECTURE, flags=re.MULTILINE))

    assert drawn == edges
