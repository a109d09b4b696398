"""What a disk gives back is not what was written: a tail is missing, a bit is another one.

Told by the segments of a real journal, carried by a real writer: what is whole is stored once, what is not is
named, kept and counted, and nothing that was never sent gets in.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from receiver import transcode
from receiver.dead_letters.letter_files import Reason
from receiver.journal.frame import FOOTER_BYTES, answers_of
from receiver.journal.names import Kind, file_name, start_name
from receiver.redelivery.window import Window
from receiver.writer.progress import Progress
from tests.crash.aftermath import copies_in, drain
from tests.crash.hand_over import WINDOW, take_in
from tests.support.fake_clickhouse import MemoryStore
from tests.support.journal import append, appender, recovered
from tests.support.record_layout import HEADER_BYTES, record

EPOCH = 7
RECORDS = ((0, 1), (2,), (3, 4))
"""Deliveries in each; delivery n has n + 1 rows."""
EVERYTHING = frozenset(range(5))


@dataclass(frozen=True)
class Sealed:
    """A segment that was promised, and where its records lie in it."""

    directory: Path
    name: Path
    content: bytes
    offsets: tuple[int, ...]

    def after(self, changed: bytes) -> Outcome:
        """Give this to a writer in its stead, and see what becomes of it."""
        (self.directory / self.name).parent.mkdir(exist_ok=True)
        (self.directory / self.name).write_bytes(changed)
        store, progress = MemoryStore(), Progress()
        window = Window(self.directory / "redelivery", WINDOW, lambda: 0.0)
        drain(self.directory, store, window, progress)
        window.close()
        letters = [
            msgspec.json.decode(path.read_bytes(), type=Reason)
            for path in sorted((self.directory / "dead").glob("*.json"))
        ]
        for made in ("redelivery", "dead"):
            shutil.rmtree(self.directory / made, ignore_errors=True)
        copies = copies_in(store, EVERYTHING)
        assert set(copies.values()) <= {0.0, 1.0}
        assert sum(rows for _, _, rows in store.parts) == sum(n + 1 for n in EVERYTHING if copies[n])
        return Outcome(frozenset(n for n in copies if copies[n]), letters, progress.alarms)


@dataclass(frozen=True)
class Outcome:
    """What became of a segment."""

    stored: frozenset[int]
    letters: list[Reason]
    alarms: int

    @property
    def told(self) -> list[tuple[str, int | None]]:
        return [(letter.cause, letter.rows) for letter in self.letters]


@pytest.fixture
def sealed(quick_dir: Path) -> Sealed:
    said: list[str] = []
    intake = appender(root=quick_dir / "journal")
    for numbers in RECORDS:
        take_in(intake, said.append, *numbers)
    intake.close()
    [path] = (quick_dir / "journal").rglob("*.native.lz4")
    content = path.read_bytes()
    offsets = tuple(one.offset for one in transcode.scan(content).records)
    return Sealed(quick_dir, path.relative_to(quick_dir), content, (*offsets, len(content) - FOOTER_BYTES))


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def bits(first_byte: int, byte_count: int) -> Iterable[int]:
    return range(8 * first_byte, 8 * (first_byte + byte_count))


@pytest.mark.fault("every bit of a record header flipped, in a sealed segment")
@pytest.mark.parametrize("number", [1, 2], ids=["in the middle", "the last one"])
def test_a_header_that_rotted_costs_its_record_and_says_how_many_rows(sealed: Sealed, number: int) -> None:
    lost = frozenset(RECORDS[number])

    for bit in bits(sealed.offsets[number], HEADER_BYTES):
        outcome = sealed.after(flipped(sealed.content, bit))

        assert outcome.stored == EVERYTHING - lost
        assert outcome.told == [("damaged", sum(n + 1 for n in lost))]
        assert f"bytes at byte {sealed.offsets[number]}:" in outcome.letters[0].text
        assert outcome.alarms


@pytest.mark.fault("every bit of the first record's answers flipped")
def test_answers_that_rotted_cost_their_record(sealed: Sealed) -> None:
    first = transcode.scan(sealed.content).records[0]
    assert len(answers_of(first)) == 2

    for bit in bits(HEADER_BYTES, len(first.answers)):
        outcome = sealed.after(flipped(sealed.content, bit))

        assert (outcome.stored, outcome.told) == (EVERYTHING - {0, 1}, [("damaged", 3)])


@pytest.mark.fault("bit rot in the payload of an acknowledged record")
def test_a_payload_that_rotted_costs_its_record(sealed: Sealed) -> None:
    for byte in range(sealed.offsets[2] - 300, sealed.offsets[2], 7):
        outcome = sealed.after(flipped(sealed.content, 8 * byte + byte % 8))

        assert (outcome.stored, outcome.told) == (EVERYTHING - {2}, [("damaged", 3)])
        assert f"at byte {sealed.offsets[1]}:" in outcome.letters[0].text


@pytest.mark.fault("every bit of a footer flipped")
def test_a_footer_that_rotted_costs_nothing_and_is_told(sealed: Sealed) -> None:
    for bit in bits(sealed.offsets[-1], FOOTER_BYTES):
        outcome = sealed.after(flipped(sealed.content, bit))

        assert (outcome.stored, outcome.told) == (EVERYTHING, [("damaged", None)])
        assert outcome.alarms


@pytest.mark.fault("a sealed segment cut short: what was acknowledged is missing")
def test_a_sealed_segment_that_was_cut_is_told(sealed: Sealed) -> None:
    for cut in range(sealed.offsets[1] - 20, len(sealed.content), 20):
        outcome = sealed.after(sealed.content[:cut])

        whole = [numbers for numbers, end in zip(RECORDS, sealed.offsets[1:], strict=True) if end <= cut]
        assert outcome.stored == frozenset(n for numbers in whole for n in numbers)
        assert outcome.told == [("damaged", None)]


@pytest.mark.fault("damage that cannot be cut out: the whole segment is lost, and counted so")
def test_what_cannot_be_cut_out_is_lost_whole_and_counted_so(quick_dir: Path) -> None:
    intake = appender(root=quick_dir / "journal")
    for name in ("no", "native", "blocks"):
        append(intake, name, rows=10)
    intake.close()
    [path] = (quick_dir / "journal").rglob("*.native.lz4")
    content = path.read_bytes()
    sealed = Sealed(quick_dir, path.relative_to(quick_dir), content, ())

    outcome = sealed.after(flipped(content, 8 * 100))

    assert (outcome.stored, outcome.told) == (frozenset(), [("damaged", 30)])


@pytest.mark.fault("a torn tail at every byte of the last two records")
def test_a_tail_torn_anywhere_costs_what_was_torn_and_nothing_else(quick_dir: Path) -> None:
    names = ("first", "middle", "last")
    written = [record(name, epoch=EPOCH) for name in names]
    ends = [sum(map(len, written[:count])) for count in (1, 2, 3)]

    for cut in range(ends[0], ends[-1] + 1):
        dead = quick_dir / str(cut) / start_name(EPOCH)
        dead.mkdir(parents=True)
        (dead / file_name(0, Kind.OPEN)).write_bytes(b"".join(written)[:cut])

        assert recovered(root=dead.parent) == [n for n, end in zip(names, ends, strict=True) if end <= cut]
        live = appender(root=dead.parent)
        append(live, "later")
        live.close()
        assert recovered(root=dead.parent)[-1] == "later"
