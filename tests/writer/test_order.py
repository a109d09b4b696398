"""Order in which the writer records the result of a segment and deletes the segment."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from receiver.dead_letters.directory import DeadLetters
from receiver.errors import StoreTrouble
from receiver.journal.writer_notes import SegmentOutcomes
from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import Counts
from receiver.redelivery.window import Window
from receiver.writer.splitting import Splitter
from tests.support.fake_clickhouse import FakeFile
from tests.support.redelivery import Harness
from tests.support.segments import day_of

LAST_STEPS: list[tuple[type, str]] = [
    (Ledger, "record"),
    # After the entry, for which the writer may wait for the store: a dead letter that is replayed before its
    # segment is recorded would be written again.
    (DeadLetters, "keep"),
    # A delivery is known only when its rows are counted or in a dead letter.
    (Window, "end"),
    # An intake that no longer lists the segment reads its outcome.
    (SegmentOutcomes, "write"),
    (FakeFile, "unlink"),
    # While the file exists, its pieces, its decision and its ledger entry must not be decided again.
    (Splitter, "delete"),
    (Window, "forget"),
    (Ledger, "settle"),
]


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    harness = Harness(tmp_path)
    harness.store.poisonous_days = {day_of(2)}
    harness.add([1, 2])
    return harness


def test_result_of_a_segment_is_written_and_its_state_deleted_in_a_safe_order(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[tuple[type, str]] = []

    def recorded(owner: type, name: str) -> Callable[..., object]:
        call = getattr(owner, name)

        def wrapper(*arguments: Any, **keywords: Any) -> object:  # noqa: ANN401 - of any call
            calls.append((owner, name))
            return call(*arguments, **keywords)

        return wrapper

    for owner, name in LAST_STEPS:
        monkeypatch.setattr(owner, name, recorded(owner, name))

    harness.drain()

    assert calls == LAST_STEPS


def test_dead_letter_is_not_visible_while_its_segment_cannot_be_recorded(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_arguments: object) -> object:
        raise StoreTrouble("connection refused")

    with monkeypatch.context() as patch:
        patch.setattr(harness.store, "rows_by_heading", refused)
        harness.start()
        harness.run_turns(20)

    assert harness.copies == {1: 1, 2: 0}
    assert harness.dead_letters == []
    harness.drain()
    assert [letter.reason.rows for letter in harness.dead_letters] == [3]
    assert harness.recorded == Counts(received=5, stored=2, dead=3)
