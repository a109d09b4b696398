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
from receiver.dead_letters.directory import DeadLetterList
from receiver.dead_letters.replay import Replayer
from receiver.durable.files import DISK
from receiver.errors import DeadLetterConflict, DiskTrouble, NoSuchDeadLetter, StoreTrouble
from receiver.journal.quarantine import QuarantineFiles, QuarantineNote
from receiver.journal.segments import Journal
from receiver.ledger.line_sums import Counts
from receiver.model import ContentKind, Delivery, SegmentId
from tests.support.fake_clickhouse import NOW_S
from tests.support.faulty_disk import WRITE_CALLS
from tests.support.redelivery import POLICY, FaultInjector, Harness, Killed, delivery, inject_faults, rotted
from tests.support.segments import DIGEST_KEY, day_of

POISON_ID = "0000000000000007-0000000001.poison"

both_actions = pytest.mark.parametrize(
    "action",
    [lambda replayer: replayer.replay(POISON_ID), lambda replayer: replayer.dead_letter_list.drop(POISON_ID)],
)


class Workspace:
    """A data directory with a real journal beside the files of the simulated one."""

    def __init__(self, directory: Path, injector: FaultInjector | None = None) -> None:
        directory.mkdir(exist_ok=True)
        self.directory = directory
        self.harness = Harness(directory, injector=injector or FaultInjector())
        self.listing = DeadLetterList(directory)

    def with_poison(self, *numbers: int) -> Workspace:
        """Store deliveries, by default 1, 2 and 3, of which delivery 2 becomes a dead letter."""
        self.harness.store.poisonous_days = {day_of(2)}
        self.harness.add(numbers or [1, 2, 3])
        self.harness.drain()
        self.harness.store.poisonous_days = set()
        return self

    @property
    def replayer(self) -> Replayer:
        return Replayer(
            dead_letter_list=self.listing,
            journal=self.directory / "journal",
            store=self.harness.store,
            commit=partial(transcode.commit, POLICY, digest_key=DIGEST_KEY),
            body_bytes_max=lambda _drain: 1 << 20,
            now=lambda: NOW_S,
            check=lambda: None,
            on_replay=self.note,
        )

    def note(self, segment: SegmentId) -> None:
        """Record the replay in the ledger, as the store process does."""
        ledger = self.harness.opened_ledger()
        ledger.record_replay(segment)
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
        name, note = "ab" * 16, QuarantineNote(body.drain, body.received_at_ns)
        bodies.write(bodies.path_of(name, body), body.body, note)
        return name


@pytest.fixture
def workspace(tmp_path: Path) -> Workspace:
    return Workspace(tmp_path)


def test_replayed_dead_letter_is_stored_and_removed(workspace: Workspace) -> None:
    workspace.with_poison()

    replayed = workspace.replayer.replay(POISON_ID)
    workspace.drain()

    assert (replayed.id, replayed.rows) == (POISON_ID, 3)
    assert workspace.harness.copies == {1: 1, 2: 1, 3: 1}
    assert workspace.harness.recorded == Counts(received=9, stored=9)
    assert list((workspace.directory / "dead").iterdir()) == []
    assert list((workspace.directory / "journal").iterdir()) == []


