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
from tests.support.redelivery import (
    NAPS_MAX,
    FaultInjector,
    Harness,
    Killed,
    inject_disk_faults,
    inject_faults,
)
from tests.support.segments import day_of

GONE = "0000000000000007-0000000001"


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    made = Harness(tmp_path)
    made.store.poisonous_days = {day_of(2)}
    return made


def rows_of_letters(harness: Harness) -> list[tuple[str, int]]:
    return [
        (letter.reason.cause, sum(record.rows for record in transcode.scan(letter.path.read_bytes()).records))
        for letter in harness.letters
    ]


def test_refused_rows_become_a_dead_letter_and_the_others_are_inserted(harness: Harness) -> None:
    harness.add([1, 2, 3], [4])

    harness.drain()

    assert harness.copies == {1: 1, 2: 0, 3: 1, 4: 1}
    assert rows_of_letters(harness) == [("poison", 3)]
    assert harness.progress.dead_rows == {"poison": 3}


def test_dead_letter_names_the_error_the_drain_and_the_project(harness: Harness) -> None:
    harness.add([1, 2, 3], drain="acme")

    harness.drain()

    (letter,) = harness.letters
    (dead,) = letter.reason.deliveries
    assert letter.reason.text == "constraint is violated"
    assert (dead.drain, dead.projects, dead.rows) == ("acme", ("",), 3)
    assert (letter.reason.left_out, letter.reason.of_rows) == (((2, 5),), 9)


def test_dead_letters_are_readable_only_by_their_owner(harness: Harness) -> None:
    (harness.directory / "dead").mkdir(mode=0o755)
    harness.add([2])

    harness.drain()

    files = [*(harness.directory / "dead").iterdir()]
    assert len(files) == 2
    assert {path.stat().st_mode & 0o777 for path in files} == {0o600}
    assert (harness.directory / "dead").stat().st_mode & 0o777 == 0o700


def test_remaining_rows_are_one_insert_with_its_own_token(harness: Harness) -> None:
    harness.add([1, 2, 3])

    harness.drain()

    assert [token.partition(GONE)[2] for token in harness.store.tokens] == ["#0", "!#0"]
    assert list((harness.directory / "repair").iterdir()) == []


def test_remaining_rows_have_their_own_token_after_a_crash(harness: Harness) -> None:
    harness.store.script = ["ok", *["error:210"] * 2 * NAPS_MAX]
    harness.add([1, 2, 3])
    with suppress(AssertionError):
        harness.drain()

    harness.store.script, harness.naps = [], 0
    harness.start()
    harness.drain()

    assert {token.partition("#")[0][-2:] for token in harness.store.tokens[1:]} == {"1!"}
    assert harness.copies == {1: 1, 2: 0, 3: 1}


def test_segment_of_only_refused_rows_is_one_dead_letter(harness: Harness) -> None:
    harness.add([2], [2])

    harness.drain()

    assert rows_of_letters(harness) == [("poison", 3)]
    assert harness.copies == {2: 0}


