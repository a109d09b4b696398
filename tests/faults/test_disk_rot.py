"""A disk returns other bytes than were written: a tail is missing or a bit is flipped.

Segments of a real journal are drained by a real writer: intact records are stored once, damaged ones are
reported, kept and counted, and nothing that was never sent is stored.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from receiver import transcode
from receiver.dead_letters.directory import Reason
from receiver.journal.frame import answers_of
from receiver.journal.names import Kind, file_name, start_name
from receiver.redelivery.window import Window
from receiver.writer.progress import Progress
from tests.faults.commit_and_drain import WINDOW, commit_deliveries
from tests.faults.recovery import copies_in, drain
from tests.support.fake_clickhouse import MemoryStore
from tests.support.journal import append, appender, recovered
from tests.support.record_layout import HEADER_BYTES, record

EPOCH = 7
RECORDS = ((0, 1), (2,), (3, 4))
"""Deliveries of each record; delivery n has n + 1 rows."""
ALL_DELIVERIES = frozenset(range(5))


@dataclass(frozen=True)
class Sealed:
    """A segment of acknowledged deliveries, and the offsets of its records."""

    directory: Path
    name: Path
    content: bytes
    offsets: tuple[int, ...]

    def drained_as(self, changed: bytes) -> Outcome:
        """Drain the segment with this content instead and return the outcome."""
        (self.directory / self.name).parent.mkdir(exist_ok=True)
        (self.directory / self.name).write_bytes(changed)
        store, progress = MemoryStore(), Progress()
        window = Window(self.directory / "redelivery", WINDOW, lambda: 0.0)
        drain(self.directory, store, window, progress)
        window.close()
        dead_letters = [
            msgspec.json.decode(path.read_bytes(), type=Reason)
            for path in sorted((self.directory / "dead").glob("*.json"))
        ]
        for directory in ("redelivery", "dead"):
            shutil.rmtree(self.directory / directory, ignore_errors=True)
        copies = copies_in(store, ALL_DELIVERIES)
        assert set(copies.values()) <= {0.0, 1.0}
        assert sum(rows for _, _, rows in store.parts) == sum(n + 1 for n in ALL_DELIVERIES if copies[n])
        return Outcome(frozenset(n for n in copies if copies[n]), dead_letters, progress.alarms)


@dataclass(frozen=True)
class Outcome:
    """Result of draining a segment: the stored deliveries, the dead letters, the alarms."""

    stored: frozenset[int]
    dead_letters: list[Reason]
    alarms: int

    @property
    def reported(self) -> list[tuple[str, int | None]]:
        return [(letter.cause, letter.rows) for letter in self.dead_letters]


@pytest.fixture
def sealed(quick_dir: Path) -> Sealed:
    output: list[str] = []
    intake = appender(root=quick_dir / "journal")
    for numbers in RECORDS:
        commit_deliveries(intake, output.append, *numbers)
    intake.close()
    [path] = (quick_dir / "journal").rglob("*.native.lz4")
    content = path.read_bytes()
    offsets = tuple(record.offset for record in transcode.scan(content).records)
    return Sealed(
        quick_dir, path.relative_to(quick_dir), content, (*offsets, len(content) - transcode.FOOTER_BYTES)
    )


def flip_bit(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits(first_byte: int, byte_count: int) -> Iterable[int]:
    return range(8 * first_byte, 8 * (first_byte + byte_count))


@pytest.mark.fault("every bit of a record header flipped, in a sealed segment")
@pytest.mark.parametrize("number", [1, 2], ids=["in the middle", "the last record"])
def test_damaged_header_costs_its_record_and_the_lost_rows_are_counted(sealed: Sealed, number: int) -> None:
    lost = frozenset(RECORDS[number])

    for bit in bits(sealed.offsets[number], HEADER_BYTES):
        outcome = sealed.drained_as(flip_bit(sealed.content, bit))

        assert outcome.stored == ALL_DELIVERIES - lost
        assert outcome.reported == [("damaged", sum(n + 1 for n in lost))]
        assert f"bytes at byte {sealed.offsets[number]}:" in outcome.dead_letters[0].text
        assert outcome.alarms


@pytest.mark.fault("every bit of the delivery list of the first record flipped")
def test_damaged_answers_cost_their_record(sealed: Sealed) -> None:
    first = transcode.scan(sealed.content).records[0]
    assert len(answers_of(first)) == 2

    for bit in bits(HEADER_BYTES, len(first.answers)):
        outcome = sealed.drained_as(flip_bit(sealed.content, bit))

        assert (outcome.stored, outcome.reported) == (ALL_DELIVERIES - {0, 1}, [("damaged", 3)])


@pytest.mark.fault("bit rot in the payload of an acknowledged record")
def test_damaged_payload_costs_its_record(sealed: Sealed) -> None:
    for byte in range(sealed.offsets[2] - 300, sealed.offsets[2], 7):
        outcome = sealed.drained_as(flip_bit(sealed.content, 8 * byte + byte % 8))

        assert (outcome.stored, outcome.reported) == (ALL_DELIVERIES - {2}, [("damaged", 3)])
        assert f"at byte {sealed.offsets[1]}:" in outcome.dead_letters[0].text


@pytest.mark.fault("every bit of a footer flipped")
def test_damaged_footer_costs_no_record_and_is_reported(sealed: Sealed) -> None:
    for bit in bits(sealed.offsets[-1], transcode.FOOTER_BYTES):
        outcome = sealed.drained_as(flip_bit(sealed.content, bit))

        assert (outcome.stored, outcome.reported) == (ALL_DELIVERIES, [("damaged", None)])
        assert outcome.alarms


@pytest.mark.fault("a sealed segment truncated: acknowledged records are missing")
def test_truncated_sealed_segment_is_reported(sealed: Sealed) -> None:
    for cut in range(sealed.offsets[1] - 20, len(sealed.content), 20):
        outcome = sealed.drained_as(sealed.content[:cut])

        intact = [numbers for numbers, end in zip(RECORDS, sealed.offsets[1:], strict=True) if end <= cut]
        assert outcome.stored == frozenset(n for numbers in intact for n in numbers)
        assert outcome.reported == [("damaged", None)]


@pytest.mark.fault("damage that cannot be removed: the whole segment is lost and counted as lost")
def test_segment_whose_damage_cannot_be_cut_out_is_lost_whole_and_counted(quick_dir: Path) -> None:
    intake = appender(root=quick_dir / "journal")
    for name in ("no", "native", "blocks"):
        append(intake, name, rows=10)
    intake.close()
    [path] = (quick_dir / "journal").rglob("*.native.lz4")
    content = path.read_bytes()
    sealed = Sealed(quick_dir, path.relative_to(quick_dir), content, ())

    outcome = sealed.drained_as(flip_bit(content, 8 * 100))

    assert (outcome.stored, outcome.reported) == (frozenset(), [("damaged", 30)])


@pytest.mark.fault("a torn tail at every byte of the last two records")
def test_torn_tail_costs_only_the_torn_records(quick_dir: Path) -> None:
    names = ("first", "middle", "last")
    written = [record(name, epoch=EPOCH) for name in names]
    ends = [sum(map(len, written[:count])) for count in (1, 2, 3)]

    for cut in range(ends[0], ends[-1] + 1):
        orphaned = quick_dir / str(cut) / start_name(EPOCH)
        orphaned.mkdir(parents=True)
        (orphaned / file_name(0, Kind.OPEN)).write_bytes(b"".join(written)[:cut])

        assert recovered(root=orphaned.parent) == [
            n for n, end in zip(names, ends, strict=True) if end <= cut
        ]
        intake = appender(root=orphaned.parent)
        append(intake, "later")
        intake.close()
        assert recovered(root=orphaned.parent)[-1] == "later"