def test_reason_stays_until_segment_is_synced(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    sync_directory = DISK.sync_directory

    def fail_in_journal(path: Path) -> None:
        if path.parent.name == "journal" and any(path.glob("*.native.lz4")):
            raise OSError(5, "Input/output error")
        sync_directory(path)

    workspace.with_poison()
    monkeypatch.setattr(DISK, "sync_directory", fail_in_journal)

    with pytest.raises(OSError, match="Input/output"):
        workspace.replayer.replay(POISON_ID)

    assert (workspace.directory / "dead" / f"{POISON_ID}.json").exists()


def test_damaged_rows_of_a_replayed_segment_are_counted_as_dead_once(workspace: Workspace) -> None:
    workspace.with_poison()
    workspace.replayer.replay(POISON_ID)
    (segment,) = Journal(workspace.directory / "journal").sealed()
    rotted(segment.path, record=0)

    workspace.drain()

    assert workspace.harness.recorded == Counts(received=9, stored=6, dead=3)


@pytest.mark.parametrize(
    ("refusal", "error", "text"),
    [
        (
            StoreTrouble("violated", code=469),
            DeadLetterConflict,
            "the store still refuses the rows: violated",
        ),
        (StoreTrouble("connection reset"), StoreTrouble, "connection reset"),
    ],
    ids=["rows refused", "no answer"],
)
def test_dead_letter_is_kept_if_its_trial_fails(
    workspace: Workspace,
    monkeypatch: pytest.MonkeyPatch,
    refusal: StoreTrouble,
    error: type[Exception],
    text: str,
) -> None:
    workspace.with_poison()
    monkeypatch.setattr(workspace.harness.store, "refusal_of", lambda _segment: refusal)

    with pytest.raises(error, match=text):
        workspace.replayer.replay(POISON_ID)

    assert [dead_letter.id for dead_letter in workspace.listing.dead.listed()] == [POISON_ID]
    assert Journal(workspace.directory / "journal").sealed() == []


def test_replay_needs_the_tables(workspace: Workspace, monkeypatch: pytest.MonkeyPatch) -> None:
    """The embedded store takes the first INSERT as the sign that its schema is complete."""
    workspace.with_poison()
    trials: list[Path] = []
    monkeypatch.setattr(workspace.harness.store, "refusal_of", trials.append)

    def refuse() -> None:
        raise DiskTrouble("ledger is not read yet")

    with pytest.raises(DiskTrouble):
        replace(workspace.replayer, check=refuse).replay(POISON_ID)

    assert trials == []
    assert [dead_letter.id for dead_letter in workspace.listing.dead.listed()] == [POISON_ID]


def test_duplicate_sent_before_the_replay_is_not_stored(workspace: Workspace) -> None:
    workspace.with_poison()
    workspace.harness.add([2])
    workspace.harness.drain()

    workspace.replayer.replay(POISON_ID)
    workspace.drain()

    assert workspace.harness.copies == {1: 1, 2: 1, 3: 1}


def test_replayed_dead_letter_of_a_whole_segment_is_not_its_own_duplicate(workspace: Workspace) -> None:
    workspace.with_poison(2)

    workspace.replayer.replay(POISON_ID)
    workspace.drain()

    assert workspace.harness.is_exact


def test_replay_of_rows_that_were_sent_again_stores_no_row(workspace: Workspace) -> None:
    workspace.harness.add([1, 2])
    workspace.harness.store.script = ["ok_without_rows"] * 8
    workspace.harness.drain()
    workspace.harness.add([2])
    workspace.harness.drain()

    (dead_letter,) = workspace.listing.dead.listed()
    workspace.replayer.replay(dead_letter.id)
    workspace.drain()

    assert workspace.harness.copies == {1: 1, 2: 1}
    assert workspace.harness.recorded == Counts(received=8, stored=5, duplicate=3)


def test_dead_letter_with_stored_rows_is_not_replayed(workspace: Workspace) -> None:
    workspace.harness.add([5])
    workspace.harness.store.script = ["half_a_day"]
    workspace.harness.drain()

    (dead_letter,) = workspace.listing.dead.listed()
    with pytest.raises(DeadLetterConflict, match="holds 6 rows, of which 3 are not stored"):
        workspace.replayer.replay(dead_letter.id)

    assert workspace.listing.dead.count() == 1


def test_damaged_dead_letter_is_not_replayed_even_if_the_row_counts_agree(workspace: Workspace) -> None:
    rotted(workspace.harness.add([2], [1, 0]).path, record=1)
    workspace.harness.drain()

    (dead_letter,) = workspace.listing.dead.listed()
    with pytest.raises(DeadLetterConflict, match="the dead letter is damaged"):
        workspace.replayer.replay(dead_letter.id)

    assert dead_letter.reason.rows == 3
    assert workspace.harness.copies[2] == 1


def test_dead_letter_that_is_too_large_is_replayed_and_split(workspace: Workspace) -> None:
    workspace.harness.add([5])
    workspace.harness.store.script = ["ok_without_rows"] * 8
    workspace.harness.drain()
    workspace.harness.store.rows_max = 3

    (dead_letter,) = workspace.listing.dead.listed()
    workspace.replayer.replay(dead_letter.id)
    workspace.drain()

    assert workspace.harness.is_exact
    assert workspace.harness.recorded == Counts(received=6, stored=6)


@both_actions
def test_dead_letter_of_an_unfinished_segment_is_not_touched(
    workspace: Workspace, action: Callable[[Replayer], object]
) -> None:
    workspace.with_poison()
    directory = workspace.directory / "journal" / "0000000000000007"
    directory.mkdir(parents=True)
    (directory / "0000000001.native.lz4").write_bytes(b"")

    with pytest.raises(DeadLetterConflict, match="is not finished yet"):
        action(workspace.replayer)


@both_actions
def test_dead_letter_is_kept_until_the_deletion_of_its_segment_is_synced(
    workspace: Workspace, monkeypatch: pytest.MonkeyPatch, action: Callable[[Replayer], object]
) -> None:
    workspace.with_poison()
    journal = workspace.directory / "journal" / "0000000000000007"
    journal.mkdir(parents=True)
    sync_directory = DISK.sync_directory

    def fail(path: Path) -> None:
        if path == journal:
            raise OSError(5, "refused")
        sync_directory(path)

    with monkeypatch.context() as patch:
        patch.setattr(DISK, "sync_directory", fail)
        with pytest.raises(OSError, match="refused"):
            action(workspace.replayer)
    assert [dead_letter.id for dead_letter in workspace.listing.dead.listed()] == [POISON_ID]

    action(workspace.replayer)

    assert workspace.listing.dead.listed() == []


def test_dropped_dead_letter_is_deleted(workspace: Workspace) -> None:
    workspace.with_poison()

    workspace.listing.drop(POISON_ID)

    assert list((workspace.directory / "dead").iterdir()) == []
    with pytest.raises(NoSuchDeadLetter):
        workspace.listing.drop("../journal")


def test_quarantined_body_is_decoded_again_and_stored(workspace: Workspace) -> None:
    name = workspace.keep_body(delivery(3))
    workspace.harness.issued = {3}

    workspace.replayer.replay(name)
    workspace.drain()

    assert workspace.harness.is_exact
    assert workspace.listing.entries() == []


def test_body_that_was_accepted_later_is_not_stored_twice(workspace: Workspace) -> None:
    workspace.harness.add([3])
    workspace.harness.drain()

    workspace.replayer.replay(workspace.keep_body(delivery(3)))
    workspace.drain()

    assert workspace.harness.is_exact


def test_quarantined_body_that_the_decoder_refuses_is_kept(workspace: Workspace) -> None:
    malformed = Delivery("drain", b"{", ContentKind.JSON, (), 1, strict=False, body_bytes_max=9)
    name = workspace.keep_body(malformed)

    with pytest.raises(DeadLetterConflict, match="the decoder refuses the body as 'malformed'"):
        workspace.replayer.replay(name)

    (listed,) = workspace.listing.entries()
    assert (listed.id, listed.cause, listed.deliveries[0].drain) == (name, "crashed", "drain")


@pytest.mark.parametrize("kind", ["dead letter", "body"])
def test_replay_killed_at_any_step_stores_the_rows_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    injector = FaultInjector()
    inject_faults(injector, monkeypatch, WRITE_CALLS)
    for step in range(1, 1_000):
        injector.steps_left = -1
        workspace = Workspace(tmp_path / str(step), injector)
        if kind == "dead letter":
            name, rows = workspace.with_poison().harness.dead_letters[0].id, 9
        else:
            name, rows = workspace.keep_body(delivery(3)), 4
            workspace.harness.issued = {3}
        injector.steps_left = step
        with suppress(Killed):
            workspace.replayer.replay(name)
            workspace.drain()
            break
        injector.steps_left = -1

        workspace.listing.dead.tidy()
        for entry in workspace.listing.entries():
            workspace.replayer.replay(entry.id)
        workspace.drain()

        assert workspace.harness.is_exact, f"killed at step {step}: {workspace.harness.copies}"
        recorded = workspace.harness.recorded
        # A body that was decoded but not deleted is a duplicate of its dead letter.
        copies = recorded.duplicate if kind == "body" else 0
        assert recorded == Counts(received=rows + copies, stored=rows, duplicate=copies), (
            f"killed at step {step}"
        )
        assert workspace.listing.entries() == [], f"killed at step {step}"
    else:
        raise AssertionError("the replay was killed at every step that was tried")


def test_reason_without_bytes_is_not_a_dead_letter(workspace: Workspace) -> None:
    workspace.with_poison()
    workspace.listing.dead.listed()[0].path.unlink()

    assert workspace.listing.entries() == []
    assert workspace.listing.dead.of(SegmentId(7, 1)) == []
    workspace.listing.dead.tidy()
    assert list((workspace.directory / "dead").iterdir()) == []


def test_temporary_files_left_by_a_crash_are_deleted(workspace: Workspace) -> None:
    workspace.with_poison()
    dead = workspace.directory / "dead"
    before = sorted(dead.iterdir())
    (dead / f".{POISON_ID}.native.lz4.tmp").write_bytes(b"half of it")

    workspace.listing.dead.tidy()

    assert sorted(dead.iterdir()) == before
