"""Replay: a dead letter becomes a segment of the journal exactly once, also after crashes.

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
from receiver.dead_letters import replay as replay_module
from receiver.dead_letters.letter_files import DeadLetters, NoSuchDeadLetter
from receiver.dead_letters.listing import DeadLetterConflict, DeadLetterList
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

both_actions = pytest.mark.parametrize(
    "action",
    [lambda replayer: replayer.replay(LETTER), lambda replayer: replayer.dead_letter_list.drop(LETTER)],
)


class Site:
    """A data directory with a real journal beside the files of the simulated one."""

    def __init__(self, directory: Path, injector: FaultInjector | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.harness = Harness(directory, injector=injector or FaultInjector())
        self.listing = DeadLetterList(directory)

    def with_poison(self) -> Site:
        """Store three deliveries, of which the second becomes a dead letter."""
        self.harness.store.poisonous_days = {day_of(2)}
        self.harness.add([1, 2, 3])
        self.harness.drain()
        self.harness.store.poisonous_days = set()
        return self

    @property
    def replayer(self) -> Replayer:
        return Replayer(
            dead_letter_list=self.listing,
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
        """Record the replay in the ledger, as the store process does."""
        ledger = self.harness.opened_ledger()
        ledger.replaying(segment)
        ledger.close()

    def drain(self) -> None:
        """Start a writer on the real journal and drain it."""
        journal = Journal(self.directory / "journal")
        writer = self.harness.start(journal.sealed())  # type: ignore[arg-type]  # real files for the fakes
        for _ in range(12):
            if not writer.drain():
                self.harness.sleep(30.0)
        assert journal.sealed() == []

    def keep_body(self, body: Delivery) -> str:
        """Quarantine a body, as an intake does after the decoder crashed on it."""
        bodies = QuarantineFiles(self.directory / "aside")
        bodies.write(bodies.path_of("ab" * 16, body), body.body, Note(body.drain, body.received_at_ns))
        return "ab" * 16


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_replayed_dead_letter_is_stored_and_removed(site: Site) -> None:
    site.with_poison()

    replayed = site.replayer.replay(LETTER)
    site.drain()

    assert (replayed.id, replayed.rows) == (LETTER, 3)
    assert site.harness.copies == {1: 1, 2: 1, 3: 1}
    assert site.harness.booked == Counts(received=9, stored=9)
    assert list((site.directory / "dead").iterdir()) == []
    assert list((site.directory / "journal").iterdir()) == []


def test_reason_is_kept_until_its_segment_is_synced(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_directory = DISK.sync_directory

    def refusing(path: Path) -> None:
        if path.parent.name == "journal" and any(path.glob("*.native.lz4")):
            raise OSError(5, "Input/output error")
        sync_directory(path)

    site.with_poison()
    monkeypatch.setattr(DISK, "sync_directory", refusing)

    with pytest.raises(OSError, match="Input/output"):
        site.replayer.replay(LETTER)

    assert (site.directory / "dead" / f"{LETTER}.json").exists()


def test_damaged_rows_of_a_replayed_segment_are_counted_as_dead_once(site: Site) -> None:
    site.with_poison()
    site.replayer.replay(LETTER)
    (segment,) = Journal(site.directory / "journal").sealed()
    rotted(segment.path, record=0)

    site.drain()

    assert site.harness.booked == Counts(received=9, stored=6, dead=3)


def test_dead_letter_that_the_store_still_refuses_is_kept(site: Site) -> None:
    site.with_poison()
    site.harness.store.poisonous_days = {day_of(2)}

    with pytest.raises(DeadLetterConflict, match="the store still refuses it: constraint is violated"):
        site.replayer.replay(LETTER)

    assert [letter.id for letter in site.listing.dead.letters()] == [LETTER]
    assert Journal(site.directory / "journal").sealed() == []


def test_replay_needs_the_tables(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded store takes the first INSERT as the sign that its schema is complete."""
    site.with_poison()
    tried: list[Path] = []
    monkeypatch.setattr(site.harness.store, "refusal_of", tried.append)

    def not_yet() -> None:
        raise DiskTrouble("ledger is not read yet")

    with pytest.raises(DiskTrouble):
        replace(site.replayer, check=not_yet).replay(LETTER)

    assert tried == []
    assert [letter.id for letter in site.listing.dead.letters()] == [LETTER]


