"""Ledger and journal at one instant: whatever the writer does meanwhile, every span is counted once."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from receiver.journal.heads import PendingSegment, pending_segments
from receiver.ledger import balance as balance_room
from receiver.ledger.balance import Accounts, AccountsAtRest, Backlog, Balance
from receiver.ledger.ledger import Ledger
from receiver.ledger.line_sums import OUTCOMES, Counts
from receiver.model import Heading, SegmentId
from receiver.settings import Ledger as Limits
from tests.support.journal import append, appender

SEGMENTS = 150
PLACE = Heading("s", "p", 500_000)


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger(tmp_path / "ledger", Limits(), lambda: 0.0, is_first=True)


def fill(root: Path, segments: int) -> list[SegmentId]:
    journal = appender(root=root)
    found = []
    for _ in range(segments):
        found.append(append(journal, "s"))
        journal.seal()
    return found


def received(balance: Balance) -> int:
    return sum(counts.received for counts in balance.sums.lines.values()) + sum(balance.journal.values())


def carry(ledger: Ledger, root: Path, waiting: PendingSegment) -> None:
    """What the writer does at the end of a segment."""
    ledger.book(waiting.id, {PLACE: Counts(received=1, stored=1)})
    for path in (root / f"{waiting.id.epoch:016x}").glob(f"{waiting.id.seq:010d}.*"):
        path.unlink()
    ledger.settle(waiting.id)


def test_a_segment_is_in_the_journal_until_it_is_booked(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, 2)
    accounts = Accounts(ledger, Backlog(root))
    [one, two] = pending_segments(root)
    before = accounts.balance()
    ledger.book(one.id, {PLACE: Counts(received=1, stored=1)})

    after = accounts.balance()

    assert (received(before), received(after)) == (2, 2)
    assert (before.waiting, after.waiting) == ({one.id, two.id}, {two.id})
    assert after.totals()["s"] == {
        **dict.fromkeys(OUTCOMES, 0), "received": 2, "stored": 1, "journal": 1
    }  # fmt: skip


def test_at_rest_the_files_say_the_same(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, 3)
    [one, two, _] = pending_segments(root)
    carry(ledger, root, one)
    ledger.book(two.id, {PLACE: Counts(received=1, dead=1)})
    ledger.close()

    found = AccountsAtRest(tmp_path, Limits()).balance()

    assert (received(found), sum(found.journal.values())) == (3, 1)


@pytest.mark.parametrize("carried", [0, 1, 2])
def test_what_is_carried_while_somebody_looks_is_counted_once(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carried: int
) -> None:
    root = tmp_path / "journal"
    fill(root, 3)
    every = list(pending_segments(root))
    accounts = Accounts(ledger, Backlog(root))

    def interrupted(at: Path) -> list[PendingSegment]:
        found = list(pending_segments(at))
        for waiting in every[:carried]:
            carry(ledger, root, waiting)
        return found

    monkeypatch.setattr(balance_room, "pending_segments", interrupted)

    assert received(accounts.balance()) == 3


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_of_a_segment_that_lost_rows_what_is_left_still_waits(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    root = tmp_path / "journal"
    [segment] = fill(root, 1)
    accounts = Accounts(ledger, Backlog(root))

    def interrupted(at: Path) -> list[PendingSegment]:
        ledger.damaged(segment, 5, PLACE.hour)
        return list(pending_segments(at))

    if when == "before":
        ledger.damaged(segment, 5, PLACE.hour)
    else:
        monkeypatch.setattr(balance_room, "pending_segments", interrupted)
    found = accounts.balance()

    assert (received(found), found.waiting) == (6, {segment})
    ledger.close()
    assert received(AccountsAtRest(tmp_path, Limits()).balance()) == 6


def test_what_is_replayed_was_counted_before_and_waits(ledger: Ledger, tmp_path: Path) -> None:
    [segment] = fill(tmp_path / "journal", 1)
    ledger.replaying(segment)

    found = Accounts(ledger, Backlog(tmp_path / "journal")).balance()

    assert (received(found), found.waiting) == (0, {segment})


def test_a_segment_that_was_rewritten_is_read_anew_and_counted_once(tmp_path: Path) -> None:
    [segment] = fill(tmp_path / "journal", 1)
    backlog = Backlog(tmp_path / "journal")
    before = backlog.read()
    (path,) = (tmp_path / "journal").glob("*/*.native.lz4")
    draft = path.with_suffix(".draft")
    draft.write_bytes(path.read_bytes())

    draft.rename(path)

    assert backlog.read() == before == {segment: before[segment]}
    assert before[segment].total() == 1


def test_in_no_look_at_a_busy_writer_a_span_is_missing_or_there_twice(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, SEGMENTS)
    accounts = Accounts(ledger, Backlog(root))
    busy = threading.Thread(target=_carry_all, args=(ledger, root))
    seen = set()

    busy.start()
    while busy.is_alive():
        seen.add(received(accounts.balance()))
    busy.join()

    assert seen <= {SEGMENTS}
    assert accounts.balance().journal == {}


def _carry_all(ledger: Ledger, root: Path) -> None:
    for waiting in list(pending_segments(root)):
        carry(ledger, root, waiting)


def test_of_what_is_booked_again_between_two_looks_the_difference_is_told(
    ledger: Ledger, tmp_path: Path
) -> None:
    [one] = fill(tmp_path / "journal", 1)
    accounts = Accounts(ledger, Backlog(tmp_path / "journal"))
    ledger.book(one, {PLACE: Counts(received=1, dead=1)})

    _, _, seen = accounts.around(lambda _before: ledger.book(one, {PLACE: Counts(received=1, stored=1)}))

    assert seen.lines == {PLACE: Counts(stored=1, dead=-1)}


def test_what_was_booked_between_two_looks_is_told(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, 2)
    accounts = Accounts(ledger, Backlog(root))
    [one, two] = pending_segments(root)
    carry(ledger, root, one)

    def between(before: Balance) -> set[SegmentId]:
        carry(ledger, root, two)
        return set(before.waiting)

    before, after, seen = accounts.around(between)

    assert before == {two.id}
    assert (after.waiting, seen.since) == (set(), {two.id})
    assert seen.lines == {PLACE: Counts(received=1, stored=1)}
