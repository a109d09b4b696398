"""Balance of ledger and journal: every span is counted once, even while the writer works."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from receiver.journal.heads import PendingSegment, pending_segments
from receiver.ledger import balance as balance_room
from receiver.ledger.balance import Backlog, Balance, LiveBalanceSource, OfflineBalanceSource
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
    ids = []
    for _ in range(segments):
        ids.append(append(journal, "s"))
        journal.seal()
    return ids


def received(balance: Balance) -> int:
    return sum(counts.received for counts in balance.sums.lines.values()) + sum(balance.journal.values())


def finish(ledger: Ledger, root: Path, waiting: PendingSegment) -> None:
    """Record, delete and settle a segment, as the writer does."""
    ledger.record(waiting.id, {PLACE: Counts(received=1, stored=1)})
    for path in (root / f"{waiting.id.epoch:016x}").glob(f"{waiting.id.seq:010d}.*"):
        path.unlink()
    ledger.settle(waiting.id)


def test_segment_counts_as_in_the_journal_until_it_is_recorded(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, 2)
    balances = LiveBalanceSource(ledger, Backlog(root))
    [first, second] = pending_segments(root)
    before = balances.balance()
    ledger.record(first.id, {PLACE: Counts(received=1, stored=1)})

    after = balances.balance()

    assert (received(before), received(after)) == (2, 2)
    assert (before.waiting, after.waiting) == ({first.id, second.id}, {second.id})
    assert after.totals()["s"] == {
        **dict.fromkeys(OUTCOMES, 0), "received": 2, "stored": 1, "journal": 1
    }  # fmt: skip


def test_files_of_a_stopped_receiver_give_the_same_balance(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, 3)
    [first, second, _] = pending_segments(root)
    finish(ledger, root, first)
    ledger.record(second.id, {PLACE: Counts(received=1, dead=1)})
    ledger.close()

    balance = OfflineBalanceSource(tmp_path, Limits()).balance()

    assert (received(balance), sum(balance.journal.values())) == (3, 1)


@pytest.mark.parametrize("finished_count", [0, 1, 2])
def test_segment_recorded_during_a_read_is_counted_once(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, finished_count: int
) -> None:
    root = tmp_path / "journal"
    fill(root, 3)
    every = list(pending_segments(root))
    balances = LiveBalanceSource(ledger, Backlog(root))

    def interrupted(at: Path) -> list[PendingSegment]:
        segments = list(pending_segments(at))
        for waiting in every[:finished_count]:
            finish(ledger, root, waiting)
        return segments

    monkeypatch.setattr(balance_room, "pending_segments", interrupted)

    assert received(balances.balance()) == 3


@pytest.mark.parametrize("when", ["before", "meanwhile"])
def test_damaged_segment_still_waits_with_its_remaining_rows(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    root = tmp_path / "journal"
    [segment] = fill(root, 1)
    balances = LiveBalanceSource(ledger, Backlog(root))

    def interrupted(at: Path) -> list[PendingSegment]:
        ledger.record_damage(segment, 5, PLACE.hour)
        return list(pending_segments(at))

    if when == "before":
        ledger.record_damage(segment, 5, PLACE.hour)
    else:
        monkeypatch.setattr(balance_room, "pending_segments", interrupted)
    balance = balances.balance()

    assert (received(balance), balance.waiting) == (6, {segment})
    ledger.close()
    assert received(OfflineBalanceSource(tmp_path, Limits()).balance()) == 6


def test_replayed_segment_waits_without_being_counted_again(ledger: Ledger, tmp_path: Path) -> None:
    [segment] = fill(tmp_path / "journal", 1)
    ledger.record_replay(segment)

    balance = LiveBalanceSource(ledger, Backlog(tmp_path / "journal")).balance()

    assert (received(balance), balance.waiting) == (0, {segment})


def test_rewritten_segment_is_read_again_and_counted_once(tmp_path: Path) -> None:
    [segment] = fill(tmp_path / "journal", 1)
    backlog = Backlog(tmp_path / "journal")
    before = backlog.read()
    (path,) = (tmp_path / "journal").glob("*/*.native.lz4")
    draft = path.with_suffix(".draft")
    draft.write_bytes(path.read_bytes())

    draft.rename(path)

    assert backlog.read() == before == {segment: before[segment]}
    assert before[segment].total() == 1


def test_balance_during_writes_counts_every_span_once(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, SEGMENTS)
    balances = LiveBalanceSource(ledger, Backlog(root))
    busy = threading.Thread(target=_finish_all, args=(ledger, root))
    seen = set()

    busy.start()
    while busy.is_alive():
        seen.add(received(balances.balance()))
    busy.join()

    assert seen <= {SEGMENTS}
    assert balances.balance().journal == {}


def _finish_all(ledger: Ledger, root: Path) -> None:
    for waiting in list(pending_segments(root)):
        finish(ledger, root, waiting)


def test_watch_reports_the_difference_of_a_repeated_entry(ledger: Ledger, tmp_path: Path) -> None:
    [segment] = fill(tmp_path / "journal", 1)
    balances = LiveBalanceSource(ledger, Backlog(tmp_path / "journal"))
    ledger.record(segment, {PLACE: Counts(received=1, dead=1)})

    _, _, seen = balances.between_balances(
        lambda _before: ledger.record(segment, {PLACE: Counts(received=1, stored=1)})
    )

    assert seen.lines == {PLACE: Counts(stored=1, dead=-1)}


def test_watch_reports_entries_between_two_balances(ledger: Ledger, tmp_path: Path) -> None:
    root = tmp_path / "journal"
    fill(root, 2)
    balances = LiveBalanceSource(ledger, Backlog(root))
    [first, second] = pending_segments(root)
    finish(ledger, root, first)

    def between(before: Balance) -> set[SegmentId]:
        finish(ledger, root, second)
        return set(before.waiting)

    before, after, seen = balances.between_balances(between)

    assert before == {second.id}
    assert (after.waiting, seen.since) == (set(), {second.id})
    assert seen.lines == {PLACE: Counts(received=1, stored=1)}