def test_letter_is_kept_while_the_store_is_away(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.with_poison()
    away = StoreTrouble("connection reset")
    monkeypatch.setattr(site.harness.store, "refusal_of", lambda _segment: away)

    with pytest.raises(StoreTrouble):
        site.replayer.replay(LETTER)

    assert site.listing.dead.count() == 1


def test_duplicate_sent_before_the_replay_is_not_stored(site: Site) -> None:
    site.with_poison()
    site.harness.add([2])
    site.harness.drain()

    site.replayer.replay(LETTER)
    site.drain()

    assert site.harness.copies == {1: 1, 2: 1, 3: 1}


def test_dead_letter_of_a_whole_segment_is_not_its_own_duplicate(site: Site) -> None:
    site.harness.store.poisonous_days = {day_of(2)}
    site.harness.add([2])
    site.harness.drain()
    site.harness.store.poisonous_days = set()

    site.replayer.replay(LETTER)
    site.drain()

    assert site.harness.is_exact


def test_replay_of_rows_that_were_sent_again_stores_no_row(site: Site) -> None:
    site.harness.add([1, 2])
    site.harness.store.script = ["eaten"] * 8
    site.harness.drain()
    site.harness.add([2])
    site.harness.drain()

    (letter,) = site.listing.dead.letters()
    site.replayer.replay(letter.id)
    site.drain()

    assert site.harness.copies == {1: 1, 2: 1}
    assert site.harness.booked == Counts(received=8, stored=5, duplicate=3)


def test_dead_letter_with_stored_rows_is_not_replayed(site: Site) -> None:
    site.harness.add([5])
    site.harness.store.script = ["half"]
    site.harness.drain()

    (letter,) = site.listing.dead.letters()
    with pytest.raises(DeadLetterConflict, match="holds 6 rows, of which 3 are not stored"):
        site.replayer.replay(letter.id)

    assert site.listing.dead.count() == 1


def test_damaged_dead_letter_is_not_replayed_even_if_the_row_counts_agree(site: Site) -> None:
    rotted(site.harness.add([2], [1, 0]).path, record=1)
    site.harness.drain()

    (letter,) = site.listing.dead.letters()
    with pytest.raises(DeadLetterConflict, match="the dead letter is damaged"):
        site.replayer.replay(letter.id)

    assert letter.reason.rows == 3
    assert site.harness.copies[2] == 1


def test_dead_letter_that_is_too_large_is_replayed_and_split(site: Site) -> None:
    site.harness.add([5])
    site.harness.store.script = ["eaten"] * 8
    site.harness.drain()
    site.harness.store.rows_max = 3

    (letter,) = site.listing.dead.letters()
    site.replayer.replay(letter.id)
    site.drain()

    assert site.harness.is_exact
    assert site.harness.booked == Counts(received=6, stored=6)


@both_actions
@pytest.mark.parametrize("where", ["journal/{}", "cuts/0000000000000001-0000000003.{}"])
def test_dead_letter_of_an_unfinished_segment_is_not_touched(
    site: Site, action: Callable[[Replayer], object], where: str
) -> None:
    site.with_poison()
    directory = site.directory / where.format("0000000000000007")
    directory.mkdir(parents=True)
    (directory / "0000000001.native.lz4").write_bytes(b"")

    with pytest.raises(DeadLetterConflict, match="is not finished yet"):
        action(site.replayer)


@both_actions
def test_dead_letter_is_kept_until_the_deletion_of_its_segment_is_synced(
    site: Site, monkeypatch: pytest.MonkeyPatch, action: Callable[[Replayer], object]
) -> None:
    site.with_poison()
    journal = site.directory / "journal" / "0000000000000007"
    journal.mkdir(parents=True)
    sync_directory = DISK.sync_directory

    def refused(path: Path) -> None:
        if path == journal:
            raise OSError(5, "refused")
        sync_directory(path)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "sync_directory", refused)
        with pytest.raises(OSError, match="refused"):
            action(site.replayer)
    assert [letter.id for letter in site.listing.dead.letters()] == [LETTER]

    action(site.replayer)

    assert site.listing.dead.letters() == []


