"""Poison rows: refused rows become a dead letter and the others are one INSERT, also after crashes.

Delivery n has n + 1 rows, all n days old: a poisonous day is a delivery whose rows are refused.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest

from receiver import transcode
from receiver.errors import StoreTrouble
from receiver.writer import row_search
from receiver.writer.segment_state import read_segment
from tests.support.redelivery import NAPS_MAX, Fate, Killed, Mill, haunt, haunt_disk
from tests.support.segments import day_of

GONE = "0000000000000007-0000000001"


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    made = Mill(tmp_path)
    made.store.poisonous_days = {day_of(2)}
    return made


def rows_of_letters(mill: Mill) -> list[tuple[str, int]]:
    return [
        (letter.reason.cause, sum(record.rows for record in transcode.scan(letter.path.read_bytes()).records))
        for letter in mill.letters
    ]


def test_refused_rows_become_a_dead_letter_and_the_others_are_inserted(mill: Mill) -> None:
    mill.add([1, 2, 3], [4])

    mill.drain()

    assert mill.copies == {1: 1, 2: 0, 3: 1, 4: 1}
    assert rows_of_letters(mill) == [("poison", 3)]
    assert mill.progress.dead_rows == {"poison": 3}


def test_dead_letter_names_the_error_the_drain_and_the_project(mill: Mill) -> None:
    mill.add([1, 2, 3], drain="acme")

    mill.drain()

    (letter,) = mill.letters
    (dead,) = letter.reason.deliveries
    assert letter.reason.text == "constraint is violated"
    assert (dead.drain, dead.projects, dead.rows) == ("acme", ("",), 3)
    assert (letter.reason.left_out, letter.reason.of_rows) == (((2, 5),), 9)


def test_dead_letters_are_readable_only_by_their_owner(mill: Mill) -> None:
    (mill.directory / "dead").mkdir(mode=0o755)
    mill.add([2])

    mill.drain()

    files = [*(mill.directory / "dead").iterdir()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (mill.directory / "dead").stat().st_mode & 0o777 == 0o700


def test_remaining_rows_are_one_insert_with_its_own_token(mill: Mill) -> None:
    mill.add([1, 2, 3])

    mill.drain()

    assert [token.partition(GONE)[2] for token in mill.store.tokens] == ["#0", "!#0"]
    assert list((mill.directory / "repair").iterdir()) == []


def test_remaining_rows_have_their_own_token_after_a_crash(mill: Mill) -> None:
    mill.store.script = ["ok", *["error:210"] * 2 * NAPS_MAX]
    mill.add([1, 2, 3])
    with suppress(AssertionError):
        mill.drain()

    mill.store.script, mill.naps = [], 0
    mill.start()
    mill.drain()

    assert {token.partition("#")[0][-2:] for token in mill.store.tokens[1:]} == {"1!"}
    assert mill.copies == {1: 1, 2: 0, 3: 1}


def test_segment_of_only_refused_rows_is_one_dead_letter(mill: Mill) -> None:
    mill.add([2], [2])

    mill.drain()

    assert rows_of_letters(mill) == [("poison", 3)]
    assert mill.copies == {2: 0}


def test_search_for_refused_rows_does_not_delay_other_segments(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.writer.poison.TRIALS_PER_TURN", 1)
    mill.add([1, 2, 3])
    mill.add([4])

    turns = mill.start().drain()

    assert turns == 2
    assert mill.copies == {1: 0, 2: 0, 3: 0, 4: 1}
    assert mill.naps == 0


def test_duplicate_of_a_delivery_with_dead_rows_is_not_stored(mill: Mill) -> None:
    mill.add([1, 2])
    mill.drain()

    mill.add([2, 1])
    mill.drain()

    assert mill.copies == {1: 1, 2: 0}
    assert len(mill.letters) == 1
    assert mill.progress.duplicates == {"drain": 2}


def test_remaining_rows_that_are_refused_become_a_dead_letter(mill: Mill) -> None:
    mill.add([1, 2, 3])
    mill.store.script = ["error:70 first", "error:70 the view says no"]

    mill.start().drain()
    mill.drain()

    assert [(letter.reason.cause, letter.reason.rows) for letter in mill.letters] == [
        ("poison", 3),
        ("refused", 6),
    ]
    assert sum(mill.copies.values()) == 0


def test_refused_rows_of_a_missing_day_leave_the_stored_days_unchanged(mill: Mill) -> None:
    mill.add([1, 2, 3])
    mill.store.poisonous_days = set()
    mill.store.script = ["partly"]
    mill.start()
    whole = mill.store.insert

    def insert(segment: Path, *, token: str, query_id: str) -> int:
        try:
            return whole(segment, token=token, query_id=query_id)
        finally:
            mill.store.poisonous_days = {day_of(2)}

    mill.store.insert = insert  # type: ignore[method-assign]  # from the second INSERT on
    mill.drain()

    assert mill.copies == {1: 1, 2: 0, 3: 1}
    assert rows_of_letters(mill) == [("poison", 3)]


def test_without_the_right_to_create_a_clone_all_rows_are_dead(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal_of(_segment: Path) -> StoreTrouble | None:
        raise StoreTrouble("not enough privileges", code=497, name="ACCESS_DENIED")

    mill.add([1, 2, 3])
    mill.store.poisonous_days = set()
    mill.store.script = ["error:469 constraint"]
    monkeypatch.setattr(mill.store, "refusal_of", lambda _segment: None)
    mill.start()
    whole = mill.store.insert

    def insert(segment: Path, *, token: str, query_id: str) -> int:
        try:
            return whole(segment, token=token, query_id=query_id)
        finally:
            monkeypatch.setattr(mill.store, "refusal_of", refusal_of)

    monkeypatch.setattr(mill.store, "insert", insert)
    writer = mill.start()
    for _ in range(8):
        writer.drain()
        mill.sleep(60.0)

    (letter,) = mill.letters
    assert letter.reason.cause == "refused"
    assert letter.reason.text == "constraint; the rows could not be tried individually: ACCESS_DENIED (497)"


@pytest.mark.parametrize("code", [None, 210, 252], ids=["no answer", "network", "too many parts"])
def test_failed_trial_is_no_verdict_on_its_rows(
    mill: Mill, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    refusal_of, tried = mill.store.refusal_of, set()

    def first_failing(segment: Path) -> StoreTrouble | None:
        content = segment.read_bytes()
        if ".trial" not in segment.name or content in tried:
            return refusal_of(segment)
        tried.add(content)
        return StoreTrouble("failed", code=code)

    mill.add([1, 2, 3])
    monkeypatch.setattr(mill.store, "refusal_of", first_failing)
    mill.drain()

    assert len(tried) > 2
    assert rows_of_letters(mill) == [("poison", 3)]
    assert mill.copies == {1: 1, 2: 0, 3: 1}


def test_trial_that_exceeds_the_stores_memory_is_halved(mill: Mill, monkeypatch: pytest.MonkeyPatch) -> None:
    refusal_of = mill.store.refusal_of

    def narrow(segment: Path) -> StoreTrouble | None:
        mill.store.rows_max = 3 if ".trial" in segment.name else None
        return refusal_of(segment)

    mill.add([1, 2, 3])
    monkeypatch.setattr(mill.store, "refusal_of", narrow)
    mill.drain()

    assert rows_of_letters(mill) == [("poison", 3)]
    assert mill.copies == {1: 1, 2: 0, 3: 1}


def test_refused_range_without_further_trials_is_dead_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_search, "TRIES_MAX", 3)
    looked = row_search.RowSearch.among([(0, 8)], reason="refused", code=70)

    is_over = looked.advance(lambda rows: any(first in {0, 4} for first, _ in rows), 99)

    assert is_over
    assert looked.refused_rows() == [(0, 8)]


def test_search_over_its_trial_limit_treats_open_ranges_as_refused(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_search, "TRIES_MAX", 2)
    mill.add([5, 2])

    mill.drain()

    assert rows_of_letters(mill) == [("poison", 5)]
    assert mill.copies == {5: 4 / 6, 2: 0}


@pytest.mark.parametrize(
    ("records", "is_mended"),
    [
        pytest.param([[1, 2, 3]], False, id="some"),
        pytest.param([[1, 2, 3]], True, id="some, and the store takes them afterwards"),
        pytest.param([[2]], True, id="all, and the store takes them afterwards"),
        pytest.param([[1], [2], [4, 2]], False, id="some of many"),
    ],
)
def test_kill_at_any_step_of_the_search_keeps_every_row_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, records: list[list[int]], *, is_mended: bool
) -> None:
    fate = Fate()
    haunt(fate, monkeypatch)
    for step in range(1, 400):
        directory = tmp_path / str(step)
        directory.mkdir()
        mill = Mill(directory, fate=fate)
        mill.store.poisonous_days = {day_of(2)}
        for record in records:
            mill.add(record)
        mill.add([4])
        fate.steps_left = step
        with suppress(Killed):
            mill.start().drain()
            mill.drain()
            break
        fate.steps_left = -1
        if is_mended:
            mill.store.poisonous_days = set()

        mill.start(mill.files[::-1])
        mill.drain()

        letters = rows_of_letters(mill)
        expected = {number: float(number != 2 or not letters) for number in mill.issued}
        assert mill.copies == expected, f"killed at step {step}"
        assert letters == [("poison", 3)] or (is_mended and not letters), f"killed at step {step}"
        assert mill.is_accounted_for, f"killed at step {step}: {mill.booked}"
        assert mill.booked.dead == (3 if letters else 0), f"killed at step {step}: {mill.booked}"
    else:
        raise AssertionError("never reached the end")


def test_any_single_failed_write_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fate = Fate(ends_with=lambda: OSError(5, "Input/output error"))
    haunt_disk(fate, monkeypatch)
    for step in range(1, 400):
        directory = tmp_path / str(step)
        directory.mkdir()
        mill = Mill(directory, fate=fate)
        mill.store.poisonous_days = {day_of(2)}
        mill.add([1, 2, 3])
        writer = mill.start()
        fate.steps_left = step
        writer.drain()
        is_over, fate.steps_left = fate.steps_left > 0, -1

        mill.drain()

        assert mill.copies == {1: 1, 2: 0, 3: 1}, f"refused at step {step}"
        assert rows_of_letters(mill) == [("poison", 3)], f"refused at step {step}"
        assert mill.is_accounted_for, f"refused at step {step}: {mill.booked}"
        assert mill.booked.dead == 3, f"refused at step {step}: {mill.booked}"
        if is_over:
            return
    raise AssertionError("never reached the end")


def test_dead_letter_is_a_readable_segment(mill: Mill) -> None:
    mill.add([1, 2])
    mill.drain()

    (letter,) = mill.letters
    content = letter.path.read_bytes()
    file = mill.files[0]
    file.path.write_bytes(content)

    assert not read_segment(file, transcode).damage
