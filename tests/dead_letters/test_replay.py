"""Replay: a letter becomes a segment of the journal, once, whatever dies; what is still refused is kept.

Delivery n has n + 1 rows, all n days old.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from receiver import transcode
from receiver.dead_letters import replay as replay_room
from receiver.dead_letters.letter_files import DeadLetters, NoSuchLetter
from receiver.dead_letters.listing import DeadLetterList, NotNow
from receiver.dead_letters.replay import Replayer
from receiver.durable.files import DISK
from receiver.errors import DiskTrouble, StoreTrouble
from receiver.journal.quarantine import Note, QuarantineFiles
from receiver.journal.segments import Journal
from receiver.journal.start import EpochDirectory
from receiver.ledger.line_sums import Counts
from receiver.model import ContentKind, Delivery, SegmentId
from tests.support.fake_clickhouse import NOW_S
from tests.support.redelivery import POLICY, FaultInjector, Harness, Killed, delivery, inject_faults, rotted
from tests.support.segments import DIGEST_KEY, day_of

LETTER = "0000000000000007-0000000001.poison"


class Place:
    """A data directory whose journal is a real one, next to the harness's own files."""

    def __init__(self, directory: Path, injector: FaultInjector | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.harness = Harness(directory, injector=injector or FaultInjector())
        self.shelf = DeadLetterList(directory)

    def with_poison(self) -> Place:
        """Three deliveries of which the middle one's rows lie in a letter."""
        self.harness.store.poisonous_days = {day_of(2)}
        self.harness.add([1, 2, 3])
        self.harness.drain()
        self.harness.store.poisonous_days = set()
        return self

    @property
    def replays(self) -> Replayer:
        return Replayer(
            shelf=self.shelf,
            journal=self.directory / "journal",
            store=self.harness.store,
            core=transcode,
            commit=partial(transcode.commit, POLICY, digest_key=DIGEST_KEY),
            footer=transcode.footer,
            body_bytes_max=lambda _drain: 1 << 20,
            now=lambda: NOW_S,
            check=lambda: None,
            on_replay=self.note,
        )

    def note(self, segment: SegmentId) -> None:
        """As the store process does, whose ledger is open meanwhile."""
        ledger = self.harness.opened_ledger()
        ledger.replaying(segment)
        ledger.close()

    def carry(self) -> None:
        """Start a writer on the real journal and let it drain that."""
        journal = Journal(self.directory / "journal")
        writer = self.harness.start(journal.sealed())  # type: ignore[arg-type]  # real files for the fakes
        for _ in range(12):
            if not writer.drain():
                self.harness.sleep(30.0)
        assert journal.sealed() == []

    def keep_body(self, body: Delivery) -> str:
        """As an intake does whose core crashed on it."""
        bodies = QuarantineFiles(self.directory / "aside")
        bodies.write(bodies.path_of("ab" * 16, body), body.body, Note(body.drain, body.received_at_ns))
        return "ab" * 16


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def test_a_letter_that_is_replayed_is_stored_and_is_a_letter_no_more(place: Place) -> None:
    place.with_poison()

    replayed = place.replays.replay(LETTER)
    place.carry()

    assert (replayed.id, replayed.rows) == (LETTER, 3)
    assert place.harness.copies == {1: 1, 2: 1, 3: 1}
    assert place.harness.booked == Counts(received=9, stored=9)
    assert list((place.directory / "dead").iterdir()) == []
    assert list((place.directory / "journal").iterdir()) == []


def test_a_letter_says_its_reason_until_its_segment_is_on_the_disk(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_directory = DISK.sync_directory

    def refusing(path: Path) -> None:
        if path.parent.name == "journal" and any(path.glob("*.native.lz4")):
            raise OSError(5, "Input/output error")
        sync_directory(path)

    place.with_poison()
    monkeypatch.setattr(DISK, "sync_directory", refusing)

    with pytest.raises(OSError, match="Input/output"):
        place.replays.replay(LETTER)

    assert (place.directory / "dead" / f"{LETTER}.json").exists()


def test_rot_in_what_is_replayed_was_counted_as_dead_before(place: Place) -> None:
    place.with_poison()
    place.replays.replay(LETTER)
    (segment,) = Journal(place.directory / "journal").sealed()
    rotted(segment.path, record=0)

    place.carry()

    assert place.harness.booked == Counts(received=9, stored=6, dead=3)


def test_a_letter_that_is_still_refused_is_kept_and_says_why(place: Place) -> None:
    place.with_poison()
    place.harness.store.poisonous_days = {day_of(2)}

    with pytest.raises(NotNow, match="the store still refuses it: constraint is violated"):
        place.replays.replay(LETTER)

    assert [letter.id for letter in place.shelf.dead.letters()] == [LETTER]
    assert Journal(place.directory / "journal").sealed() == []


def test_while_the_tables_are_not_made_nothing_is_tried(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The embedded store takes the first INSERT for the sign that it is whole."""
    place.with_poison()
    tried: list[Path] = []
    monkeypatch.setattr(place.harness.store, "refusal_of", tried.append)

    def not_yet() -> None:
        raise DiskTrouble("ledger is not read yet")

    with pytest.raises(DiskTrouble):
        replace(place.replays, check=not_yet).replay(LETTER)

    assert tried == []
    assert [letter.id for letter in place.shelf.dead.letters()] == [LETTER]


def test_while_the_store_is_away_a_letter_is_kept(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.with_poison()
    away = StoreTrouble("connection reset")
    monkeypatch.setattr(place.harness.store, "refusal_of", lambda _segment: away)

    with pytest.raises(StoreTrouble):
        place.replays.replay(LETTER)

    assert place.shelf.dead.count() == 1


def test_a_copy_sent_before_the_replay_is_stored_no_second_time(place: Place) -> None:
    place.with_poison()
    place.harness.add([2])
    place.harness.drain()

    place.replays.replay(LETTER)
    place.carry()

    assert place.harness.copies == {1: 1, 2: 1, 3: 1}


def test_a_letter_that_holds_all_of_a_segment_is_no_copy_of_itself(place: Place) -> None:
    place.harness.store.poisonous_days = {day_of(2)}
    place.harness.add([2])
    place.harness.drain()
    place.harness.store.poisonous_days = set()

    place.replays.replay(LETTER)
    place.carry()

    assert place.harness.is_exact


def test_what_vanished_and_came_again_is_replayed_into_nothing(place: Place) -> None:
    place.harness.add([1, 2])
    place.harness.store.script = ["eaten"] * 8
    place.harness.drain()
    place.harness.add([2])
    place.harness.drain()

    (letter,) = place.shelf.dead.letters()
    place.replays.replay(letter.id)
    place.carry()

    assert place.harness.copies == {1: 1, 2: 1}
    assert place.harness.booked == Counts(received=8, stored=5, duplicate=3)


def test_what_is_partly_stored_is_not_replayed(place: Place) -> None:
    place.harness.add([5])
    place.harness.store.script = ["half"]
    place.harness.drain()

    (letter,) = place.shelf.dead.letters()
    with pytest.raises(NotNow, match="holds 6 rows, of which 3 are not stored"):
        place.replays.replay(letter.id)

    assert place.shelf.dead.count() == 1


def test_what_rotted_is_not_replayed_though_as_many_rows_were_lost_as_can_be_read(place: Place) -> None:
    rotted(place.harness.add([2], [1, 0]).path, record=1)
    place.harness.drain()

    (letter,) = place.shelf.dead.letters()
    with pytest.raises(NotNow, match="cannot be read whole"):
        place.replays.replay(letter.id)

    assert letter.reason.rows == 3
    assert place.harness.copies[2] == 1


def test_what_is_only_too_large_is_replayed_and_cut_up(place: Place) -> None:
    place.harness.add([5])
    place.harness.store.script = ["eaten"] * 8
    place.harness.drain()
    place.harness.store.rows_max = 3

    (letter,) = place.shelf.dead.letters()
    place.replays.replay(letter.id)
    place.carry()

    assert place.harness.is_exact
    assert place.harness.booked == Counts(received=6, stored=6)


@pytest.mark.parametrize("act", [lambda one: one.replay(LETTER), lambda one: one.shelf.drop(LETTER)])
@pytest.mark.parametrize("where", ["journal/{}", "cuts/0000000000000001-0000000003.{}"])
def test_a_letter_is_left_alone_while_its_segment_is_on_its_way(
    place: Place, act: Callable[[Replayer], object], where: str
) -> None:
    place.with_poison()
    directory = place.directory / where.format("0000000000000007")
    directory.mkdir(parents=True)
    (directory / "0000000001.native.lz4").write_bytes(b"")

    with pytest.raises(NotNow, match="still on its way"):
        act(place.replays)


@pytest.mark.parametrize("act", [lambda one: one.replay(LETTER), lambda one: one.shelf.drop(LETTER)])
def test_a_letter_is_kept_until_its_segment_is_gone_for_good(
    place: Place, monkeypatch: pytest.MonkeyPatch, act: Callable[[Replayer], object]
) -> None:
    place.with_poison()
    journal = place.directory / "journal" / "0000000000000007"
    journal.mkdir(parents=True)
    sync_directory = DISK.sync_directory

    def refused(path: Path) -> None:
        if path == journal:
            raise OSError(5, "refused")
        sync_directory(path)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "sync_directory", refused)
        with pytest.raises(OSError, match="refused"):
            act(place.replays)
    assert [letter.id for letter in place.shelf.dead.letters()] == [LETTER]

    act(place.replays)

    assert place.shelf.dead.letters() == []


def test_a_letter_that_is_dropped_is_gone(place: Place) -> None:
    place.with_poison()

    place.shelf.drop(LETTER)

    assert list((place.directory / "dead").iterdir()) == []
    with pytest.raises(NoSuchLetter):
        place.shelf.drop("../journal")


def test_a_body_that_crashed_the_core_is_decoded_again_and_stored(place: Place) -> None:
    name = place.keep_body(delivery(3))
    place.harness.issued = {3}

    place.replays.replay(name)
    place.carry()

    assert place.harness.is_exact
    assert place.shelf.listed() == []


def test_a_body_that_was_accepted_at_another_try_is_stored_no_second_time(place: Place) -> None:
    place.harness.add([3])
    place.harness.drain()

    place.replays.replay(place.keep_body(delivery(3)))
    place.carry()

    assert place.harness.is_exact


def test_a_body_the_decoder_still_refuses_is_kept_and_says_why(place: Place) -> None:
    bad = Delivery("drain", b"{", ContentKind.JSON, (), 1, strict=False, body_bytes_max=9)
    name = place.keep_body(bad)

    with pytest.raises(NotNow, match="the decoder says 'malformed'"):
        place.replays.replay(name)

    (listed,) = place.shelf.listed()
    assert (listed.id, listed.cause, listed.deliveries[0].drain) == (name, "crashed", "drain")


@pytest.mark.parametrize("kind", ["letter", "body"])
def test_killed_at_every_step_of_a_replay_it_is_stored_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    injector = FaultInjector()
    inject_faults(injector, monkeypatch)
    for target, names in {
        replay_room: ("write_durably",),
        DISK: ("sync_directory",),
        Path: ("rename", "unlink"),
        EpochDirectory: ("create", "leave", "write_note"),
        DeadLetters: ("_forget", "keep"),
    }.items():
        for name in names:
            monkeypatch.setattr(target, name, injector.around(getattr(target, name)))
    for step in range(1, 400):
        injector.steps_left = -1
        place = Place(tmp_path / str(step), injector)
        if kind == "letter":
            name, rows = place.with_poison().harness.letters[0].id, 9
        else:
            name, rows = place.keep_body(delivery(3)), 4
            place.harness.issued = {3}
        injector.steps_left = step
        with suppress(Killed):
            place.replays.replay(name)
            place.carry()
            break
        injector.steps_left = -1

        place.shelf.dead.tidy()
        for one in place.shelf.listed():
            place.replays.replay(one.id)
        place.carry()

        assert place.harness.is_exact, f"killed at step {step}: {place.harness.copies}"
        booked = place.harness.booked
        # A body that was decoded and not let go of comes back as a copy of its letter.
        copies = booked.duplicate if kind == "body" else 0
        assert booked == Counts(received=rows + copies, stored=rows, duplicate=copies), (
            f"killed at step {step}"
        )
        assert place.shelf.listed() == [], f"killed at step {step}"
    else:
        raise AssertionError("never reached the end")


def test_a_reason_without_its_bytes_is_no_letter(place: Place) -> None:
    place.with_poison()
    place.shelf.dead.letters()[0].path.unlink()

    assert place.shelf.listed() == []
    assert place.shelf.dead.of(SegmentId(7, 1)) == []
    place.shelf.dead.tidy()
    assert list((place.directory / "dead").iterdir()) == []


def test_drafts_that_a_crash_left_beside_the_letters_go(place: Place) -> None:
    place.with_poison()
    dead = place.directory / "dead"
    before = sorted(dead.iterdir())
    (dead / f".{LETTER}.native.lz4.tmp").write_bytes(b"half of it")

    place.shelf.dead.tidy()

    assert sorted(dead.iterdir()) == before
