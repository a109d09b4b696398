"""Poison rows: refused rows become a dead letter and the other rows are inserted, also after crashes.

Delivery n has n + 1 rows, all n days old, so `poisonous_days` selects the delivery whose rows are refused.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from receiver import transcode
from receiver.errors import StoreTrouble
from receiver.writer import units
from receiver.writer.reading import read_segment
from tests.support.redelivery import Harness, killed_at_each_step, refused_at_each_step
from tests.support.segments import day_of

SEGMENT = "0000000000000007-0000000001"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.store.poisonous_days = {day_of(2)}
    return harness


def dead_rows_by_cause(harness: Harness) -> list[tuple[str, int]]:
    return [
        (letter.reason.cause, sum(record.rows for record in transcode.scan(letter.path.read_bytes()).records))
        for letter in harness.dead_letters
    ]


def test_refused_rows_become_a_dead_letter_and_the_others_are_inserted(harness: Harness) -> None:
    file = harness.add([1, 2, 3], [4], drain="acme")

    harness.drain()

    (letter,) = harness.dead_letters
    (dead,) = letter.reason.deliveries
    assert harness.copies == {1: 1, 2: 0, 3: 1, 4: 1}
    assert dead_rows_by_cause(harness) == [("poison", 3)]
    assert harness.progress.dead_rows == {"poison": 3}
    assert letter.reason.text == "constraint is violated"
    assert (dead.drain, dead.projects, dead.rows) == ("acme", ("",), 3)
    assert not read_segment(file, transcode, content=letter.path.read_bytes()).damage


def test_dead_letters_are_readable_only_by_their_owner(harness: Harness) -> None:
    (harness.directory / "dead").mkdir(mode=0o755)
    harness.add([2])

    harness.drain()

    files = [*(harness.directory / "dead").iterdir()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (harness.directory / "dead").stat().st_mode & 0o777 == 0o700


def test_pieces_are_inserted_under_their_own_segment_ids(harness: Harness) -> None:
    harness.add([1, 2, 3])

    harness.drain()

    ids = [token.partition("#")[0] for token in harness.store.tokens]
    assert ids[0] == SEGMENT
    assert len(set(ids)) == len(ids)
    assert len({piece_id.partition("-")[0] for piece_id in ids[1:]}) == 1
    assert list((harness.directory / "repair").iterdir()) == []


def test_restarted_writer_inserts_only_the_remaining_pieces(harness: Harness) -> None:
    harness.add([1, 2, 3])
    harness.start()
    harness.run_turns(4)
    stored_before = sum(rows for _, _, rows in harness.store.parts)
    tokens_before = len(harness.store.tokens)

    harness.start()
    harness.drain()

    assert 0 < stored_before < 6
    assert SEGMENT not in {token.partition("#")[0] for token in harness.store.tokens[tokens_before:]}
    assert harness.copies == {1: 1, 2: 0, 3: 1}


def test_segment_of_only_refused_rows_is_one_dead_letter(harness: Harness) -> None:
    harness.add([2], [2])

    harness.drain()

    assert dead_rows_by_cause(harness) == [("poison", 3)]
    assert harness.copies == {2: 0}


def test_search_for_refused_rows_does_not_delay_other_segments(harness: Harness) -> None:
    harness.add([1, 2, 3])
    harness.add([4])

    progressed = harness.start().drain()

    assert progressed == 2
    assert harness.copies == {1: 0, 2: 0, 3: 0, 4: 1}
    assert harness.sleeps == 0


def test_duplicate_of_a_delivery_with_dead_rows_is_not_stored(harness: Harness) -> None:
    harness.add([1, 2])
    harness.drain()

    harness.add([2, 1])
    harness.drain()

    assert harness.copies == {1: 1, 2: 0}
    assert len(harness.dead_letters) == 1
    assert harness.progress.duplicates == {"drain": 2}


def test_rows_that_are_refused_once_are_stored(harness: Harness) -> None:
    harness.store.poisonous_days = set()
    harness.store.script = ["error:70 first", "error:70 again"]
    harness.add([1, 2, 3])

    harness.drain()

    assert harness.dead_letters == []
    assert harness.is_exact


@pytest.mark.parametrize("code", [None, 210, 252], ids=["no answer", "network", "too many parts"])
def test_failed_insert_of_a_piece_does_not_refuse_its_rows(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    insert = harness.store.insert
    failed: set[str] = set()

    def fail_each_piece_once(segment: Path, *, token: str, query_id: str) -> int:
        if token in failed or token.startswith(SEGMENT):
            return insert(segment, token=token, query_id=query_id)
        failed.add(token)
        raise StoreTrouble("failed", code=code)

    harness.add([1, 2, 3])
    monkeypatch.setattr(harness.store, "insert", fail_each_piece_once)
    harness.drain()

    assert len(failed) > 2
    assert dead_rows_by_cause(harness) == [("poison", 3)]
    assert harness.copies == {1: 1, 2: 0, 3: 1}


def test_refused_piece_becomes_a_dead_letter_at_the_split_limit(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units, "SPLITS_MAX", 1)
    harness.add([2, 5])

    harness.drain()

    assert dead_rows_by_cause(harness) == [("refused", 4)]
    assert harness.copies == {2: 0, 5: 5 / 6}


@pytest.mark.parametrize(
    ("records", "is_accepted_later"),
    [
        pytest.param([[1, 2]], False, id="some"),
        pytest.param(
            [[1, 2, 3]],
            True,
            id="some, and the store accepts them after the restart",
            marks=pytest.mark.fault_tier,
        ),
        pytest.param([[2]], True, id="all, and the store accepts them after the restart"),
        pytest.param([[1], [2], [4, 2]], False, id="some of many", marks=pytest.mark.fault_tier),
    ],
)
def test_kill_at_any_step_of_the_search_keeps_every_row_once(
    tmp_path: Path, records: list[list[int]], *, is_accepted_later: bool
) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.poisonous_days = {day_of(2)}
        for record in [*records, [4]]:
            harness.add(record)

    for kill, harness in killed_at_each_step(tmp_path, prepare, range(1, 400)):
        if is_accepted_later:
            harness.store.poisonous_days = set()

        harness.start(harness.files[::-1])
        harness.drain()

        dead = sum(rows for _, rows in dead_rows_by_cause(harness))
        expected = {number: (3 - dead) / 3 if number == 2 else 1.0 for number in harness.issued}
        assert harness.copies == pytest.approx(expected), kill
        assert dead == 3 or is_accepted_later, kill
        assert harness.is_accounted_for, f"{kill}: {harness.recorded}"
        assert harness.recorded.dead == dead, f"{kill}: {harness.recorded}"


def test_any_single_failed_write_loses_no_row(tmp_path: Path) -> None:
    def prepare(harness: Harness) -> None:
        harness.store.poisonous_days = {day_of(2)}
        harness.add([1, 2, 3])

    error = OSError(5, "Input/output error")
    for refusal, harness in refused_at_each_step(
        tmp_path, prepare, lambda harness: harness.current.drain(), error
    ):
        harness.drain()

        assert harness.copies == {1: 1, 2: 0, 3: 1}, refusal
        assert dead_rows_by_cause(harness) == [("poison", 3)], refusal
        assert harness.is_accounted_for, f"{refusal}: {harness.recorded}"
        assert harness.recorded.dead == 3, f"{refusal}: {harness.recorded}"
