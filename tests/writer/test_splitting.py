"""Splitting: a segment that is too large for the store is stored in pieces exactly once, also after crashes.

Delivery n has n + 1 rows, all n days old.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver.ledger.ledger import read_sums
from receiver.ledger.line_sums import Counts
from receiver.settings import Ledger as Limits
from tests.support.fake_clickhouse import MemoryStore
from tests.support.redelivery import Harness, killed_at_each_step
from tests.support.segments import day_of


def harness_with_row_limit(directory: Path, *, rows_max: int = 3) -> Harness:
    harness = Harness(directory)
    harness.store.rows_max = rows_max
    return harness


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return harness_with_row_limit(tmp_path)


@pytest.mark.parametrize("rows_max", [3, 1], ids=["once", "pieces again"])
def test_segment_that_is_too_large_is_inserted_in_pieces(harness: Harness, rows_max: int) -> None:
    harness.store.rows_max = rows_max
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert harness.is_ledger_exact
    assert harness.progress.rows == 11
    assert harness.progress.alarms == 0
    assert not harness.dead_letters
    assert list((harness.directory / "splits").iterdir()) == []
    ledger, _ = read_sums(harness.directory / "ledger", Limits())
    assert {segment.epoch for segment, _, _ in harness.store.parts} < set(ledger.epochs)


def test_segment_that_fits_at_a_retry_is_not_split(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["error:241", "error:159", "ok"]
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert len({token.partition("#")[0] for token in harness.store.tokens}) == 1


def test_single_row_that_is_too_large_does_not_delay_other_segments(tmp_path: Path) -> None:
    harness = harness_with_row_limit(tmp_path, rows_max=0)
    harness.add([0])
    writer = harness.start()
    writer.drain()
    harness.store.rows_max = 3
    harness.add([1])

    writer.drain()

    assert harness.copies == {0: 0, 1: 1}
    harness.sleep(60.0)
    writer.drain()
    assert harness.is_exact


def test_other_segments_are_inserted_before_the_pieces(harness: Harness) -> None:
    harness.add([5, 4])
    harness.add([1])

    harness.start().drain()

    assert harness.copies == {5: 0, 4: 0, 1: 1}


def test_duplicate_waits_until_the_last_piece_is_stored(harness: Harness) -> None:
    harness.add([5, 4])
    harness.start().drain()
    harness.add([4, 1])

    harness.drain()

    assert harness.is_exact
    assert harness.progress.duplicates == {"drain": 1}


@pytest.mark.parametrize("restarts", [0, 10])
def test_refused_rows_of_a_piece_become_a_dead_letter(harness: Harness, restarts: int) -> None:
    harness.store.poisonous_days = {day_of(1)}
    harness.add([5, 1, 4])

    for _ in range(restarts):
        harness.start()
        harness.run_turns(6)
    harness.drain()

    assert harness.copies == {5: 1, 1: 0, 4: 1}
    assert sum(letter.reason.rows or 0 for letter in harness.dead_letters) == 2
    assert harness.recorded == Counts(received=13, stored=11, dead=2)


def test_stored_days_are_not_split(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["first_day", *["error:241"] * 3]
    harness.add([5, 4])

    harness.drain()

    assert harness.is_exact
    assert "refill 1" in harness.store.events


def test_segment_with_partly_stored_days_is_not_split(harness: Harness) -> None:
    harness.store.rows_max = None
    harness.store.script = ["error:241", "error:241", "half_a_day:241"]
    harness.add([5])

    harness.drain()

    assert harness.copies == {5: 0.5}
    assert [letter.reason.cause for letter in harness.dead_letters] == ["odd"]


def test_pieces_are_kept_while_the_journal_does_not_list_their_segment(harness: Harness) -> None:
    harness.add([5, 4])
    writer = harness.start()
    harness.run_turns(3)
    harness.store.script = ["ok", *["error:117"] * 3]
    writer.drain()
    assert 0 < sum(harness.copies.values()) < 2

    harness.start(order=[]).drain()

    harness.start()
    harness.drain()
    assert harness.is_exact


@pytest.mark.parametrize("rows_max", [1, 4])
def test_kill_at_any_step_of_a_split_stores_every_row_once(tmp_path: Path, rows_max: int) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.rows_max = rows_max
        harness.add([5, 1])
        harness.add([5])

    for kill, harness in killed_at_each_step(tmp_path, prepare, range(1, 1_000, 2 if rows_max > 1 else 15)):
        harness.start(harness.files[::-1])
        harness.drain()

        assert harness.is_exact, f"{kill}: {harness.copies}"
        assert harness.is_ledger_exact, f"{kill}: {harness.recorded}"
        assert list((harness.directory / "splits").glob("*")) == [], kill


def test_pieces_that_expired_after_their_insert_are_not_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = harness_with_row_limit(tmp_path, rows_max=20)
    harness.add([20], [2], [15])
    harness.monotonic_s = 20 * 86_400.0
    insert = MemoryStore.insert

    def insert_and_expire(store: MemoryStore, path: Path, *, token: str, query_id: str) -> int:
        rows = insert(store, path, token=token, query_id=query_id)
        store.parts = [part for part in store.parts if part[1] > day_of(10)]
        return rows

    monkeypatch.setattr(MemoryStore, "insert", insert_and_expire)
    harness.start()
    harness.run_turns(20)

    assert harness.recorded == Counts(received=40, stored=40)
    assert not harness.dead_letters
