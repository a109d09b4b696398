"""Lost ledger history is reported until it is acknowledged, and a crash is never reported as a loss."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random

import pytest

from receiver.durable.append_log import Extent, framed
from receiver.ledger import ledger as ledger_room
from receiver.ledger import log_codec, loss_detection
from receiver.ledger.ledger import Ledger, Watch, read_sums
from receiver.ledger.line_sums import Counts, Lines
from receiver.model import SegmentId
from receiver.settings import Ledger as Limits
from tests.ledger.on_disk import HOUR, PLACE, ROOT, new_disk, open_ledger, total
from tests.support.memory_disk import Killed, MemoryDisk

HEAD, LOST = ROOT.with_name("ledger.head"), ROOT.with_name("ledger.lost")
WINDOW = Extent(1, 10)
LINES: Lines = {PLACE: Counts(received=1, stored=1)}


def record_segments(ledger: Ledger, count: int) -> None:
    for seq in range(count):
        ledger.record(SegmentId(7, seq), LINES, window=WINDOW)


def losses(disk: MemoryDisk, *, is_first: bool = True) -> tuple[str, ...]:
    """Return the losses that are reported while no receiver runs."""
    return read_sums(ROOT, Limits(), disk, is_first=is_first)[0].losses


def losses_after_start(disk: MemoryDisk) -> tuple[str, ...]:
    return open_ledger(disk, is_first=False).sums(Watch(set()))[0].losses


def log_of(disk: MemoryDisk) -> Path:
    return ROOT / max(disk.names(ROOT))


def overwrite(disk: MemoryDisk, path: Path, content: bytes) -> None:
    if disk.size_bytes(path) is not None:
        disk.unlink(path)
    fd = disk.create(path)
    disk.write(fd, memoryview(content), 0)
    disk.close(fd)


def remove_directories(disk: MemoryDisk, *directories: Path) -> None:
    for directory in directories:
        for name in disk.names(directory):
            disk.unlink(directory / name)
        disk.remove_directory(directory)


def entry_ends(content: bytes) -> list[int]:
    """Return the offset of the end of each entry."""
    heads = [at for at in range(len(content)) if content.startswith(b"TDLG", at)]
    return [*heads[1:], len(content)]


@pytest.fixture
def disk() -> MemoryDisk:
    """Return a disk with a ledger of five entries after the first, and no receiver running."""
    disk = new_disk()
    record_segments(open_ledger(disk), 5)
    disk.kill()
    assert losses(disk) == ()
    return disk


@pytest.mark.fault("the ledger's log is truncated at each of its entries while the receiver is stopped")
@pytest.mark.parametrize("entries_left", [0, 1, 2, 3, 4, 5])
def test_log_cut_at_an_entry_boundary_is_reported(disk: MemoryDisk, entries_left: int) -> None:
    content = disk.read(log_of(disk))
    ends = [0, *entry_ends(content)]
    assert len(ends) == 7

    overwrite(disk, log_of(disk), content[: ends[entries_left]])

    [loss] = losses(disk)
    missing = "no entry of its log" if not entries_left else f"last {6 - entries_left} of 6 entries"
    assert missing in loss
    [loss] = losses_after_start(disk)
    assert missing in loss


Damage = Callable[[MemoryDisk], None]


def edited(edit: Callable[[bytes, list[int]], bytes]) -> Damage:
    """Return a damage to the log. `edit` gets its content and the offset of the end of each entry."""

    def damage(disk: MemoryDisk) -> None:
        content = disk.read(log_of(disk))
        overwrite(disk, log_of(disk), edit(content, entry_ends(content)))

    return damage


def with_flipped_byte(content: bytes, ends: list[int], *, entry: int) -> bytes:
    at = ends[entry] - 1
    return content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]


def without_entry(content: bytes, ends: list[int], *, entry: int) -> bytes:
    return content[: [0, *ends][entry]] + content[ends[entry] :]


def replace_by_another_ledger(disk: MemoryDisk) -> None:
    other = new_disk()
    ledger = open_ledger(other)
    for seq in range(5):
        ledger.record(SegmentId(8, seq), LINES)
    overwrite(disk, log_of(disk), other.read(log_of(other)))


def remove_ledger_and_head(disk: MemoryDisk) -> None:
    remove_directories(disk, ROOT)
    disk.unlink(HEAD)


@pytest.mark.parametrize(
    ("damage", "text"),
    [
        *(
            pytest.param(edited(partial(damage, entry=entry)), "", id=f"{damage.__name__}: {entry}")
            for damage in (with_flipped_byte, without_entry)
            for entry in range(6)
        ),
        pytest.param(
            edited(lambda content, ends: content[: ends[2]] + b"garbage" + content[ends[2] :]),
            "bytes that are not an entry",
            id="bytes between entries",
        ),
        pytest.param(
            edited(lambda _content, _ends: framed(b"TDLG", [b"an entry of another version"])),
            "of another version",
            id="log of another version",
        ),
        pytest.param(
            replace_by_another_ledger, "entry 6 is not the entry that was written", id="another ledger"
        ),
        pytest.param(lambda disk: disk.unlink(HEAD), "ledger.head is missing", id="removed head"),
        pytest.param(remove_ledger_and_head, "", id="ledger and head removed, redelivery is there"),
    ],
)
def test_damaged_ledger_is_reported_once(disk: MemoryDisk, damage: Damage, text: str) -> None:
    damage(disk)

    [before_start] = losses(disk, is_first=False)
    [after_start] = losses_after_start(disk)

    assert text in before_start
    assert text in after_start


@pytest.mark.fault("an older copy of the ledger is restored while the receiver is stopped")
def test_older_copy_of_the_log_is_reported(disk: MemoryDisk) -> None:
    path, content = log_of(disk), disk.read(log_of(disk))
    open_ledger(disk).record(SegmentId(7, 9), LINES)
    disk.kill()

    overwrite(disk, path, content)

    [loss] = losses_after_start(disk)
    assert "last 1 of 7 entries are missing" in loss
    assert "older copy" in loss


def test_older_copy_of_a_log_that_was_rewritten_since_is_reported(
    disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, content = log_of(disk), disk.read(log_of(disk))
    monkeypatch.setattr(ledger_room, "LOG_BYTES_MIN", 1)
    record_segments(open_ledger(disk), 9)
    disk.kill()
    remove_directories(disk, ROOT)
    disk.make_directory(ROOT)

    overwrite(disk, path, content)

    [loss] = losses_after_start(disk)
    assert "entries are missing" in loss


@pytest.mark.parametrize("is_first", [True, False], ids=["redelivery removed too", "redelivery is there"])
def test_removed_ledger_is_reported(disk: MemoryDisk, *, is_first: bool) -> None:
    remove_directories(disk, ROOT)

    [loss] = losses(disk, is_first=is_first)
    assert "no entry of its log can be read" in loss
    ledger = open_ledger(disk, is_first=is_first)
    sums = ledger.sums(Watch(set()))[0]

    assert "no entry of its log can be read" in sums.losses[0]
    assert sums.complete_from_hour == HOUR + 1
    assert ledger.window == WINDOW
    disk.kill()
    assert open_ledger(disk).window == WINDOW


def test_receiver_continues_after_a_loss_with_the_remaining_entries(disk: MemoryDisk) -> None:
    content = disk.read(log_of(disk))
    overwrite(disk, log_of(disk), content[: entry_ends(content)[2]])

    ledger = open_ledger(disk)
    ledger.record(SegmentId(7, 9), LINES)

    sums = read_sums(ROOT, Limits(), disk)[0]
    assert total(sums.lines).stored == 2 + 1
    assert sums.complete_from_hour == HOUR + 1


def test_loss_is_reported_until_the_operator_deletes_the_report(disk: MemoryDisk) -> None:
    content = disk.read(log_of(disk))
    overwrite(disk, log_of(disk), content[: entry_ends(content)[2]])
    first = losses_after_start(disk)
    disk.kill()
    assert losses_after_start(disk) == first == losses(disk)

    ledger = open_ledger(disk)
    disk.unlink(LOST)

    assert ledger.sums(Watch(set()))[0].losses == ()
    disk.kill()
    assert losses_after_start(disk) == () == losses(disk)


def test_second_loss_is_added_to_the_first(disk: MemoryDisk) -> None:
    remove_directories(disk, ROOT)
    losses_after_start(disk)
    disk.kill()
    disk.unlink(HEAD)

    reported = losses_after_start(disk)

    assert [loss.partition(" ")[0] for loss in reported] == ["2027-01-15T08:00Z"] * 2


def test_entry_without_a_head_gets_one_when_it_is_recorded_again(disk: MemoryDisk) -> None:
    ledger = open_ledger(disk)
    ledger.record(SegmentId(7, 8), LINES)
    head = disk.read(HEAD)
    ledger.record(SegmentId(7, 9), LINES)
    disk.kill()
    overwrite(disk, HEAD, head)

    open_ledger(disk).record(SegmentId(7, 9), LINES)
    disk.kill()
    content = disk.read(log_of(disk))
    overwrite(disk, log_of(disk), content[: entry_ends(content)[-2]])

    [loss] = losses(disk)
    assert "last 1 of 8 entries" in loss


def test_head_file_is_replaced_when_it_has_grown(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loss_detection, "HEAD_BYTES_MAX", 200)
    ledger = open_ledger(disk)
    for seq in range(50):
        ledger.record(SegmentId(9, seq), LINES)
        assert (disk.size_bytes(HEAD) or 0) < 400
    disk.kill()

    assert losses(disk) == ()


@pytest.mark.parametrize("path", [HEAD, ROOT / "0000000001.log"], ids=["head", "log"])
def test_files_removed_while_the_receiver_runs_are_written_again(disk: MemoryDisk, path: Path) -> None:
    ledger = open_ledger(disk)
    disk.unlink(path)

    assert ledger.restore_files()

    assert not ledger.restore_files()
    ledger.record(SegmentId(7, 9), LINES)
    disk.kill()
    assert losses(disk) == ()
    assert total(read_sums(ROOT, Limits(), disk)[0].lines).stored == 6


def run_writer(disk: MemoryDisk, steps: list[tuple[int, int]]) -> None:
    """Run the writer once."""
    ledger = open_ledger(disk)
    ledger.retain({SegmentId(7, seq) for seq in range(3)})
    for seq, stored in steps:
        ledger.record(SegmentId(7, seq), {PLACE: Counts(stored, stored)}, window=WINDOW)
        if seq > 2:
            ledger.settle(SegmentId(7, seq))


def crash(disk: MemoryDisk, random: Random) -> None:
    """Kill the process, or cut the power: pending writes are kept in order, or in any order."""
    kind = random.randint(0, 2)
    if kind == 0:
        disk.kill()
    elif kind == 1:
        disk.cut_power(lambda count: random.randint(0, count))
    else:
        disk.scatter(lambda: random.random() < 0.5)


@pytest.mark.fault(
    "a kill or power cut at every disk call of the ledger in several runs: no loss is reported"
)
@pytest.mark.parametrize("seed", range(10))
def test_crash_at_any_call_is_never_reported_as_a_loss(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    random = Random(seed)
    monkeypatch.setattr(ledger_room, "LOG_BYTES_MIN", 300)
    monkeypatch.setattr(loss_detection, "HEAD_BYTES_MAX", 200)
    steps = [(random.randint(0, 4), random.randint(0, 5)) for _ in range(random.randint(2, 8))]
    whole = new_disk()
    before = len(whole.calls)
    run_writer(whole, steps)
    for at in range(1, len(whole.calls) - before + 1):
        disk = new_disk()
        for run in range(4):
            disk.fail_nth(random.randint(1, at) if run else at, Killed)
            try:
                run_writer(disk, steps)
            except Killed:
                crash(disk, random)
            disk.kill()
            assert losses(disk) == (), f"crashed at call {at} of run {run}"


@pytest.mark.parametrize("damage", ["log cut", "ledger removed", "head removed"])
def test_crash_while_a_loss_is_handled_does_not_hide_it(damage: str) -> None:
    random = Random(20_261_122)
    for at in range(1, 40):
        disk = new_disk()
        record_segments(open_ledger(disk), 5)
        content = disk.read(log_of(disk))
        disk.scatter(lambda: True)
        if damage == "log cut":
            overwrite(disk, log_of(disk), content[: entry_ends(content)[2]])
        elif damage == "ledger removed":
            remove_directories(disk, ROOT)
        else:
            disk.unlink(HEAD)
        disk.scatter(lambda: True)
        disk.fail_nth(at, Killed)
        try:
            open_ledger(disk, is_first=False)
        except Killed:
            crash(disk, random)
        disk.kill()

        sums = open_ledger(disk, is_first=False).sums(Watch(set()))[0]

        assert sums.losses, f"crashed at call {at}"
        assert sums.complete_from_hour == HOUR + 1, f"crashed at call {at}"


def test_chain_continues_over_a_rewritten_log(disk: MemoryDisk, monkeypatch: pytest.MonkeyPatch) -> None:
    end = log_codec.read(disk.read(log_of(disk))).entries[-1].after
    monkeypatch.setattr(ledger_room, "LOG_BYTES_MIN", 1)

    open_ledger(disk).record(SegmentId(7, 9), LINES)

    assert log_codec.read(disk.read(log_of(disk))).entries[0].before.number == end.number + 1
