"""The writer when the count and the response of an INSERT disagree."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.errors import StoreTrouble
from receiver.writer.environment import Stopping
from tests.support.fake_clickhouse import TODAY, MemoryStore, segment_of
from tests.writer.test_writer import ID, TWO_DAYS, Bench

TOO_MANY_DAYS = "error:252 Too many partitions for single INSERT block"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, MemoryStore())


def test_more_stored_rows_than_sent_become_a_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["twice"]

    bench.carry()

    assert [letter.cause for letter in bench.letters] == ["odd"]


def test_partly_stored_day_is_not_treated_as_refused(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["half:70"]
    refused = StoreTrouble("cannot convert", code=70)
    monkeypatch.setattr(bench.store, "refusal_of", lambda path: refused if ".trial" in path.name else None)

    bench.carry()

    assert [letter.cause for letter in bench.letters] == ["odd"]


def test_missing_days_are_inserted_if_no_row_is_refused(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly:70"]

    bench.carry()

    assert sorted(bench.stored.values()) == [200, 300]
    assert bench.letters == []


def test_incomplete_count_is_repeated_once(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.file(segment_of([TODAY] * 200))
    bench.store.script = ["half"]

    def seen_later(delay_s: float) -> None:
        bench.slept.append(delay_s)
        bench.store.parts *= 2

    monkeypatch.setattr(bench, "sleep", seen_later)
    bench.carry()

    assert bench.slept == [2.0]
    assert bench.store.tokens == [f"{ID}#0"]
    assert bench.letters == []


def test_segment_of_which_the_engine_read_too_many_rows_is_kept(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.file(TWO_DAYS)
    bench.naps_max = 1
    insert = bench.store.insert
    monkeypatch.setattr(bench.store, "counts", lambda _held: {})
    monkeypatch.setattr(bench.store, "insert", lambda path, **more: insert(path, **more) + 1)

    with pytest.raises(Stopping):
        bench.carry()

    assert bench.store.tokens == [f"{ID}#0"]
    assert bench.files[0].path.exists()


def test_rows_that_may_have_expired_are_inserted(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 31] * 10))

    bench.carry(in_doubt=True)

    assert list(bench.stored.values()) == [10]


def test_day_that_may_have_expired_is_inserted_once_and_not_required(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 31] * 10 + [TODAY] * 200))
    bench.store.script = [TOO_MANY_DAYS, "eaten", "ok"]

    bench.carry()

    assert list(bench.stored.values()) == [200]
    assert len(bench.store.tokens) == 3
    assert bench.letters == []


def test_vanishing_day_is_inserted_as_often_as_a_whole_segment(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly", *["eaten"] * 20]

    bench.carry()

    days = [token.partition("@")[2] for token in bench.store.tokens[1:]]
    assert [token.partition("#")[2] for token in days] == [*map(str, range(8))]
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("short", 200)]


def test_single_day_refused_as_too_many_partitions_is_retried_after_a_delay(bench: Bench) -> None:
    bench.file(segment_of([TODAY]))
    bench.store.script = [TOO_MANY_DAYS] * 8

    bench.carry()

    assert bench.between_turns_s >= 2.0 + 4.0
    assert sum(bench.stored.values()) == 1


def test_store_out_of_memory_raises_no_alarm(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:241"] * 5
    bench.store.probe_refused = True

    bench.carry()

    assert bench.progress.alarms == 0
    assert sum(bench.stored.values()) == 500


def test_failed_check_of_the_store_does_not_end_the_writer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise StoreTrouble("away")

    monkeypatch.setattr(bench.store, "inspect", refused)
    bench.naps_max = 1250

    bench.writer.run()

    assert len(bench.slept) == 1250


def test_segment_refused_as_a_whole_after_its_days_is_one_dead_letter(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly", "emptied", *["error:70"] * 9]

    bench.carry()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("refused", 500)]
