"""Deduplication window: known digests after crashes and damage, expiry, and reported losses."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.durable.files import DISK
from receiver.model import SegmentId
from receiver.redelivery import decisions
from receiver.redelivery.decisions import DUPLICATE, EXEMPT, KEPT
from receiver.redelivery.digests import FrozenTable, GrowingTable, NotATable
from receiver.redelivery.window import GENERATIONS, TICK_S, Window
from receiver.settings import MIB, Redelivery

DAY_S = 86_400.0
FIRST, SECOND, THIRD = SegmentId(7, 1), SegmentId(2**64 - 1, 2), SegmentId(7, 3)


@dataclass
class Clock:
    now_s: float = 1_000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class WindowFactory:
    directory: Path
    clock: Clock
    limits: Redelivery

    def open(self) -> Window:
        """Open the window as the next process would. Its monotonic clock may start at any value."""
        return Window(self.directory, self.limits, self.clock)


@pytest.fixture
def factory(tmp_path: Path) -> WindowFactory:
    return WindowFactory(tmp_path / "redelivery", Clock(), Redelivery())


def digest(number: int) -> bytes:
    return number.to_bytes(16, "little")


def store(window: Window, segment: SegmentId, *numbers: int) -> None:
    digests = [digest(number) for number in numbers]
    window.decide(segment, digests, bytes(len(digests)))
    window.end(segment, digests)
    window.forget(segment)


def knows(window: Window, digest: bytes) -> bool:
    return digest in window.known([digest])


def decide_both(window: Window) -> None:
    """Decide about two segments, and store the second."""
    window.decide(FIRST, [digest(1)], bytes([KEPT, DUPLICATE]))
    window.decide(SECOND, [digest(2)], bytes([KEPT]))
    window.end(SECOND, [digest(2)])


def assert_both_decisions(window: Window) -> None:
    first, second = window.decision(FIRST), window.decision(SECOND)
    assert first is not None
    assert second is not None
    assert (first.verdicts, first.kept) == (bytes([KEPT, DUPLICATE]), frozenset({digest(1)}))
    assert (second.verdicts, second.kept) == (bytes([KEPT]), frozenset())
    assert (first.is_pending, second.is_pending) == (True, False)


def test_digest_is_reserved_until_its_rows_are_counted_and_then_known(factory: WindowFactory) -> None:
    window = factory.open()
    assert not knows(window, digest(1))

    window.decide(FIRST, [digest(1)], bytes([KEPT, DUPLICATE, EXEMPT]))
    assert (knows(window, digest(1)), window.reserved_by(digest(1), but_by=SECOND)) == (False, FIRST)
    assert window.reserved_by(digest(1), but_by=FIRST) is None

    window.end(FIRST, [digest(1)])
    assert (knows(window, digest(1)), window.reserved_by(digest(1), but_by=SECOND)) == (True, None)


def test_decision_survives_restarts_until_the_segment_is_deleted(factory: WindowFactory) -> None:
    window = factory.open()
    decide_both(window)

    again = factory.open()
    assert_both_decisions(again)

    again.retain({FIRST})
    assert (again.decision(SECOND), knows(again, digest(2))) == (None, True)


def test_log_cut_at_any_byte_keeps_its_complete_entries_and_accepts_more(factory: WindowFactory) -> None:
    window = factory.open()
    log = factory.directory / "0000000001.log"
    complete_at = [log.stat().st_size]
    for number in range(1, 5):
        window.end(SegmentId(7, number), [digest(number)])
        complete_at.append(log.stat().st_size)
    window.close()
    content = log.read_bytes()

    for cut in range(complete_at[0], len(content) + 1):
        log.write_bytes(content[:cut])
        window = factory.open()
        known = [number for number in range(1, 5) if knows(window, digest(number))]
        assert known == [number for number in range(1, 5) if complete_at[number] <= cut]
        assert window.shortfall == ""
        window.end(SECOND, [digest(9)])
        window.close()
        after = factory.open()
        assert knows(after, digest(9))
        assert all(knows(after, digest(number)) for number in known)


def test_flipped_bit_loses_one_entry_and_is_reported(factory: WindowFactory) -> None:
    window = factory.open()
    log = factory.directory / "0000000001.log"
    starts = []
    for number in (1, 2, 3):
        starts.append(log.stat().st_size)
        window.end(SegmentId(7, number), [digest(number)])
    window.close()
    content = log.read_bytes()

    for bit in range(starts[1] * 8, starts[2] * 8):
        for path in factory.directory.iterdir():
            path.unlink()
        flipped = bytearray(content)
        flipped[bit // 8] ^= 1 << (bit % 8)
        log.write_bytes(flipped)
        window = factory.open()
        assert [knows(window, digest(number)) for number in (1, 2, 3)] == [True, False, True]
        assert window.shortfall != ""
        window.close()


def test_entry_is_dropped_soon_after_the_window(factory: WindowFactory) -> None:
    window = factory.open()
    store(window, FIRST, 1)
    hours = 0
    while knows(window, digest(1)):
        factory.clock.now_s += 3_600
        window.tick()
        hours += 1

    assert 24 < hours <= 24 + 24 / GENERATIONS + 1
    assert window.shortfall == ""
    assert [path.suffix for path in factory.directory.iterdir()] == [".log"]


def test_newest_entry_of_a_generation_stays_for_the_whole_window(factory: WindowFactory) -> None:
    window = factory.open()
    store(window, FIRST, 1)
    factory.clock.now_s += DAY_S / GENERATIONS - 1
    store(window, SECOND, 2)
    factory.clock.now_s += 2
    window.tick()

    factory.clock.now_s += DAY_S - 10
    window.tick()

    assert knows(window, digest(2))
    assert window.shortfall == ""


def test_decisions_are_copied_when_a_generation_is_closed(factory: WindowFactory) -> None:
    window = factory.open()
    decide_both(window)
    factory.clock.now_s += DAY_S
    window.tick()

    window = factory.open()

    assert_both_decisions(window)
    assert window.reserved_by(digest(1), but_by=SECOND) == FIRST
    assert window.reserved_by(digest(2), but_by=FIRST) is None


def test_files_that_a_crash_left_beside_the_newest_log_are_deleted(factory: WindowFactory) -> None:
    store(factory.open(), FIRST, 1)
    (log,) = factory.directory.iterdir()
    for left in (".0000000009.log.tmp", "0000000000.log"):
        (factory.directory / left).write_bytes(log.read_bytes()[:40])

    assert knows(factory.open(), digest(1))
    assert list(factory.directory.iterdir()) == [log]


def test_directory_is_synced_before_the_first_entry(
    factory: WindowFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[Path] = []
    monkeypatch.setattr(DISK, "sync_directory", synced.append)

    factory.open()

    assert factory.directory.parent in synced


def test_time_while_the_receiver_was_stopped_does_not_age_entries(factory: WindowFactory) -> None:
    window = factory.open()
    store(window, FIRST, 1)
    window.close()

    for jump_s in (365 * DAY_S, -365 * DAY_S):
        factory.clock.now_s += jump_s
        window = factory.open()
        window.tick()
        assert knows(window, digest(1))
        assert window.observed_s < TICK_S
        window.close()


def test_observed_time_continues_in_the_next_process(factory: WindowFactory) -> None:
    window = factory.open()
    store(window, FIRST, 1)
    for _ in range(27):
        factory.clock.now_s += 3_600
        window.tick()
        window.close()
        factory.clock.now_s = 5.0
        window = factory.open()

    assert not knows(window, digest(1))


def test_window_with_too_many_entries_is_shortened_and_reports_it(factory: WindowFactory) -> None:
    factory.limits = Redelivery(entries_max=120)
    window = factory.open()
    for number in range(1, 301):
        store(window, SegmentId(7, number), number)
        factory.clock.now_s += 60
        window.tick()
        assert len(window) <= 120

    known = [number for number in range(1, 301) if knows(window, digest(number))]
    assert known == list(range(known[0], 301))
    assert 100 <= len(known) == len(window) <= 120
    assert (301 - known[0]) * 60 - 60 <= window.covered_s <= (302 - known[0]) * 60
    assert "expected 86400 s (redelivery.entries_max is 120, " in window.shortfall
    window.close()
    assert factory.open().shortfall == window.shortfall

    window = factory.open()
    for _ in range(25):
        factory.clock.now_s += 3_600
        window.tick()
    assert window.shortfall == ""


@pytest.mark.parametrize("kept", ["", "table", "log"])
def test_damaged_or_missing_generation_is_reported(factory: WindowFactory, kept: str) -> None:
    factory.limits = Redelivery(entries_max=GENERATIONS)
    window = factory.open()
    for number in (1, 2):
        store(window, SegmentId(7, number), number)
        window.tick()
    window.close()
    table = factory.directory / "0000000001.table"
    if kept == "log":
        table.write_bytes(table.read_bytes()[:-1])
    elif kept == "table":
        next(factory.directory.glob("*.log")).unlink()
    else:
        table.write_bytes(b"")

    again = factory.open()

    assert again.shortfall.endswith(
        "expected 86400 s (the log of earlier deliveries was damaged or missing, "
        "or the digest key was replaced)"
    )
    assert factory.open().shortfall == again.shortfall
    assert knows(again, digest(2))
    assert knows(again, digest(1)) == (kept == "table")
    for _ in range(25):
        factory.clock.now_s += 3_600
        again.tick()
    again.close()
    assert factory.open().shortfall == ""


def test_decision_whose_sync_failed_is_not_recorded(
    factory: WindowFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = factory.open()
    store(window, FIRST, 1)
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", _refuse)
        with pytest.raises(OSError, match="refused"):
            window.decide(THIRD, [digest(2)], bytes([KEPT]))
    window.decide(SECOND, [digest(3)], bytes([KEPT]))

    again = factory.open()

    assert again.decision(THIRD) is None
    assert again.decision(SECOND) is not None
    assert knows(again, digest(1))


def _refuse(_fd: int) -> None:
    raise OSError(5, "refused")


@settings(max_examples=50)
@given(
    st.lists(st.binary(min_size=16, max_size=16), unique=True), st.lists(st.binary(min_size=16, max_size=16))
)
def test_table_is_a_set_before_and_after_it_is_frozen(
    tmp_path_factory: pytest.TempPathFactory, stored: list[bytes], asked: list[bytes]
) -> None:
    path = tmp_path_factory.mktemp("table") / "table"
    fresh = GrowingTable()
    fresh.add(b"".join([*stored, *stored[:3]]))
    fresh.write(path, first_s=1.0, last_s=2.0)
    frozen = FrozenTable.open(path)
    again = path.with_name("again")
    frozen.write(again)

    asked = [bytes(16), *asked, *stored]
    known = [index for index, digest_ in enumerate(asked) if digest_ in stored]
    assert len(fresh) == len(frozen) == len(stored)
    assert fresh.known(b"".join(asked)) == frozen.known(b"".join(asked)) == known
    assert again.read_bytes() == path.read_bytes()


def test_table_entry_takes_24_to_48_bytes(tmp_path: Path) -> None:
    count = 60_000
    fresh = GrowingTable()
    fresh.add(b"".join(digest(number << 64) for number in range(count)))
    fresh.write(tmp_path / "table", first_s=1.0, last_s=2.0)
    frozen = FrozenTable.open(tmp_path / "table")

    size_bytes = (tmp_path / "table").stat().st_size
    assert size_bytes > MIB  # the file is read in several pieces
    assert frozen.known(b"".join(digest(number << 64) for number in range(count))) == list(range(count))
    assert frozen.known(b"".join(digest(number) for number in range(2, count))) == []
    assert 24 <= size_bytes / count <= 48
    assert (frozen.header.first_s, frozen.header.last_s) == (1.0, 2.0)


def test_damaged_table_is_rejected(tmp_path: Path) -> None:
    fresh = GrowingTable()
    fresh.add(digest(5))
    fresh.write(tmp_path / "table", first_s=1.0, last_s=2.0)
    content = (tmp_path / "table").read_bytes()

    for byte in [*range(64), 64, len(content) - 1]:
        if 60 <= byte < 64:
            continue  # unused bytes
        flipped = bytearray(content)
        flipped[byte] ^= 1
        (tmp_path / "table").write_bytes(flipped)
        with pytest.raises(NotATable):
            FrozenTable.open(tmp_path / "table")


def test_entries_are_read_back_as_they_were_written() -> None:
    entries: list[decisions.Entry] = [
        decisions.Ticked(1.5, float("-inf"), is_damage=False),
        decisions.Decided(2.0, 2**64 - 1, 3, digest(1), bytes([KEPT])),
        decisions.Ended(3.0, 1, 2, b""),
    ]

    assert decisions.read(decisions.written(entries)) == (entries, decisions.written(entries), False)
