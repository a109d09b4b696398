"""A segment that is stuck, in any state, does not delay fresh spans while the store accepts rows.

The segment has one turn. It must then be deferred, so that the intake seals the next segment, which must be
stored within the rest of the 5 s in which spans become readable.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from receiver.errors import StoreTrouble
from receiver.journal.writer_notes import DeferredSegments
from receiver.writer import splitting
from receiver.writer.environment import Stopping
from receiver.writer.segment_state import ActiveState, Observation
from receiver.writer.steps import StepRunner, Turn
from receiver.writer.units import Unit
from tests.support.fake_clickhouse import TODAY, FakeFile, segment_of
from tests.support.redelivery import Harness
from tests.support.writer_harness import WriterHarness
from tests.writer.test_progress import ATTACKER, VICTIM, BrokenStore, harness_with, rows_of, trouble
from tests.writer.test_transitions import types_in

SEALED_AFTER_S = 1.0
READABLE_WITHIN_S = 5.0

TOO_MANY_DAYS = trouble(252, "Too many partitions for single INSERT block")

Break = Callable[[WriterHarness, pytest.MonkeyPatch], object]


def fail(*_arguments: Any, **_keywords: Any) -> Any:  # noqa: ANN401 - replaces any call
    raise OSError(errno.EIO, "Input/output error")


def for_attacker(owner: Any, name: str) -> Break:  # noqa: ANN401 - any class
    """Make a method of files fail for the file of the stuck segment."""

    def apply(_harness: WriterHarness, patch: pytest.MonkeyPatch) -> None:
        call = getattr(owner, name)
        patch.setattr(owner, name, lambda self, *rest: (fail if self.id == ATTACKER else call)(self, *rest))

    return apply


def in_store(operation: str, error: StoreTrouble, *script: str) -> Break:
    """Make a statement about the stuck segment fail."""

    def apply(harness: WriterHarness, _patch: pytest.MonkeyPatch) -> None:
        assert isinstance(harness.store, BrokenStore)
        harness.store.operation, harness.store.trouble = operation, error
        harness.store.script = list(script)

    return apply


def scripted(*script: str) -> Break:
    """Set the outcome of each INSERT."""

    def apply(harness: WriterHarness, _patch: pytest.MonkeyPatch) -> None:
        harness.store.script = list(script)

    return apply


def without_plan(*script: str) -> Break:
    """Make the disk refuse the plan of a segment that is split or dead after these outcomes."""

    def apply(harness: WriterHarness, patch: pytest.MonkeyPatch) -> None:
        harness.store.script = list(script)
        patch.setattr(splitting, "write_durably", fail)

    return apply


STUCK = [
    pytest.param("Found", for_attacker(FakeFile, "read"), id="Found: file unreadable"),
    pytest.param("Deduplicated", in_store("insert", trouble(243)), id="Deduplicated: no space for it"),
    pytest.param("Deduplicated", in_store("insert", trouble(31_337)), id="Deduplicated: unknown code"),
    pytest.param("Deduplicated", in_store("insert", trouble(None)), id="Deduplicated: no answer"),
    pytest.param("Doubtful", scripted("delayed:100000"), id="Doubtful: INSERT still runs"),
    pytest.param("Doubtful", in_store("count", trouble(745)), id="Doubtful: count refused"),
    pytest.param("Doubtful", scripted("half_a_day"), id="Doubtful: count inconsistent"),
    pytest.param("Closing", in_store("refill", trouble(202), "answer_lost"), id="Closing: refill refused"),
    pytest.param("Splitting", in_store("insert", TOO_MANY_DAYS), id="Splitting: too small to split"),
    pytest.param("Splitting", without_plan("first_day"), id="Splitting: plan cannot be written"),
    pytest.param(
        "DeadLettered", without_plan("ok_without_rows", "ok_without_rows"), id="DeadLettered: no plan"
    ),
    pytest.param("Counted", in_store("count by heading", trouble(159)), id="Counted: query refused"),
    pytest.param("Recorded", for_attacker(FakeFile, "unlink"), id="Recorded: file cannot be deleted"),
]


def test_table_covers_every_state_that_can_be_stuck() -> None:
    states = {parameters.values[0] for parameters in STUCK}

    # `WaitingFor` has a test of its own; a turn never ends in `Suspected`.
    assert states == {state.__name__ for state in types_in(ActiveState)}


@pytest.mark.parametrize(("state", "apply"), STUCK)
def test_stuck_segment_is_deferred_and_the_next_segment_is_stored_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, state: str, apply: Break
) -> None:
    store = BrokenStore()
    harness = harness_with(tmp_path, store)
    writer = harness.writer
    writer.drain()
    with monkeypatch.context() as patch:
        apply(harness, patch)
        # One day, for the error that a segment of one day cannot be split after.
        first_day = TODAY if store.trouble is TOO_MANY_DAYS else TODAY - 1
        attacker = harness.file(segment_of([first_day] * 2 + [TODAY] * 2))
        seen = observed_states(patch)

        writer.drain()
        is_deferred = DeferredSegments(tmp_path).has(ATTACKER)
        harness.between_turns_s += SEALED_AFTER_S
        victim = harness.file(segment_of([TODAY] * 3), seq=2)
        writer.drain()

    assert state in seen
    assert attacker.path.exists()
    assert is_deferred
    assert not victim.path.exists()
    assert sum(rows_of(harness, VICTIM).values()) == 3
    assert sum(harness.slept) + harness.between_turns_s <= READABLE_WITHIN_S


def observed_states(patch: pytest.MonkeyPatch) -> set[str]:
    """Return the names of the states whose action is performed from now on."""
    seen: set[str] = set()
    perform = StepRunner._perform  # noqa: SLF001 - has no other observer

    def recorded(self: StepRunner, unit: Unit, turn: Turn) -> Observation:
        seen.add(type(turn.state).__name__)
        return perform(self, unit, turn)

    patch.setattr(StepRunner, "_perform", recorded)
    return seen


def test_segment_that_waits_for_a_stuck_segment_is_deferred(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    stuck = harness.add([1])
    waiting = harness.add([1, 2])
    harness.store.script = ["delayed:100000"]

    harness.start()
    harness.run_turns(1)

    deferred = DeferredSegments(tmp_path)
    assert deferred.has(stuck.id)
    assert deferred.has(waiting.id)


def test_split_segment_with_an_unreadable_plan_is_deferred(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    split = harness.add([5, 4])
    harness.store.rows_max = 3
    harness.start()
    harness.run_turns(4)
    (plan,) = (tmp_path / "splits").iterdir()
    plan.write_bytes(b"{")

    harness.start()
    harness.run_turns(1)

    assert DeferredSegments(tmp_path).has(split.id)


def test_stored_segment_is_no_longer_deferred(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1])
    harness.store.script = ["delayed:9"]
    harness.start()
    harness.run_turns(1)
    was_deferred = DeferredSegments(tmp_path).has(file.id)

    harness.drain()
    harness.current.drain()

    assert (was_deferred, DeferredSegments(tmp_path).has(file.id)) == (True, False)


def test_segment_waits_for_the_store_without_being_deferred(tmp_path: Path) -> None:
    harness = Harness(tmp_path)
    file = harness.add([1])
    harness.store.script = ["error:243"] * 1_000
    harness.store.probe_refused = True

    with suppress(Stopping):
        harness.run_turns(1)

    assert harness.sleeps > 10
    assert not DeferredSegments(tmp_path).has(file.id)