def test_dropped_dead_letter_is_deleted(site: Site) -> None:
    site.with_poison()

    site.listing.drop(LETTER)

    assert list((site.directory / "dead").iterdir()) == []
    with pytest.raises(NoSuchDeadLetter):
        site.listing.drop("../journal")


def test_quarantined_body_is_decoded_again_and_stored(site: Site) -> None:
    name = site.keep_body(delivery(3))
    site.harness.issued = {3}

    site.replayer.replay(name)
    site.drain()

    assert site.harness.is_exact
    assert site.listing.entries() == []


def test_body_that_was_accepted_later_is_not_stored_twice(site: Site) -> None:
    site.harness.add([3])
    site.harness.drain()

    site.replayer.replay(site.keep_body(delivery(3)))
    site.drain()

    assert site.harness.is_exact


def test_quarantined_body_that_the_decoder_refuses_is_kept(site: Site) -> None:
    bad = Delivery("drain", b"{", ContentKind.JSON, (), 1, strict=False, body_bytes_max=9)
    name = site.keep_body(bad)

    with pytest.raises(DeadLetterConflict, match="the decoder refuses it as 'malformed'"):
        site.replayer.replay(name)

    (listed,) = site.listing.entries()
    assert (listed.id, listed.cause, listed.deliveries[0].drain) == (name, "crashed", "drain")


@pytest.mark.parametrize("kind", ["letter", "body"])
def test_replay_killed_at_any_step_stores_the_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    injector = FaultInjector()
    inject_faults(injector, monkeypatch)
    for target, names in {
        replay_module: ("write_durably",),
        DISK: ("sync_directory",),
        Path: ("rename", "unlink"),
        EpochDirectory: ("create", "leave", "write_note"),
        DeadLetters: ("_forget", "keep"),
    }.items():
        for name in names:
            monkeypatch.setattr(target, name, injector.around(getattr(target, name)))
    for step in range(1, 400):
        injector.steps_left = -1
        site = Site(tmp_path / str(step), injector)
        if kind == "letter":
            name, rows = site.with_poison().harness.letters[0].id, 9
        else:
            name, rows = site.keep_body(delivery(3)), 4
            site.harness.issued = {3}
        injector.steps_left = step
        with suppress(Killed):
            site.replayer.replay(name)
            site.drain()
            break
        injector.steps_left = -1

        site.listing.dead.tidy()
        for entry in site.listing.entries():
            site.replayer.replay(entry.id)
        site.drain()

        assert site.harness.is_exact, f"killed at step {step}: {site.harness.copies}"
        booked = site.harness.booked
        # A body that was decoded but not deleted is a duplicate of its dead letter.
        copies = booked.duplicate if kind == "body" else 0
        assert booked == Counts(received=rows + copies, stored=rows, duplicate=copies), (
            f"killed at step {step}"
        )
        assert site.listing.entries() == [], f"killed at step {step}"
    else:
        raise AssertionError("the replay was killed at every step that was tried")


def test_reason_without_bytes_is_not_a_dead_letter(site: Site) -> None:
    site.with_poison()
    site.listing.dead.letters()[0].path.unlink()

    assert site.listing.entries() == []
    assert site.listing.dead.of(SegmentId(7, 1)) == []
    site.listing.dead.tidy()
    assert list((site.directory / "dead").iterdir()) == []


def test_drafts_left_by_a_crash_are_deleted(site: Site) -> None:
    site.with_poison()
    dead = site.directory / "dead"
    before = sorted(dead.iterdir())
    (dead / f".{LETTER}.native.lz4.tmp").write_bytes(b"half of it")

    site.listing.dead.tidy()

    assert sorted(dead.iterdir()) == before
