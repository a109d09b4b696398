"""Progress: no input and no error about one segment blocks the writer; an alarm is raised."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from receiver.dead_letters.letter_files import DeadLetters
from receiver.engine.error_codes import TOO_LARGE
from receiver.engine.store import DayRows, Held, RowSum
from receiver.errors import StoreTrouble
from receiver.metrics import Metrics
from receiver.model import Heading, SegmentId
from receiver.store_process.metrics import report
from tests.support.fake_clickhouse import NOW_S, TODAY, FakeFile, MemoryStore, segment_of
from tests.writer.test_writer import Bench

ATTACKER, VICTIM = SegmentId(7, 1), SegmentId(7, 2)
WAIT_S_MAX = 30.0
STATEMENTS_MAX = 40
"""Statements of other segments that a new segment may wait for. Each touches at most 100 days."""
ROUNDS_MAX = 5_000
STEP_S = 5.0
"""Time that passes while no segment has a turn."""


class BrokenStore(MemoryStore):
    """A store in which one kind of statement about the first segment fails."""

    def __init__(self, operation: str = "", trouble: StoreTrouble | None = None) -> None:
        super().__init__()
        self.operation = operation
        self.trouble = trouble
        self.statements = 0

    def _meet(self, operation: str, segment: SegmentId) -> None:
        self.statements += 1
        if self.trouble is not None and (operation, segment) == (self.operation, ATTACKER):
            raise self.trouble

    def insert(self, segment: Path, *, token: str, query_id: str) -> int:
        """See `Store`."""
        self._meet("insert", _segment_in(segment))
        return super().insert(segment, token=token, query_id=query_id)

    def refusal_of(self, segment: Path) -> StoreTrouble | None:
        """See `Store`."""
        if ".trial" in segment.name:
            self._meet("trial", _segment_in(segment))
        return super().refusal_of(segment)

    def counts(self, held: Sequence[Held]) -> dict[SegmentId, DayRows]:
        """See `Store`."""
        self._meet("count", held[0].segment)
        return super().counts(held)

    def rows_by_heading(self, held: Held, parts_epoch: int | None = None) -> dict[Heading, RowSum]:
        """See `Store`."""
        self._meet("count by heading", held.segment)
        return super().rows_by_heading(held, parts_epoch)

    def refill_companion(self, held: Held, days: Sequence[str]) -> None:
        """See `Store`."""
        self._meet("refill", held.segment)
        super().refill_companion(held, days)

    def running(self, prefix: str) -> list[str]:
        """See `Store`."""
        self._meet("running", ATTACKER if prefix.endswith(str(ATTACKER)) else VICTIM)
        return super().running(prefix)


def _segment_in(path: Path) -> SegmentId:
    return SegmentId(7, int(path.name.partition("@")[0].partition(".")[0].rpartition("-")[2]))


def trouble(code: int | None, text: str = "failed") -> StoreTrouble:
    return StoreTrouble(text, code=code, name="FAILED" if code else "")


def a_bench(directory: Path, store: MemoryStore) -> Bench:
    return Bench(directory, store, naps_max=1_000)


def rows_of(bench: Bench, segment: SegmentId) -> dict[str, int]:
    rows: Counter[str] = Counter()
    for whose, day, count in bench.store.parts:
        rows[day] += count if whose == segment else 0
    return +rows


def drain_until_gone(bench: Bench, writer: Any, file: FakeFile) -> float:  # noqa: ANN401 - a writer
    """Run rounds until a segment is deleted. Return the simulated time that passed."""
    begun_s = sum(bench.slept) + bench.between_turns_s
    for _ in range(ROUNDS_MAX):
        if not file.path.exists():
            return sum(bench.slept) + bench.between_turns_s - begun_s
        bench.between_turns_s += 0.0 if writer.drain() else STEP_S
    raise AssertionError(f"segment {file.id} is not stored: {bench.progress.trouble}")


TROUBLES = [
    pytest.param(trouble(None), id="no answer"),
    pytest.param(trouble(159), id="time spent"),
    pytest.param(trouble(210), id="network"),
    pytest.param(trouble(241), id="memory spent"),
    pytest.param(trouble(243), id="no space"),
    pytest.param(trouble(252, "Too many parts"), id="too many parts"),
    pytest.param(trouble(252, "Too many partitions for single INSERT block"), id="too many partitions"),
    pytest.param(trouble(117), id="schema"),
    pytest.param(trouble(469), id="poison"),
    pytest.param(trouble(31_337), id="unknown code"),
]


@pytest.mark.parametrize("error", TROUBLES)
@pytest.mark.parametrize("operation", ["insert", "count", "running", "refill", "trial", "count by heading"])
def test_statement_that_fails_for_one_segment_delays_no_other(
    tmp_path: Path, operation: str, error: StoreTrouble
) -> None:
    store = BrokenStore(operation, error)
    bench = a_bench(tmp_path, store)
    if operation in {"refill", "running"}:
        store.script = ["lost"]
    if operation in {"trial", "count by heading"}:
        store.script = ["partly:469"]
    # A segment of one row cannot be split; splitting has its own tests.
    rows = [TODAY] if error.code in TOO_LARGE else [TODAY - 1] * 30 + [TODAY] * 20
    attacker = bench.file(segment_of(rows))
    victim = bench.file(segment_of([TODAY] * 3), seq=2)
    writer = bench.writer

    waited_s = drain_until_gone(bench, writer, victim)

    assert waited_s <= WAIT_S_MAX
    assert sum(rows_of(bench, VICTIM).values()) == 3
    for _ in range(40):
        bench.between_turns_s += 0.0 if writer.drain() else STEP_S
    is_waiting = attacker.path.exists()
    assert not is_waiting or str(ATTACKER) in bench.progress.stall_reason
    store.trouble = None
    drain_until_gone(bench, writer, attacker)
    assert bench.progress.stall_reason == ""
    dead_rows = sum(letter.reason.rows or 0 for letter in DeadLetters(tmp_path / "dead").letters())
    assert sum(rows_of(bench, ATTACKER).values()) + dead_rows == len(rows)


@pytest.mark.parametrize("seed", range(8))
def test_no_delivery_blocks_a_later_delivery(tmp_path: Path, seed: int) -> None:
    dice = random.Random(seed)
    store = BrokenStore()
    bench = a_bench(tmp_path, store)
    days = dice.choice([1, 2, 99, 101, 250])
    rows = [TODAY - dice.randrange(days) for _ in range(dice.choice([1, 50, 300]))]
    attacker = bench.file(segment_of(rows))
    store.partitions_max = dice.choice([7, 30, 100])
    if len({*rows}) > store.partitions_max:
        store.rows_max = dice.choice([None, max(Counter(rows).values())])
    bad = {*rows[: dice.choice([0, 0, 1, 5])]}
    store.poisonous_days = set(store.rows_of(FakeFile.make(tmp_path, segment_of([*bad]), seq=9).path))
    store.script = dice.choice([[], ["lost"], ["burnt"], ["torn"], ["error:210"] * 3])
    writer = bench.writer
    writer.drain()
    victim = bench.file(segment_of([TODAY + 1]), seq=2)
    statements_before = store.statements

    waited_s = drain_until_gone(bench, writer, victim)

    assert waited_s <= WAIT_S_MAX
    assert store.statements - statements_before <= STATEMENTS_MAX
    assert sum(rows_of(bench, VICTIM).values()) == 1
    drain_until_gone(bench, writer, attacker)
    dead_rows = sum(letter.reason.rows or 0 for letter in DeadLetters(tmp_path / "dead").letters())
    assert sum(count for _, _, count in store.parts) + dead_rows == len(rows) + 1


@pytest.mark.parametrize("partitions_max", [100, 50, 7, 1])
def test_segment_of_many_days_is_inserted_in_groups_of_days(tmp_path: Path, partitions_max: int) -> None:
    bench = a_bench(tmp_path, MemoryStore())
    bench.file(segment_of([TODAY - age for age in range(200)]))
    bench.store.partitions_max = partitions_max

    bench.carry()

    assert sorted(bench.store.parts) == sorted(set(bench.store.parts))
    assert len(bench.store.parts) == 200
    assert bench.letters == []
    assert bench.slept == []


def test_companion_table_is_refilled_for_every_day_after_a_lost_response(tmp_path: Path) -> None:
    bench = a_bench(tmp_path, MemoryStore("lost"))
    bench.store.partitions_max = 10_000
    file = bench.file(segment_of([TODAY - age for age in range(365)]))
    writer = bench.writer
    writer.drain()
    bench.store.partitions_max = 50

    drain_until_gone(bench, writer, file)

    assert sorted(bench.store.refilled) == sorted((ATTACKER, day) for day in rows_of(bench, ATTACKER))


def test_segment_of_many_days_is_finished_by_the_next_process(tmp_path: Path) -> None:
    bench = a_bench(tmp_path, MemoryStore())
    file = bench.file(segment_of([TODAY - age for age in range(400)]))

    for _ in range(3):
        bench.writer.drain()
    half_done = len(bench.store.parts)
    drain_until_gone(bench, bench.writer, file)

    assert 0 < half_done < 400
    assert len(bench.store.parts) == len(set(bench.store.parts)) == 400
    assert len(bench.store.refilled) >= half_done


def test_new_segment_waits_for_at_most_one_turn_of_a_deferred_segment(tmp_path: Path) -> None:
    store = BrokenStore()
    bench = a_bench(tmp_path, store)
    for seq in range(10, 20):
        bench.file(segment_of([TODAY - age for age in range(300)]), seq=seq)
    writer = bench.writer
    writer.drain()
    victim = bench.file(segment_of([TODAY]), seq=2)
    statements_before = store.statements

    writer.drain()

    assert not victim.path.exists()
    assert store.statements - statements_before <= STATEMENTS_MAX


def test_backlog_age_grows_during_an_insert(tmp_path: Path) -> None:
    class SlowStore(MemoryStore):
        """A store whose INSERT takes a minute."""

        def insert(self, segment: Path, *, token: str, query_id: str) -> int:
            before_s = bench.progress.oldest_age_s(modified_s + 10.0)
            after_s = bench.progress.oldest_age_s(modified_s + 70.0)
            ages_s.append((before_s, after_s))
            return super().insert(segment, token=token, query_id=query_id)

    ages_s: list[tuple[float, float]] = []
    bench = a_bench(tmp_path, SlowStore())
    modified_s = bench.file(segment_of([TODAY])).path.stat().st_mtime

    bench.writer.drain()

    assert ages_s == [(10.0, 70.0)]
    assert bench.progress.oldest_age_s(NOW_S) == 0.0


def test_stalled_segment_is_in_the_metrics_until_it_is_stored(tmp_path: Path) -> None:
    store = BrokenStore("insert", trouble(117))
    bench, metrics = a_bench(tmp_path, store), Metrics("store")
    file = bench.file(segment_of([TODAY]))
    writer, dead = bench.writer, DeadLetters(tmp_path / "dead")
    seen = []
    for is_broken in (True, False):
        store.trouble = trouble(117) if is_broken else None
        if not is_broken:
            drain_until_gone(bench, writer, file)
        else:
            writer.drain()
        report(bench.progress, dead, metrics)
        seen.append(metrics.snapshot())

    values = [{metric.name: metric.value for metric in snapshot.series} for snapshot in seen]
    assert [metrics["backlog_stalled_segments"] for metrics in values] == [1.0, 0.0]


def test_deleted_segment_is_not_stalled_any_more(tmp_path: Path) -> None:
    bench = a_bench(tmp_path, BrokenStore("insert", trouble(117)))
    file = bench.file(segment_of([TODAY]))
    writer = bench.writer
    writer.drain()

    file.path.unlink()
    writer.drain()

    assert bench.progress.stalled == {}
