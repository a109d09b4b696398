"""Ledger on a failing disk: the sums contain the last entry of each segment once."""

from __future__ import annotations

import errno
import threading
from collections.abc import Callable, Iterator
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from receiver.durable.append_log import framed
from receiver.durable.files import write_new
from receiver.engine.store import RowSum
from receiver.ledger import ledger as ledger_room
from receiver.ledger import log_codec
from receiver.ledger.ledger import Watch, read_sums
from receiver.ledger.line_sums import Counts, Lines
from receiver.ledger.log_codec import Settled
from receiver.settings import Ledger as Limits
from tests.ledger.on_disk import HOUR, PLACE, ROOT, new_disk, open_ledger, segment, total
from tests.support.cases import RANDOM_CASES
from tests.support.memory_disk import Killed, MemoryDisk


@pytest.fixture(autouse=True)
def rewrite_logs_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger_room, "LOG_BYTES_MIN", 200)


@pytest.fixture
def disk() -> MemoryDisk:
    return new_disk()


def line(stored: int, dead: int = 0) -> Lines:
    return {PLACE: Counts(received=stored + dead, stored=stored, dead=dead)}


def total_of(disk: MemoryDisk) -> Counts:
    """Return the sum of all lines on the disk."""
    return total(read_sums(ROOT, Limits(), disk)[0].lines)


def test_entry_survives_a_power_cut(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(3))
    ledger.record(segment(2), line(4))

    disk.cut_power()

    assert total_of(disk) == Counts(received=7, stored=7)
    assert open_ledger(disk).sums(Watch(set()))[0].lines == {PLACE: Counts(received=7, stored=7)}


def test_repeated_entry_is_counted_once_and_a_deleted_segment_stays_counted(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(0, dead=3))
    ledger.record(segment(2), line(4))
    disk.kill()

    ledger = open_ledger(disk)
    ledger.retain({segment(1)})
    ledger.record(segment(1), line(3))
    ledger.settle(segment(1))

    assert total_of(disk) == Counts(received=7, stored=7)


def test_settled_segments_are_not_looked_up_in_the_journal(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(3))
    ledger.record(segment(2), line(4))
    disk.kill()

    ledger = open_ledger(disk)
    ledger.retain({segment(1)})

    with ledger.watching() as watch:
        assert watch.segments == {segment(1)}


def test_identical_entry_is_not_written_again(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(3))
    calls = len(disk.calls)

    ledger.record(segment(1), line(3))

    assert len(disk.calls) == calls


def test_replay_is_recorded_before_its_segment_exists_and_survives_a_crash(disk: MemoryDisk) -> None:
    open_ledger(disk).record_replay(segment(9))
    disk.cut_power()

    ledger = open_ledger(disk)
    ledger.retain({segment(9)})

    assert ledger.is_replay(segment(9))
    assert read_sums(ROOT, Limits(), disk)[0].replayed == {segment(9)}
    ledger.settle(segment(9))
    assert not ledger.is_replay(segment(9))


def test_replay_that_begins_while_the_writer_starts_is_not_lost(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record_replay(segment(9))

    ledger.retain(set())

    assert ledger.is_replay(segment(9))


def test_ledger_is_complete_from_the_next_hour_after_an_upgrade_or_a_loss(disk: MemoryDisk) -> None:
    open_ledger(disk, is_first=False)

    assert read_sums(ROOT, Limits(), disk)[0].complete_from_hour == HOUR + 1
    assert open_ledger(disk, is_first=False).sums(Watch(set()))[0].complete_from_hour == HOUR + 1


@pytest.mark.parametrize(("entry", "left"), [(0, 7), (1, 4)], ids=["the first entry", "an entry"])
def test_damaged_entry_is_lost_and_reported(disk: MemoryDisk, entry: int, left: int) -> None:
    ledger = open_ledger(disk)
    log = ROOT / disk.names(ROOT)[-1]
    begins_at = [0, disk.size_bytes(log) or 0]
    ledger.record(segment(1), line(3))
    ledger.record(segment(2), line(4))
    content = bytearray(disk.read(log))
    content[begins_at[entry] + 20] ^= 1
    disk.write(disk.open(log), memoryview(bytes(content)), 0)

    sums, _ = open_ledger(disk).sums(Watch(set()))

    assert sums.complete_from_hour == HOUR + 1
    assert sums.lines == {PLACE: Counts(received=left, stored=left)}


def test_torn_tail_is_not_reported_as_damage_after_the_next_entry(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledger_room, "LOG_BYTES_MIN", 10_000)
    open_ledger(disk).record(segment(1), line(3))
    log = ROOT / disk.names(ROOT)[-1]
    disk.write(disk.open(log), memoryview(b"TDLG torn"), disk.size_bytes(log) or 0)
    disk.kill()

    open_ledger(disk).record(segment(2), line(4))

    sums, _ = open_ledger(disk).sums(Watch(set()))
    assert sums.complete_from_hour == 0
    assert sums.lines == {PLACE: Counts(received=7, stored=7)}


def test_failed_disk_writes_lose_no_entry(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(3))
    disk.fail("sync_data", code=errno.ENOSPC)

    with pytest.raises(OSError, match="No space"):
        ledger.record(segment(2), line(4))

    assert total_of(disk).received in {3, 7}
    ledger.record(segment(2), line(4))
    disk.cut_power()
    assert total_of(disk) == Counts(received=7, stored=7)


STEPS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 5), st.integers(0, 3)), min_size=1, max_size=8)


