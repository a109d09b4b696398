"""The writer where the count and the answer of an INSERT disagree, or rows come and go between the two."""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.errors import StoreTrouble
from receiver.storage.surroundings import Stopping
from tests.storehouse import TODAY, MemoryStore, segment_of
from tests.test_writer import ID, TWO_DAYS, Bench

TOO_MANY_DAYS = "error:252 Too many partitions for single INSERT block"


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path, MemoryStore())


def test_more_rows_than_were_sent_call_a_human(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["twice"]

    bench.carry()

    assert [letter.cause for letter in bench.letters] == ["odd"]


def test_what_is_half_there_is_no_poison_whatever_the_store_says_of_it(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["half:70"]
    refused = StoreTrouble("cannot convert", code=70)
    monkeypatch.setattr(bench.store, "refusal_of", lambda path: refused if ".trial" in path.name else None)

    bench.carry()

    assert [letter.cause for letter in bench.letters] == ["odd"]


def test_days_that_are_missing_after_a_refusal_of_no_row_go_in_alone(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly:70"]

    bench.carry()

    assert sorted(bench.stored.values()) == [200, 300]
    assert bench.letters == []


def test_rows_that_are_not_all_seen_yet_are_looked_for_once_more(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
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


def test_a_file_the_engine_read_too_much_of_is_not_let_go_of(
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


def test_rows_that_may_have_expired_are_sent_all_the_same(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 31] * 10))

    bench.carry(in_doubt=True)

    assert list(bench.stored.values()) == [10]


def test_a_day_that_may_have_expired_is_sent_alone_once_and_not_waited_for(bench: Bench) -> None:
    bench.file(segment_of([TODAY - 31] * 10 + [TODAY] * 200))
    bench.store.script = [TOO_MANY_DAYS, "eaten", "ok"]

    bench.carry()

    assert list(bench.stored.values()) == [200]
    assert len(bench.store.tokens) == 3
    assert bench.letters == []


def test_a_day_that_vanishes_is_sent_no_more_often_than_a_whole_segment(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly", *["eaten"] * 20]

    bench.carry()

    days = [token.partition("@")[2] for token in bench.store.tokens[1:]]
    assert [token.partition("#")[2] for token in days] == [*map(str, range(8))]
    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("short", 200)]


def test_single_day_that_is_refused_as_too_many_days_is_sent_again_only_after_a_wait(bench: Bench) -> None:
    bench.file(segment_of([TODAY]))
    bench.store.script = [TOO_MANY_DAYS] * 8

    bench.carry()

    assert bench.between_turns_s >= 2.0 + 4.0
    assert sum(bench.stored.values()) == 1


def test_a_store_without_memory_for_anything_calls_nobody(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["error:241"] * 5
    bench.store.probe_refused = True

    bench.carry()

    assert bench.progress.alarms == 0
    assert sum(bench.stored.values()) == 500


def test_a_store_that_cannot_be_inspected_does_not_end_the_writer(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise StoreTrouble("away")

    monkeypatch.setattr(bench.store, "inspect", refused)
    bench.naps_max = 1250

    bench.writer.run()

    assert len(bench.slept) == 1250


def test_what_is_refused_whole_after_days_of_it_went_in_alone_is_set_aside_whole(bench: Bench) -> None:
    bench.file(TWO_DAYS)
    bench.store.script = ["partly", "emptied", *["error:70"] * 9]

    bench.carry()

    assert [(letter.cause, letter.rows) for letter in bench.letters] == [("refused", 500)]
