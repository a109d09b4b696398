"""The writer when the row count and the response to an INSERT disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.errors import StoreTrouble
from receiver.writer.environment import Stopping
from tests.support.fake_clickhouse import TODAY, MemoryStore, segment_of
from tests.writer.test_writer import ID, TWO_DAYS, WriterHarness

TOO_MANY_DAYS = "error:252 Too many partitions for single INSERT block"


@pytest.fixture
def harness(tmp_path: Path) -> WriterHarness:
    return WriterHarness(tmp_path, MemoryStore())


def test_more_stored_rows_than_sent_become_a_dead_letter(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["applied_twice"]

    harness.drain_first_segment()

    assert [letter.cause for letter in harness.dead_letters] == ["odd"]


def test_partly_stored_day_is_not_treated_as_refused(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["half_a_day:70"]

    harness.drain_first_segment()

    assert [letter.cause for letter in harness.dead_letters] == ["odd"]


def test_missing_days_are_inserted_after_a_refusal_that_does_not_recur(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["first_day:70"]

    harness.drain_first_segment()

    assert sorted(harness.stored.values()) == [200, 300]
    assert harness.dead_letters == []


def test_incomplete_count_is_repeated_once(harness: WriterHarness) -> None:
    writer = harness.writer
    writer.drain()
    file = harness.file(segment_of([TODAY] * 200))
    harness.store.script = ["half_a_day"]

    writer.drain()
    harness.store.parts *= 2
    harness.between_turns_s += 2.0
    writer.drain()

    assert not file.path.exists()
    assert harness.store.tokens == [f"{ID}#0"]
    assert harness.dead_letters == []


def test_segment_is_kept_if_the_engine_read_more_rows_than_it_has(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.file(TWO_DAYS)
    harness.sleeps_max = 1
    insert = harness.store.insert
    monkeypatch.setattr(harness.store, "counts", lambda _held: {})
    monkeypatch.setattr(harness.store, "insert", lambda path, **more: insert(path, **more) + 1)

    with pytest.raises(Stopping):
        harness.drain_first_segment()

    assert harness.store.tokens == [f"{ID}#0"]
    assert harness.files[0].path.exists()


def test_rows_that_may_have_expired_are_inserted(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY - 31] * 10))

    harness.drain_first_segment(in_doubt=True)

    assert list(harness.stored.values()) == [10]


def test_day_that_may_have_expired_is_inserted_once_and_not_required(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY - 31] * 10 + [TODAY] * 200))
    harness.store.script = [TOO_MANY_DAYS, "ok", "ok_without_rows"]

    harness.drain_first_segment()

    assert list(harness.stored.values()) == [200]
    assert len(harness.store.tokens) == 3
    assert harness.dead_letters == []


def test_vanishing_day_is_retried_as_often_as_a_complete_segment(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["first_day", *["ok_without_rows"] * 20]

    harness.drain_first_segment()

    assert [token.partition("#")[2] for token in harness.store.tokens] == ["0", "0", "1"]
    assert [(letter.cause, letter.rows) for letter in harness.dead_letters] == [("short", 200)]


def test_single_day_refused_as_too_many_partitions_is_retried_after_a_delay(harness: WriterHarness) -> None:
    harness.file(segment_of([TODAY]))
    harness.store.script = [TOO_MANY_DAYS] * 8

    harness.drain_first_segment()

    assert harness.between_turns_s >= 2.0 + 4.0
    assert sum(harness.stored.values()) == 1


def test_store_out_of_memory_raises_no_alarm(harness: WriterHarness) -> None:
    harness.file(TWO_DAYS)
    harness.store.script = ["error:241"] * 5
    harness.store.probe_refused = True

    harness.drain_first_segment()

    assert harness.progress.alarms == 0
    assert sum(harness.stored.values()) == 500


def test_failed_check_of_the_store_does_not_end_the_writer(
    harness: WriterHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing() -> None:
        raise StoreTrouble("connection refused")

    monkeypatch.setattr(harness.store, "inspect", failing)
    harness.sleeps_max = 1250

    harness.writer.run()

    assert len(harness.slept) == 1250