def run_once(
    disk: MemoryDisk, steps: list[tuple[int, int, int]], begun: dict[int, Lines], recorded: dict[int, Lines]
) -> None:
    """Record segments. `begun` gets the lines of each before its record, `recorded` after it."""
    ledger = open_ledger(disk)
    ledger.retain({segment(seq) for seq in range(5)})
    for seq, stored, dead in steps:
        begun[seq] = line(stored + 1, dead)
        ledger.record(segment(seq), begun[seq])
        recorded[seq] = begun[seq]


def sum_of(lines: dict[int, Lines]) -> Counts:
    result = Counts()
    for each in lines.values():
        result = result.plus(each[PLACE])
    return result


def ending(kind: str) -> Callable[[MemoryDisk, Random], None]:
    if kind == "killed":
        return lambda disk, _: disk.kill()
    return lambda disk, random: disk.cut_power(lambda count: random.randint(0, count))


@pytest.mark.parametrize("kind", ["killed", "power cut"])
@pytest.mark.random_cases
@settings(max_examples=RANDOM_CASES)
@given(steps=STEPS, random=st.randoms(use_true_random=False))
def test_crash_at_any_call_counts_each_segment_once(
    kind: str, steps: list[tuple[int, int, int]], random: Random
) -> None:
    whole = new_disk()
    before = len(whole.calls)
    run_once(whole, steps, {}, {})

    for at in range(1, len(whole.calls) - before + 1):
        disk = new_disk()
        begun: dict[int, Lines] = {}
        recorded: dict[int, Lines] = {}
        disk.fail_nth(at, Killed)
        with pytest.raises(Killed):
            run_once(disk, steps, begun, recorded)
        ending(kind)(disk, random)

        # The sums are those before the interrupted entry, or those after it.
        ledger = open_ledger(disk)
        assert total_of(disk) in {sum_of(recorded), sum_of(begun)}, f"crashed at call {at}"

        # Record the interrupted segment again, as the writer does.
        for seq, lines in [*list(begun.items())[-1:], *begun.items()]:
            ledger.record(segment(seq), lines)
        assert total_of(disk) == sum_of(begun), f"crashed at call {at}"


def test_ledger_opens_on_a_full_disk(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(3))
    disk.fail("create", "write", code=errno.ENOSPC, times=9)

    ledger = open_ledger(disk)

    assert ledger.sums(Watch(set()))[0].lines == {PLACE: Counts(received=3, stored=3)}


def test_recording_continues_when_the_log_cannot_be_rewritten(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    disk.fail("create", code=errno.ENOSPC, times=99)

    for seq in range(1, 30):
        ledger.record(segment(seq), line(1))

    assert total_of(disk) == Counts(received=29, stored=29)


def test_incompletely_written_log_leaves_no_temporary_file(disk: MemoryDisk) -> None:
    open_ledger(disk).record(segment(1), line(3))
    write_new(disk, ROOT / ".0000000007.log.tmp", b"half of it")
    disk.kill()

    open_ledger(disk)

    assert disk.names(ROOT) == ["0000000001.log"]
    assert total_of(disk) == Counts(received=3, stored=3)


def test_segment_settled_during_a_log_rewrite_stays_counted(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), line(7))
    settling = threading.Thread(target=ledger.settle, args=[segment(1)])
    written = log_codec.settled

    def meanwhile(lines: Lines) -> Iterator[Settled]:
        if settling.ident is None:
            settling.start()
        settling.join(0.2)
        return written(lines)

    monkeypatch.setattr(log_codec, "settled", meanwhile)
    for seq in range(2, 6):
        ledger.record_replay(segment(seq))
    settling.join()

    assert total_of(disk) == Counts(received=7, stored=7)


def test_deletion_is_counted_once_until_its_rows_are_gone_and_after_that(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(segment(1), {PLACE: Counts(received=5, stored=5, checksum=9)})
    for _ in range(2):
        ledger.record_deletion(77, {PLACE: RowSum(3, 4)})
    disk.cut_power()
    ledger = open_ledger(disk)
    # The writer's first listing of the journal does not settle what is still being deleted.
    ledger.retain([])
    ledger.record_deletion(77, {PLACE: RowSum(3, 4)})
    assert ledger.is_deletion(77)
    ledger.settle_deletions(77)
    assert ledger.is_deletion(77)
    ledger.settle_deletions(None)

    assert not ledger.is_deletion(77)
    sums, _ = read_sums(ROOT, Limits(), disk)
    assert sums.lines == {PLACE: Counts(received=5, stored=2, checksum=5, deleted=3)}
    assert sums.epochs == (7,)


def test_log_of_a_version_that_deleted_no_spans_is_read() -> None:
    rows = [[["d", "p", HOUR], [5, 4, 0, 0, 0, 1, 9]]]
    body = msgspec.msgpack.encode([1, b"", ["settled", rows]])

    [linked] = log_codec.read(framed(b"TDLG", [body])).entries

    assert linked.entry == Settled(((PLACE, Counts(received=5, stored=4, dead=1, checksum=9)),))
