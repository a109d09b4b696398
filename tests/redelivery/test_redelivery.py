"""The same delivery again: in one segment, in another, after a crash at any step. Stored once."""

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
from tests.support.redelivery import Fate, Killed, Mill, haunt, haunt_disk, segment_of


@pytest.fixture
def mill(tmp_path: Path) -> Mill:
    return Mill(tmp_path)


@pytest.mark.parametrize(
    "records",
    [
        pytest.param([[3, 3]], id="in one commit"),
        pytest.param([[3, 1], [2], [1, 3]], id="in one segment"),
        pytest.param([[3], [3], [3], [3]], id="four times"),
    ],
)
def test_copies_in_one_segment_are_stored_once(mill: Mill, records: list[list[int]]) -> None:
    mill.add(*records)

    mill.drain()

    assert mill.is_exact
    assert len(mill.store.tokens) == 1


def test_copy_in_a_later_segment_is_removed_before_the_first_insert(mill: Mill) -> None:
    mill.add([1, 2])
    again = mill.add([2, 3, 1])

    mill.drain()

    assert mill.is_exact
    assert again.replaced == 1
    assert len(mill.store.tokens) == 2


def test_segment_with_only_copies_is_deleted_without_an_insert(mill: Mill) -> None:
    mill.add([1, 2])
    mill.add([1], [2])

    mill.drain()

    assert mill.is_exact
    assert len(mill.store.tokens) == 1


def test_duplicates_are_counted_by_drain_with_all_their_spans(mill: Mill) -> None:
    mill.add([1, 2, 1])
    mill.add([2])

    mill.drain()

    assert mill.progress.duplicates == {"drain": 2}
    assert mill.progress.duplicate_spans == {"drain": 5}


def test_copy_is_recognised_after_a_restart(mill: Mill) -> None:
    mill.add([1, 2])
    mill.drain()
    mill.kill()

    mill.add([2, 1, 4])
    mill.drain()

    assert mill.is_exact


def test_same_body_from_another_drain_is_another_delivery(mill: Mill) -> None:
    mill.add([1])
    mill.add([1], drain="other")

    mill.drain()

    assert mill.copies == {1: 2.0}


def test_drain_without_dedupe_stores_every_copy(mill: Mill) -> None:
    mill.exempt_drains = frozenset({"drain"})
    mill.add([1, 1])
    mill.add([1])

    mill.drain()

    assert mill.copies == {1: 3.0}
    assert mill.progress.duplicates == {}
    assert mill.progress.window_entries == 0


def test_drain_that_disables_dedupe_stores_copies_of_known_deliveries(mill: Mill) -> None:
    mill.add([1])
    mill.drain()
    mill.kill()
    mill.exempt_drains = frozenset({"drain"})

    mill.add([1])
    mill.drain()

    assert mill.copies == {1: 2.0}


def test_delivery_that_vanished_from_the_store_is_not_known(mill: Mill) -> None:
    mill.add([1, 2])
    mill.store.script = ["eaten"] * 8
    mill.drain()

    mill.add([2, 1])
    mill.drain()

    assert mill.is_exact
    assert mill.progress.dead == {"short": 1}


@pytest.mark.parametrize("meets", [["half"], ["partly", *["eaten"] * 8]], ids=["odd", "short"])
def test_copy_of_a_partly_stored_delivery_is_not_stored(mill: Mill, meets: list[str]) -> None:
    mill.add([3, 2])
    mill.store.script = meets
    mill.drain()
    before = mill.copies
    assert 0 < sum(before.values()) < 2

    mill.add([2, 3])
    mill.drain()

    assert mill.copies == before
    assert mill.letters


def test_only_undamaged_deliveries_of_a_damaged_segment_are_known(mill: Mill) -> None:
    file = mill.add([1], [2], [3])
    content = bytearray(file.path.read_bytes())
    content[len(segment_of(1, [1])) + 40] ^= 1
    file.path.write_bytes(content)
    mill.drain()

    mill.add([3, 2, 1])
    mill.drain()

    assert mill.is_exact


def test_segment_that_an_older_version_inserted_is_not_deduplicated(mill: Mill) -> None:
    file = mill.add([1], [2], [1])
    mill.store.insert(file.path, token=f"{file.id}#0", query_id="q")
    mill.start()

    mill.drain()

    assert mill.copies == {1: 2.0, 2: 1.0}
    assert mill.progress.dead == {}


def test_segment_with_a_running_insert_of_an_older_version_is_not_deduplicated(mill: Mill) -> None:
    file = mill.add([1], [2], [1])
    mill.store.script = ["late:3"]
    with suppress(StoreTrouble):
        mill.store.insert(file.path, token=f"{file.id}#0", query_id=f"trace-drain-{file.id}#0")

    mill.drain()

    assert mill.copies == {1: 2.0, 2: 1.0}
    assert mill.progress.dead == {}


