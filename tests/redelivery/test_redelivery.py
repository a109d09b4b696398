"""Redelivery in the same segment, in another segment, and after a crash at any step: stored once."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from random import Random

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from receiver import transcode
from receiver.errors import StoreTrouble
from receiver.journal.frame import Answered, answers_of
from receiver.ledger.line_sums import Counts
from receiver.settings import Redelivery
from tests.support.fake_clickhouse import FakeFile
from tests.support.redelivery import (
    FaultInjector,
    Harness,
    Killed,
    inject_faults,
    killed_at_each_step,
    refused_at_each_step,
    segment_of,
)


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


@pytest.mark.parametrize(
    ("segments", "inserts"),
    [
        pytest.param([[[3, 3]]], 1, id="in one commit"),
        pytest.param([[[3, 1], [2], [1, 3]]], 1, id="in one segment"),
        pytest.param([[[3], [3], [3], [3]]], 1, id="four times"),
        pytest.param([[[1, 2]], [[2, 3, 1]]], 2, id="in a later segment"),
        pytest.param([[[1, 2]], [[1], [2]]], 1, id="segment with only copies"),
    ],
)
def test_copies_are_removed_before_the_first_insert(
    harness: Harness, segments: list[list[list[int]]], inserts: int
) -> None:
    for records in segments:
        harness.add(*records)

    harness.drain()

    assert harness.is_exact
    assert len(harness.store.tokens) == inserts
    assert harness.files[-1].replaced == 1


def test_duplicates_are_counted_by_drain_with_all_their_spans(harness: Harness) -> None:
    harness.add([1, 2, 1])
    harness.add([2])

    harness.drain()

    assert harness.progress.duplicates == {"drain": 2}
    assert harness.progress.duplicate_spans == {"drain": 5}


def test_copy_is_recognised_after_a_restart(harness: Harness) -> None:
    harness.add([1, 2])
    harness.drain()
    harness.kill()

    harness.add([2, 1, 4])
    harness.drain()

    assert harness.is_exact


def test_same_body_from_another_drain_is_another_delivery(harness: Harness) -> None:
    harness.add([1])
    harness.add([1], drain="other")

    harness.drain()

    assert harness.copies == {1: 2.0}


def test_drain_without_dedupe_stores_every_copy(harness: Harness) -> None:
    harness.exempt_drains = frozenset({"drain"})
    harness.add([1, 1])
    harness.add([1])

    harness.drain()

    assert harness.copies == {1: 3.0}
    assert harness.progress.duplicates == {}
    assert harness.progress.window_entries == 0


def test_drain_that_disables_dedupe_stores_copies_of_known_deliveries(harness: Harness) -> None:
    harness.add([1])
    harness.drain()
    harness.kill()
    harness.exempt_drains = frozenset({"drain"})

    harness.add([1])
    harness.drain()

    assert harness.copies == {1: 2.0}


def test_delivery_that_vanished_from_the_store_is_not_known(harness: Harness) -> None:
    harness.add([1, 2])
    harness.store.script = ["ok_without_rows"] * 8
    harness.drain()

    harness.add([2, 1])
    harness.drain()

    assert harness.is_exact
    assert harness.progress.dead == {"short": 1}


@pytest.mark.parametrize(
    "outcomes", [["half_a_day"], ["first_day", *["ok_without_rows"] * 8]], ids=["odd", "short"]
)
def test_copy_of_a_partly_stored_delivery_is_not_stored(harness: Harness, outcomes: list[str]) -> None:
    harness.add([3, 2])
    harness.store.script = outcomes
    harness.drain()
    before = harness.copies
    assert 0 < sum(before.values()) < 2

    harness.add([2, 3])
    harness.drain()

    assert harness.copies == before
    assert harness.dead_letters


def test_only_undamaged_deliveries_of_a_damaged_segment_are_known(harness: Harness) -> None:
    file = harness.add([1], [2], [3])
    content = bytearray(file.path.read_bytes())
    content[len(segment_of(1, [1])) + 40] ^= 1
    file.path.write_bytes(content)
    harness.drain()

    harness.add([3, 2, 1])
    harness.drain()

    assert harness.is_exact


@pytest.mark.parametrize("script", [[], ["delayed:3"]], ids=["inserted", "INSERT still runs"])
def test_segment_that_an_older_version_sent_is_not_deduplicated(harness: Harness, script: list[str]) -> None:
    file = harness.add([1], [2], [1])
    harness.store.script = script
    with suppress(StoreTrouble):
        harness.store.insert(file.path, token=f"{file.id}#0", query_id=f"trace-drain-{file.id}#0")

    harness.drain()

    assert harness.copies == {1: 2.0, 2: 1.0}
    assert harness.progress.dead == {}


def test_nothing_is_recorded_or_deduplicated_before_the_store_synced_it(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise StoreTrouble("cannot sync", code=204)

    harness.add([1, 2])
    monkeypatch.setattr(harness.store, "sync", refused)

    with pytest.raises(AssertionError, match="not empty"):
        harness.drain()

    assert len(harness.store.parts) == 2
    assert len(harness.opened_window(harness.opened_ledger())) == 0
    assert harness.recorded == Counts()


def test_duplicate_is_counted_once_although_deleting_its_segment_fails(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.add([1], [1])
    unlink, refusals = FakeFile.unlink, [OSError(5, "Input/output error")] * 2

    def refusing(file: FakeFile) -> None:
        if refusals:
            raise refusals.pop()
        unlink(file)

    monkeypatch.setattr(FakeFile, "unlink", refusing)
    harness.drain()

    assert harness.progress.duplicates == {"drain": 1}


@pytest.mark.parametrize(
    "outcome",
    [
        "answer_lost",
        "tokens_without_rows",
        "tokens_and_first_day",
        "error:252 Too many partitions for single INSERT",
    ],
)
def test_failed_insert_does_not_affect_deduplication(harness: Harness, outcome: str) -> None:
    harness.store.script = [outcome, "ok", outcome]
    harness.add([1, 2], [3, 1])
    harness.add([4], [3, 5, 2])

    harness.drain()

    assert harness.is_exact
    assert harness.progress.dead == {}


def test_segment_waits_for_another_that_may_hold_the_same_rows(harness: Harness, tmp_path: Path) -> None:
    first, second = harness.add([1, 2]), harness.add([2, 3])
    window = harness.opened_window(harness.opened_ledger())
    window.decide(first.id, [delivery.digest for delivery in _deliveries(first.path)], bytes(2))
    window.close()
    moved = first.path.rename(tmp_path / "moved")
    first.path.mkdir()

    inserted_while_the_first_is_unreadable = harness.start().drain()
    first.path.rmdir()
    moved.rename(first.path)
    harness.drain()

    assert inserted_while_the_first_is_unreadable == 1
    assert not second.path.exists()
    assert harness.is_exact


def _deliveries(path: Path) -> Sequence[Answered]:
    return [
        delivery for record in transcode.scan(path.read_bytes()).records for delivery in answers_of(record)
    ]


SEGMENTS = ([[1, 2], [2]], [[3, 1], [4]], [[1, 2, 3]], [[5], [4, 5]])
SMALL_WINDOW = Redelivery(entries_max=24)


@pytest.mark.parametrize(
    "is_reversed",
    [
        pytest.param(False, id="same order", marks=pytest.mark.fault_tier),
        pytest.param(True, id="reverse order afterwards"),
    ],
)
@pytest.mark.timeout(300)
def test_kill_at_any_step_stores_every_delivery_once(tmp_path: Path, *, is_reversed: bool) -> None:
    def prepare(harness: Harness) -> None:
        harness.limits = SMALL_WINDOW
        for records in SEGMENTS:
            harness.add(*records)

    kills = 0
    for kill, harness in killed_at_each_step(tmp_path, prepare):
        kills += 1
        assert harness.is_accounted_for, f"{kill}: {harness.recorded}"

        harness.start(harness.files[::-1] if is_reversed else None)
        harness.drain()

        assert harness.is_exact, f"{kill}: {harness.copies}"
        assert harness.is_ledger_exact, f"{kill}: {harness.recorded}"
        assert harness.progress.dead == {}, kill
    assert kills > 40


@pytest.mark.timeout(300)
def test_single_failed_disk_write_duplicates_and_loses_no_span(tmp_path: Path) -> None:
    def prepare(harness: Harness) -> None:
        harness.limits = SMALL_WINDOW

    def run(harness: Harness) -> None:
        for records in SEGMENTS:
            harness.add(*records)
        harness.drain()

    for refusal, harness in refused_at_each_step(tmp_path, prepare, run, OSError(5, "refused")):
        assert harness.is_exact, f"{refusal}: {harness.copies}"
        assert harness.is_ledger_exact, f"{refusal}: {harness.recorded}"
        assert harness.progress.dead == {}, refusal


RECORDS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=3)
OUTCOMES = st.sampled_from(
    ["ok", "ok", "ok", "answer_lost", "error:210", "tokens_without_rows", "tokens_and_first_day"]
)
RUNS = st.lists(
    st.tuples(st.lists(RECORDS, max_size=2), st.integers(1, 60), st.randoms(use_true_random=False)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(runs=RUNS, script=st.lists(OUTCOMES, max_size=6), entries=st.sampled_from([24, 10_000_000]))
def test_any_sequence_of_copies_and_crashes_stores_each_delivery_once(
    tmp_path_factory: pytest.TempPathFactory,
    runs: list[tuple[list[list[list[int]]], int, Random]],
    script: list[str],
    entries: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        injector = FaultInjector()
        inject_faults(injector, patch)
        harness = Harness(
            tmp_path_factory.mktemp("data"), script, Redelivery(entries_max=entries), injector=injector
        )
        for segments, steps, shuffle in runs:
            for records in segments:
                harness.add(*records)
            order = list(harness.files)
            shuffle.shuffle(order)
            harness.kill()
            injector.steps_left = steps
            with suppress(Killed):
                harness.start(order).drain()
            assert harness.is_accounted_for, harness.recorded
        injector.steps_left = -1
        harness.kill()
        harness.drain()

    assert harness.is_exact, harness.copies
    assert harness.is_ledger_exact, harness.recorded
    assert harness.progress.dead == {}
