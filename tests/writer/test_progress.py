"""Progress: neither a delivery nor a failing segment blocks the writer; a stall is reported."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from receiver.dead_letters.directory import DeadLetters
from receiver.engine.error_codes import TOO_LARGE
from receiver.engine.store import DayRows, RowLocation, RowSum
from receiver.errors import StoreTrouble
from receiver.metrics import Metrics
from receiver.model import Heading, SegmentId
from receiver.store_process.metrics import report
from tests.support.fake_clickhouse import NOW_S, TODAY, FakeFile, MemoryStore, segment_of
from tests.support.writer_harness import WriterHarness

ATTACKER, VICTIM = SegmentId(7, 1), SegmentId(7, 2)
"""A segment that fails or is expensive, and one that must not wait for it."""
WAIT_S_MAX = 30.0
STATEMENTS_MAX = 40
"""Statements of other segments that a new segment may wait for. Each touches at most 100 days."""
ROUNDS_MAX = 5_000
STEP_S = 5.0
"""Time that passes while no segment has a turn."""


class BrokenStore(MemoryStore):
    """A store in which one operation fails for every segment and piece except the victim."""

    def __init__(self, operation: str = "", trouble: StoreTrouble | None = None) -> None:
        super().__init__()
        self.operation = operation
        self.trouble = trouble
        self.statements = 0

    def _fail_if_broken(self, operation: str, segment: SegmentId) -> None:
        self.statements += 1
        if self.trouble is not None and operation == self.operation and segment != VICTIM:
            raise self.trouble

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """See `Store`."""
        self._fail_if_broken("insert", _segment_in(segment))
        return super().insert(segment, token=token, query_id=query_id)

    def counts(self, locations: Sequence[RowLocation]) -> dict[SegmentId, DayRows]:
        """See `Store`."""
        self._fail_if_broken("count", locations[0].segment)
        return super().counts(locations)

    def rows_by_heading(self, location: RowLocation, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        """See `Store`."""
        self._fail_if_broken("count by heading", location.segment)
        return super().rows_by_heading(location, parts_epoch)

    def refill_companion(self, location: RowLocation, days: Sequence[str]) -> None:
        """See `Store`."""
        self._fail_if_broken("refill", location.segment)
        super().refill_companion(location, days)

    def running(self, prefix: str) -> list[str]:
        """See `Store`."""
        self._fail_if_broken("running", VICTIM if prefix.endswith(str(VICTIM)) else ATTACKER)
        return super().running(prefix)


def _segment_in(path: Path) -> SegmentId:
    epoch, _, seq = path.name.partition(".")[0].rpartition("-")
    return SegmentId(int(epoch or "7", 16), int(seq))


def trouble(code: int | None, text: str = "failed") -> StoreTrouble:
    return StoreTrouble(text, code=code, name="FAILED" if code else "")


def harness_with(directory: Path, store: MemoryStore) -> WriterHarness:
    return WriterHarness(directory, store, sleeps_max=1_000)


def rows_of(harness: WriterHarness, segment: SegmentId) -> dict[str, int]:
    """Count the stored rows by day: those of the victim, or those of the attacker and its pieces."""
    rows: Counter[str] = Counter()
    for owner, day, count in harness.store.parts:
        rows[day] += count if (owner == VICTIM) == (segment == VICTIM) else 0
    return +rows


def drain_until_gone(harness: WriterHarness, writer: Any, file: FakeFile) -> float:  # noqa: ANN401 - a writer
    """Run rounds until a segment is deleted. Return the simulated time that passed."""
    started_s = sum(harness.slept) + harness.between_turns_s
    for _ in range(ROUNDS_MAX):
        if not file.path.exists():
            return sum(harness.slept) + harness.between_turns_s - started_s
        harness.between_turns_s += 0.0 if writer.drain() else STEP_S
    raise AssertionError(f"segment {file.id} is not stored: {harness.progress.trouble}")


TROUBLES = [
    pytest.param(trouble(None), id="no answer"),
    pytest.param(trouble(159), id="time-out"),
    pytest.param(trouble(210), id="network"),
    pytest.param(trouble(241), id="out of memory"),
    pytest.param(trouble(243), id="disk full"),
    pytest.param(trouble(252, "Too many parts"), id="too many parts"),
    pytest.param(trouble(252, "Too many partitions for single INSERT block"), id="too many partitions"),
    pytest.param(trouble(117), id="schema"),
    pytest.param(trouble(469), id="poison"),
    pytest.param(trouble(31_337), id="unknown code"),
]


@pytest.mark.parametrize("error", TROUBLES)
@pytest.mark.parametrize("operation", ["insert", "count", "running", "refill", "count by heading"])
def test_statement_that_fails_for_one_segment_delays_no_other(
    tmp_path: Path, operation: str, error: StoreTrouble
) -> None:
    store = BrokenStore(operation, error)
    harness = harness_with(tmp_path, store)
    if operation in {"refill", "running"}:
        store.script = ["answer_lost"]
    # A segment of one row cannot be split; splitting has its own tests.
    rows = [TODAY] if error.code in TOO_LARGE else [TODAY - 1] * 30 + [TODAY] * 20
    attacker = harness.file(segment_of(rows))
    victim = harness.file(segment_of([TODAY] * 3), seq=2)
    writer = harness.writer

    waited_s = drain_until_gone(harness, writer, victim)

    assert waited_s <= WAIT_S_MAX
    assert sum(rows_of(harness, VICTIM).values()) == 3
    for _ in range(120):
        harness.between_turns_s += 0.0 if writer.drain() else STEP_S
    is_waiting = attacker.path.exists()
    assert not is_waiting or str(ATTACKER) in harness.progress.stall_reason
    store.trouble = None
    drain_until_gone(harness, writer, attacker)
    assert harness.progress.stall_reason == ""
    dead_rows = sum(letter.reason.rows or 0 for letter in DeadLetters(tmp_path / "dead").listed())
    assert sum(rows_of(harness, ATTACKER).values()) + dead_rows == len(rows)


@pytest.mark.parametrize("seed", range(8))
def test_no_delivery_blocks_a_later_delivery(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    store = BrokenStore()
    harness = harness_with(tmp_path, store)
    days = rng.choice([1, 2, 99, 101, 250])
    rows = [TODAY - rng.randrange(days) for _ in range(rng.choice([1, 50, 300]))]
    attacker = harness.file(segment_of(rows))
    store.partitions_max = rng.choice([7, 30, 100])
    if len({*rows}) > store.partitions_max:
        store.rows_max = rng.choice([None, max(Counter(rows).values())])
    bad = {*rows[: rng.choice([0, 0, 1, 5])]}
    store.poisonous_days = set(store.rows_of(FakeFile.make(tmp_path, segment_of([*bad]), seq=9).path))
    store.script = rng.choice(
        [[], ["answer_lost"], ["tokens_without_rows"], ["tokens_and_first_day"], ["error:210"] * 3]
    )
    writer = harness.writer
    writer.drain()
    victim = harness.file(segment_of([TODAY + 1]), seq=2)
    statements_before = store.statements

    waited_s = drain_until_gone(harness, writer, victim)

    assert waited_s <= WAIT_S_MAX
    assert store.statements - statements_before <= STATEMENTS_MAX
    assert sum(rows_of(harness, VICTIM).values()) == 1
    drain_until_gone(harness, writer, attacker)
    dead_rows = sum(letter.reason.rows or 0 for letter in DeadLetters(tmp_path / "dead").listed())
    assert sum(count for _, _, count in store.parts) + dead_rows == len(rows) + 1


@pytest.mark.parametrize("partitions_max", [100, 7, 1])
def test_segment_of_many_days_is_inserted_in_groups_of_days(tmp_path: Path, partitions_max: int) -> None:
    harness = harness_with(tmp_path, MemoryStore())
    harness.file(segment_of([TODAY - age for age in range(200)]))
    harness.store.partitions_max = partitions_max

    harness.drain_first_segment()

    assert sorted(harness.store.parts) == sorted(set(harness.store.parts))
    assert len(harness.store.parts) == 200
    assert harness.dead == []
    assert harness.slept == []


def test_companion_table_is_refilled_for_every_day_after_a_lost_response(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, MemoryStore("answer_lost"))
    harness.store.partitions_max = 10_000
    file = harness.file(segment_of([TODAY - age for age in range(365)]))
    writer = harness.writer
    writer.drain()
    harness.store.partitions_max = 50

    drain_until_gone(harness, writer, file)

    assert sorted(harness.store.refilled) == sorted((ATTACKER, day) for day in rows_of(harness, ATTACKER))


def test_restarted_writer_finishes_a_segment_of_many_days(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, MemoryStore())
    file = harness.file(segment_of([TODAY - age for age in range(400)]))

    for _ in range(3):
        harness.writer.drain()
    half_done = len(harness.store.parts)
    drain_until_gone(harness, harness.writer, file)

    assert 0 < half_done < 400
    assert len(harness.store.parts) == len(set(harness.store.parts)) == 400
    assert len(harness.store.refilled) >= half_done


def test_new_segment_waits_for_at_most_one_turn_of_a_deferred_segment(tmp_path: Path) -> None:
    store = BrokenStore()
    harness = harness_with(tmp_path, store)
    for seq in range(10, 20):
        harness.file(segment_of([TODAY - age for age in range(300)]), seq=seq)
    writer = harness.writer
    writer.drain()
    victim = harness.file(segment_of([TODAY]), seq=2)
    statements_before = store.statements

    writer.drain()

    assert not victim.path.exists()
    assert store.statements - statements_before <= STATEMENTS_MAX


def test_backlog_age_grows_during_an_insert(tmp_path: Path) -> None:
    class SlowStore(MemoryStore):
        """A store whose INSERT takes a minute."""

        def insert(self, segment: Path, *, token: str, query_id: str) -> int:
            before_s = harness.progress.oldest_age_s(modified_s + 10.0)
            after_s = harness.progress.oldest_age_s(modified_s + 70.0)
            ages_s.append((before_s, after_s))
            return super().insert(segment, token=token, query_id=query_id)

    ages_s: list[tuple[float, float]] = []
    harness = harness_with(tmp_path, SlowStore())
    modified_s = harness.file(segment_of([TODAY])).path.stat().st_mtime

    harness.writer.drain()

    assert ages_s == [(10.0, 70.0)]
    assert harness.progress.oldest_age_s(NOW_S) == 0.0


def test_stalled_segment_is_in_the_metrics_until_it_is_stored(tmp_path: Path) -> None:
    store = BrokenStore("insert", trouble(117))
    harness, metrics = harness_with(tmp_path, store), Metrics("store")
    file = harness.file(segment_of([TODAY]))
    writer, dead = harness.writer, DeadLetters(tmp_path / "dead")
    snapshots = []
    for is_broken in (True, False):
        store.trouble = trouble(117) if is_broken else None
        if not is_broken:
            drain_until_gone(harness, writer, file)
        else:
            writer.drain()
        report(harness.progress, dead, metrics)
        snapshots.append(metrics.snapshot())

    values = [{metric.name: metric.value for metric in snapshot.series} for snapshot in snapshots]
    assert [metrics["backlog_stalled_segments"] for metrics in values] == [1.0, 0.0]


def test_deleted_segment_is_no_longer_stalled(tmp_path: Path) -> None:
    harness = harness_with(tmp_path, BrokenStore("insert", trouble(117)))
    file = harness.file(segment_of([TODAY]))
    writer = harness.writer
    writer.drain()

    file.path.unlink()
    writer.drain()

    assert harness.progress.stalled == {}


@pytest.mark.parametrize(
    ("operation", "text"),
    [
        pytest.param("insert", "its INSERT fails", id="INSERT"),
        pytest.param("count by heading", "a statement about its stored rows fails", id="query"),
    ],
)
def test_stall_names_the_statement_that_fails(tmp_path: Path, operation: str, text: str) -> None:
    harness = harness_with(tmp_path, BrokenStore(operation, trouble(None)))
    harness.file(segment_of([TODAY]))

    harness.writer.drain()

    assert harness.progress.stalled == {ATTACKER: f"{text}, but the store accepts other rows: no answer"}


@pytest.mark.parametrize("step_s", [86_400.0, -86_400.0], ids=["a day ahead", "a day back"])
def test_deferred_segment_is_tried_again_after_its_delay_although_the_wall_clock_was_set(
    tmp_path: Path, step_s: float
) -> None:
    store = BrokenStore("insert", trouble(243))
    harness = harness_with(tmp_path, store)
    writer = harness.writer
    writer.drain()
    file = harness.file(segment_of([TODAY]))
    writer.drain()
    store.trouble = None
    harness.clock_step_s = step_s

    harness.between_turns_s += 1.0
    writer.drain()
    is_early = not file.path.exists()
    harness.between_turns_s += 1.0
    writer.drain()

    assert not is_early
    assert not file.path.exists()