def test_search_for_refused_rows_does_not_delay_other_segments(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("receiver.writer.poison.TRIALS_PER_TURN", 1)
    harness.add([1, 2, 3])
    harness.add([4])

    turns = harness.start().drain()

    assert turns == 2
    assert harness.copies == {1: 0, 2: 0, 3: 0, 4: 1}
    assert harness.naps == 0


def test_duplicate_of_a_delivery_with_dead_rows_is_not_stored(harness: Harness) -> None:
    harness.add([1, 2])
    harness.drain()

    harness.add([2, 1])
    harness.drain()

    assert harness.copies == {1: 1, 2: 0}
    assert len(harness.letters) == 1
    assert harness.progress.duplicates == {"drain": 2}


def test_remaining_rows_that_are_refused_become_a_dead_letter(harness: Harness) -> None:
    harness.add([1, 2, 3])
    harness.store.script = ["error:70 first", "error:70 the view says no"]

    harness.start().drain()
    harness.drain()

    assert [(letter.reason.cause, letter.reason.rows) for letter in harness.letters] == [
        ("poison", 3),
        ("refused", 6),
    ]
    assert sum(harness.copies.values()) == 0


def test_refused_rows_of_a_missing_day_leave_the_stored_days_unchanged(harness: Harness) -> None:
    harness.add([1, 2, 3])
    harness.store.poisonous_days = set()
    harness.store.script = ["partly"]
    harness.start()
    whole = harness.store.insert

    def insert(segment: Path, *, token: str, query_id: str) -> int:
        try:
            return whole(segment, token=token, query_id=query_id)
        finally:
            harness.store.poisonous_days = {day_of(2)}

    harness.store.insert = insert  # type: ignore[method-assign]  # from the second INSERT on
    harness.drain()

    assert harness.copies == {1: 1, 2: 0, 3: 1}
    assert rows_of_letters(harness) == [("poison", 3)]


def test_without_the_right_to_create_a_clone_all_rows_are_dead(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusal_of(_segment: Path) -> StoreTrouble | None:
        raise StoreTrouble("not enough privileges", code=497, name="ACCESS_DENIED")

    harness.add([1, 2, 3])
    harness.store.poisonous_days = set()
    harness.store.script = ["error:469 constraint"]
    monkeypatch.setattr(harness.store, "refusal_of", lambda _segment: None)
    harness.start()
    whole = harness.store.insert

    def insert(segment: Path, *, token: str, query_id: str) -> int:
        try:
            return whole(segment, token=token, query_id=query_id)
        finally:
            monkeypatch.setattr(harness.store, "refusal_of", refusal_of)

    monkeypatch.setattr(harness.store, "insert", insert)
    writer = harness.start()
    for _ in range(8):
        writer.drain()
        harness.sleep(60.0)

    (letter,) = harness.letters
    assert letter.reason.cause == "refused"
    assert letter.reason.text == "constraint; the rows could not be tried individually: ACCESS_DENIED (497)"


@pytest.mark.parametrize("code", [None, 210, 252], ids=["no answer", "network", "too many parts"])
def test_failed_trial_is_no_verdict_on_its_rows(
    harness: Harness, monkeypatch: pytest.MonkeyPatch, code: int | None
) -> None:
    refusal_of, tried = harness.store.refusal_of, set()

    def first_failing(segment: Path) -> StoreTrouble | None:
        content = segment.read_bytes()
        if ".trial" not in segment.name or content in tried:
            return refusal_of(segment)
        tried.add(content)
        return StoreTrouble("failed", code=code)

    harness.add([1, 2, 3])
    monkeypatch.setattr(harness.store, "refusal_of", first_failing)
    harness.drain()

    assert len(tried) > 2
    assert rows_of_letters(harness) == [("poison", 3)]
    assert harness.copies == {1: 1, 2: 0, 3: 1}


def test_trial_that_exceeds_the_stores_memory_is_halved(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusal_of = harness.store.refusal_of

    def narrow(segment: Path) -> StoreTrouble | None:
        harness.store.rows_max = 3 if ".trial" in segment.name else None
        return refusal_of(segment)

    harness.add([1, 2, 3])
    monkeypatch.setattr(harness.store, "refusal_of", narrow)
    harness.drain()

    assert rows_of_letters(harness) == [("poison", 3)]
    assert harness.copies == {1: 1, 2: 0, 3: 1}


def test_refused_range_without_further_trials_is_dead_as_a_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_search, "TRIES_MAX", 3)
    looked = row_search.RowSearch.among([(0, 8)], reason="refused", code=70)

    is_over = looked.advance(lambda rows: any(first in {0, 4} for first, _ in rows), 99)

    assert is_over
    assert looked.refused_rows() == [(0, 8)]


def test_search_over_its_trial_limit_treats_open_ranges_as_refused(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_search, "TRIES_MAX", 2)
    harness.add([5, 2])

    harness.drain()

    assert rows_of_letters(harness) == [("poison", 5)]
    assert harness.copies == {5: 4 / 6, 2: 0}


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
    injector = FaultInjector()
    inject_faults(injector, monkeypatch)
    for step in range(1, 400):
        directory = tmp_path / str(step)
        directory.mkdir()
        harness = Harness(directory, injector=injector)
        harness.store.poisonous_days = {day_of(2)}
        for record in records:
            harness.add(record)
        harness.add([4])
        injector.steps_left = step
        with suppress(Killed):
            harness.start().drain()
            harness.drain()
            break
        injector.steps_left = -1
        if is_mended:
            harness.store.poisonous_days = set()

        harness.start(harness.files[::-1])
        harness.drain()

        letters = rows_of_letters(harness)
        expected = {number: float(number != 2 or not letters) for number in harness.issued}
        assert harness.copies == expected, f"killed at step {step}"
        assert letters == [("poison", 3)] or (is_mended and not letters), f"killed at step {step}"
        assert harness.is_accounted_for, f"killed at step {step}: {harness.booked}"
        assert harness.booked.dead == (3 if letters else 0), f"killed at step {step}: {harness.booked}"
    else:
        raise AssertionError("never reached the end")


def test_any_single_failed_write_loses_no_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    injector = FaultInjector(ends_with=lambda: OSError(5, "Input/output error"))
    inject_disk_faults(injector, monkeypatch)
    for step in range(1, 400):
        directory = tmp_path / str(step)
        directory.mkdir()
        harness = Harness(directory, injector=injector)
        harness.store.poisonous_days = {day_of(2)}
        harness.add([1, 2, 3])
        writer = harness.start()
        injector.steps_left = step
        writer.drain()
        is_over, injector.steps_left = injector.steps_left > 0, -1

        harness.drain()

        assert harness.copies == {1: 1, 2: 0, 3: 1}, f"refused at step {step}"
        assert rows_of_letters(harness) == [("poison", 3)], f"refused at step {step}"
        assert harness.is_accounted_for, f"refused at step {step}: {harness.booked}"
        assert harness.booked.dead == 3, f"refused at step {step}: {harness.booked}"
        if is_over:
            return
    raise AssertionError("never reached the end")


def test_dead_letter_is_a_readable_segment(harness: Harness) -> None:
    harness.add([1, 2])
    harness.drain()

    (letter,) = harness.letters
    content = letter.path.read_bytes()
    file = harness.files[0]
    file.path.write_bytes(content)

    assert not read_segment(file, transcode).damage