def test_nothing_is_known_or_booked_before_the_store_synced_it(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused() -> None:
        raise StoreTrouble("cannot sync", code=204)

    mill.add([1, 2])
    monkeypatch.setattr(mill.store, "sync", refused)

    with pytest.raises(AssertionError, match="not empty"):
        mill.drain()

    assert len(mill.store.parts) == 2
    assert len(mill.opened_window(mill.opened_ledger())) == 0
    assert mill.booked == Counts()


def test_duplicate_is_counted_once_although_deleting_its_segment_fails(
    mill: Mill, monkeypatch: pytest.MonkeyPatch
) -> None:
    mill.add([1], [1])
    unlink, refusals = FakeFile.unlink, [OSError(5, "Input/output error")] * 2

    def refusing(file: FakeFile) -> None:
        if refusals:
            raise refusals.pop()
        unlink(file)

    monkeypatch.setattr(FakeFile, "unlink", refusing)
    mill.drain()

    assert mill.progress.duplicates == {"drain": 1}


@pytest.mark.parametrize(
    "meets", ["lost", "burnt", "torn", "error:252 Too many partitions for single INSERT"]
)
def test_failed_insert_does_not_affect_deduplication(mill: Mill, meets: str) -> None:
    mill.store.script = [meets, "ok", meets]
    mill.add([1, 2], [3, 1])
    mill.add([4], [3, 5, 2])

    mill.drain()

    assert mill.is_exact
    assert mill.progress.dead == {}


def test_segment_waits_for_another_that_may_hold_the_same_rows(mill: Mill, tmp_path: Path) -> None:
    first, second = mill.add([1, 2]), mill.add([2, 3])
    window = mill.opened_window(mill.opened_ledger())
    window.decide(first.id, [one.digest for one in _deliveries(first.path)], bytes(2))
    window.close()
    aside = first.path.rename(tmp_path / "aside")
    first.path.mkdir()

    carried_while_the_first_is_unreadable = mill.start().drain()
    first.path.rmdir()
    aside.rename(first.path)
    mill.drain()

    assert carried_while_the_first_is_unreadable == 1
    assert not second.path.exists()
    assert mill.is_exact


def _deliveries(path: Path) -> Sequence[Answered]:
    return [one for record in transcode.scan(path.read_bytes()).records for one in answers_of(record)]


SCENE = ([[1, 2], [2]], [[3, 1], [4]], [[1, 2, 3]], [[5], [4, 5]])


def _played(mill: Mill, kill_at: Sequence[int], *, is_reversed: bool = False) -> int:
    """Play the scene, with a kill after so many steps of each life. The steps of the last life."""
    for records in SCENE:
        mill.add(*records)
    for steps in [*kill_at, -1]:
        mill.fate.steps, mill.fate.steps_left = 0, steps
        mill.kill()
        try:
            mill.start(mill.files[::-1] if is_reversed and steps == -1 else None)
            mill.drain()
        except Killed:
            assert mill.is_accounted_for, f"killed at step {steps}: {mill.booked}"
            continue
        break
    return mill.fate.steps


@pytest.mark.parametrize("is_reversed", [False, True], ids=["same order", "another order after it"])
@pytest.mark.timeout(300)
def test_kill_at_any_step_stores_every_delivery_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_reversed: bool
) -> None:
    fate = Fate()
    haunt(fate, monkeypatch)
    (tmp_path / "whole").mkdir()
    few = Redelivery(entries_max=24)
    steps = _played(Mill(tmp_path / "whole", fate=fate, limits=few), [])
    assert steps > 40

    for step in range(1, steps + 1):
        directory = tmp_path / str(step)
        directory.mkdir()
        mill = Mill(directory, fate=fate, limits=few)
        _played(mill, [step], is_reversed=is_reversed)
        assert mill.is_exact, f"killed at step {step}: {mill.copies}"
        assert mill.is_ledger_exact, f"killed at step {step}: {mill.booked}"
        assert mill.progress.dead == {}


@pytest.mark.timeout(300)
def test_single_failed_disk_write_duplicates_and_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fate = Fate(ends_with=lambda: OSError(5, "refused"))
    haunt_disk(fate, monkeypatch)
    (tmp_path / "whole").mkdir()
    few = Redelivery(entries_max=24)
    whole = Mill(tmp_path / "whole", fate=fate, limits=few)
    whole.start()
    begun = fate.steps
    _played_on(whole)

    for step in range(1, fate.steps - begun + 1):
        directory = tmp_path / str(step)
        directory.mkdir()
        mill = Mill(directory, fate=fate, limits=few)
        mill.start()
        fate.steps_left = step
        _played_on(mill)
        assert mill.is_exact, f"refused at step {step}: {mill.copies}"
        assert mill.is_ledger_exact, f"refused at step {step}: {mill.booked}"
        assert mill.progress.dead == {}


def _played_on(mill: Mill) -> None:
    for records in SCENE:
        mill.add(*records)
    mill.drain()


RECORDS = st.lists(st.lists(st.integers(0, 6), min_size=1, max_size=3), min_size=1, max_size=3)
MEETS = st.sampled_from(["ok", "ok", "ok", "lost", "error:210", "burnt", "torn"])
LIVES = st.lists(
    st.tuples(st.lists(RECORDS, max_size=2), st.integers(1, 60), st.randoms(use_true_random=False)),
    min_size=1,
    max_size=4,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lives=LIVES, script=st.lists(MEETS, max_size=6), entries=st.sampled_from([24, 10_000_000]))
def test_any_sequence_of_copies_and_crashes_stores_each_delivery_once(
    tmp_path_factory: pytest.TempPathFactory,
    lives: list[tuple[list[list[list[int]]], int, Random]],
    script: list[str],
    entries: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        fate = Fate()
        haunt(fate, patch)
        mill = Mill(tmp_path_factory.mktemp("mill"), script, Redelivery(entries_max=entries), fate=fate)
        for segments, steps, shuffle in lives:
            for records in segments:
                mill.add(*records)
            order = list(mill.files)
            shuffle.shuffle(order)
            mill.kill()
            fate.steps_left = steps
            with suppress(Killed):
                mill.start(order).drain()
            assert mill.is_accounted_for, mill.booked
        fate.steps_left = -1
        mill.kill()
        mill.drain()

    assert mill.is_exact, mill.copies
    assert mill.is_ledger_exact, mill.booked
    assert mill.progress.dead == {}
