"""Tests of the inbox: an acknowledged webhook survives kills, power failures and disk errors."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
from structlog.testing import capture_logs

from receiver.durable.files import Files, drafts_in
from receiver.platform.installations.platform_records import PlatformRecords, records_in
from receiver.platform.installations.record_files import RecordDirectory
from receiver.platform.webhooks.changes import Applier
from receiver.platform.webhooks.inbox import Inbox
from receiver.platform.webhooks.webhook import parse
from receiver.settings import Webhook as Limits
from tests.support.faulty_disk import UNAFFECTED_CALLS
from tests.support.installations import TOKEN, installation
from tests.support.memory_disk import Killed, MemoryDisk
from tests.support.webhooks import NOW_MS, document

DATA = Path("/data")
DAY_MS = 86_400_000
CALLS_MAX = 90
"""More calls than the sequence makes."""


def new_disk() -> MemoryDisk:
    disk = MemoryDisk()
    disk.make_directory(DATA)
    disk.sync_directory(Path("/"))
    return disk


def keep(inbox: Inbox, webhook_id: str, kind: str = "unknown.type", limits: Limits | None = None) -> bool:
    payload = {"project": {"id": webhook_id, "name": "shop"}}
    return inbox.keep(parse(document(webhook_id, kind, payload), NOW_MS), limits or Limits())


def records_on(disk: Files) -> PlatformRecords:
    return records_in(DATA / "platform", files=disk)


def new_applier(disk: MemoryDisk, now_s: float = NOW_MS / 1_000) -> Applier:
    return Applier(Inbox(DATA, disk), records_on(disk), lambda: now_s)


def use(disk: MemoryDisk, acknowledged: set[str], kind: str) -> None:
    """Let two intakes and a store process handle webhooks, some of which are sent again."""
    inbox, other = Inbox(DATA, disk), Inbox(DATA, disk)
    applier = new_applier(disk)
    for intake, webhook_id in ((inbox, "a"), (other, "a"), (inbox, "b")):
        keep(intake, webhook_id, kind)
        acknowledged.add(webhook_id)
    applier.apply_waiting()
    for webhook_id in ("a", "c"):
        keep(other, webhook_id, kind)
        acknowledged.add(webhook_id)
    applier.apply_waiting()


def known_after(disk: MemoryDisk) -> set[str]:
    """Return the webhooks that the next process applies or has a note about."""
    inbox = Inbox(DATA, disk)
    inbox.tidy()
    new_applier(disk).apply_waiting()
    assert inbox.waiting() == []
    assert drafts_in(DATA / "webhooks", disk) == []
    return {note.id for note in inbox.notes()}


def random_loss(seed: int) -> Callable[[MemoryDisk], None]:
    random_ = random.Random(seed)
    return lambda disk: disk.scatter(lambda: random_.random() < 0.5)


LOSSES: dict[str, Callable[[MemoryDisk], None]] = {
    "killed": lambda disk: disk.kill(),
    "power failure, unsynced data lost": lambda disk: disk.cut_power(),
    "power failure, unsynced data kept": lambda disk: disk.cut_power(lambda count: count),
    **{f"power failure, random loss {seed}": random_loss(seed) for seed in range(4)},
}


def crashes(kind: str) -> Iterator[tuple[MemoryDisk, set[str]]]:
    """Yield the disk after a crash at each of its calls, and the webhooks acknowledged before."""
    for count in range(1, CALLS_MAX):
        disk, acknowledged = new_disk(), set[str]()
        disk.fail_nth(count, Killed)
        try:
            use(disk, acknowledged, kind)
        except Killed:
            yield disk, acknowledged
        else:
            assert acknowledged == {"a", "b", "c"}
            assert count > 20
            return
    pytest.fail(f"more than {CALLS_MAX} calls; expected fewer")


@pytest.mark.fault("kill -9 or power failure at every file operation of webhooks")
@pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)
def test_acknowledged_webhook_survives_a_crash_at_any_call(loss: Callable[[MemoryDisk], None]) -> None:
    for disk, acknowledged in crashes("unknown.type"):
        loss(disk)

        assert acknowledged <= known_after(disk)


@pytest.mark.fault("ENOSPC or EIO at every file operation of webhooks, once or permanently")
@pytest.mark.parametrize("is_permanent", [False, True])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_acknowledged_webhook_survives_a_disk_error_at_any_call(code: int, *, is_permanent: bool) -> None:
    for count in range(1, CALLS_MAX):
        disk, acknowledged = new_disk(), set[str]()
        disk.fail_nth(count, lambda: OSError(code, os.strerror(code)), is_permanent=is_permanent)
        try:
            use(disk, acknowledged, "unknown.type")
        except OSError:
            assert acknowledged != {"a", "b", "c"} or disk.calls
        if len(disk.calls) < count:
            return

        disk.cut_power()
        assert acknowledged <= known_after(disk)
    pytest.fail(f"more than {CALLS_MAX} calls; expected fewer")


@pytest.mark.fault("kill -9 at every file operation: the change of a webhook is not lost")
def test_change_of_an_acknowledged_webhook_survives_a_crash_at_any_call() -> None:
    for disk, acknowledged in crashes("project.created"):
        disk.cut_power()
        new_applier(disk).apply_waiting()

        assert acknowledged <= {project.id for project in records_on(disk).projects.all()}


def test_webhook_with_a_known_id_is_acknowledged_without_a_write() -> None:
    disk = new_disk()
    inbox = Inbox(DATA, disk)
    assert keep(inbox, "a")
    before = len(disk.calls)

    assert not keep(inbox, "a")
    new_applier(disk).apply_waiting()
    after = len(disk.calls)
    assert not keep(inbox, "a")

    assert {call for call, _ in (*disk.calls[before : before + 1], *disk.calls[after:])} == {"sync_directory"}
    assert len(inbox.notes()) == 1


def test_webhook_kept_again_while_it_is_applied_changes_nothing_twice() -> None:
    disk = new_disk()
    inbox, applier = Inbox(DATA, disk), new_applier(disk)
    keep(inbox, "a", "project.created")
    webhook = inbox.waiting()[0]
    applier.apply_waiting()

    # An intake that looked before the file was written, and renames its own after it was discarded.
    RecordDirectory(DATA / "webhooks", disk).write(webhook.key, msgspec.json.encode(webhook))
    applier.apply_waiting()

    assert applier.outcomes == {"applied": 1, "duplicate": 1}
    assert inbox.waiting() == []


def test_two_intakes_never_rename_the_draft_of_each_other() -> None:
    disk = new_disk()
    inner, outer = Inbox(DATA, disk), Inbox(DATA, disk)

    def keep_inside(_count: int, call: str) -> None:
        if call == "write":
            disk.heal()
            keep(inner, "a")

    disk.fault = keep_inside
    keep(outer, "a")
    disk.cut_power()

    assert [webhook.id for webhook in Inbox(DATA, disk).waiting()] == ["a"]


def test_applied_webhook_is_recognized_until_its_note_is_deleted() -> None:
    disk = new_disk()
    inbox = Inbox(DATA, disk)
    keep(inbox, "a")
    new_applier(disk).apply_waiting()

    new_applier(disk, NOW_MS / 1_000 + 604_799).forget_old(604_800)
    assert not keep(inbox, "a")
    new_applier(disk, NOW_MS / 1_000 + 604_801).forget_old(604_800)
    assert keep(inbox, "a")


def test_damaged_file_is_renamed_and_the_webhook_can_be_sent_again() -> None:
    disk = new_disk()
    inbox = Inbox(DATA, disk)
    keep(inbox, "a")
    fd = disk.open(DATA / "webhooks" / f"{inbox.waiting()[0].key}.json")
    disk.truncate(fd, 20)
    keep(inbox, "b")

    new_applier(disk).apply_waiting()

    assert [note.id for note in inbox.notes()] == ["b"]
    assert [name for name in disk.names(DATA / "webhooks") if name.endswith(".damaged")]
    assert keep(inbox, "a")


def test_damaged_note_still_identifies_its_webhook_and_is_deleted_first() -> None:
    disk = new_disk()
    inbox = Inbox(DATA, disk)
    keep(inbox, "a")
    new_applier(disk).apply_waiting()
    disk.truncate(disk.open(DATA / "webhooks/applied" / f"{parse(document('a'), 0).key}.json"), 3)

    assert not keep(inbox, "a")
    assert inbox.notes() == []
    assert inbox.forget(1) == 1


def test_files_of_webhooks_are_private(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    inbox.keep(parse(document("a"), NOW_MS), Limits())
    Applier(inbox, records_in(tmp_path / "platform"), lambda: NOW_MS / 1_000).apply_waiting()
    inbox.keep(parse(document("b"), NOW_MS), Limits())

    found = sorted((tmp_path / "webhooks").rglob("*"))
    modes = {path.stat().st_mode & 0o777 for path in (tmp_path / "webhooks", *found)}
    assert len(found) == 3
    assert modes == {0o600, 0o700}


def test_files_that_cannot_be_read_do_not_stop_the_other_webhooks(tmp_path: Path) -> None:
    inbox, records = Inbox(tmp_path), records_in(tmp_path / "platform")
    for number in range(5):
        keep(inbox, f"prj_{number}", "project.created")
    directory = tmp_path / "webhooks"
    for name in ("0.json", "f.json", ".x.tmp", "applied/0.json", "applied/.x.tmp"):
        (directory / name).mkdir()
    applier = Applier(inbox, records, lambda: NOW_MS / 1_000)

    with capture_logs() as logged:
        applier.apply_waiting()
        applier.forget_old(-1)

    assert len(records.projects.all()) == 5
    assert applier.waiting_count == 2
    assert inbox.notes() == []
    assert {Path(line["path"]).name for line in logged} == {"0.json", "f.json", ".x.tmp"}


def test_webhook_whose_file_cannot_be_read_is_not_acknowledged_again(tmp_path: Path) -> None:
    inbox = Inbox(tmp_path)
    keep(inbox, "a")
    [file] = (tmp_path / "webhooks").glob("*.json")
    file.unlink()
    file.mkdir()

    with pytest.raises(IsADirectoryError):
        keep(inbox, "a")

    file.rmdir()
    assert keep(inbox, "a")


class FailingDisk:
    """A disk whose n-th call fails, reads included; with `is_permanent` all later calls fail, too."""

    def __init__(self, disk: MemoryDisk, at: int, code: int, *, is_permanent: bool) -> None:
        self._disk = disk
        self._at = at
        self._code = code
        self._is_permanent = is_permanent
        self.is_healed = False
        self.calls = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401 - a call of the disk
        call = getattr(self._disk, name)
        return call if name in UNAFFECTED_CALLS else partial(self._call, call)

    def _call(self, call: Callable[..., Any], *arguments: object) -> Any:  # noqa: ANN401 - as above
        self.calls += 1
        is_failing = self.calls == self._at or (self._is_permanent and self.calls > self._at)
        if is_failing and not self.is_healed:
            raise OSError(self._code, os.strerror(self._code))
        return call(*arguments)


@pytest.mark.fault("ENOSPC or EIO at every call of webhooks and records, reads included")
@pytest.mark.parametrize(("code", "is_permanent"), [(errno.EIO, False), (errno.ENOSPC, True)])
def test_webhooks_are_applied_after_a_disk_error_at_any_call(code: int, *, is_permanent: bool) -> None:
    for at in range(1, 500):
        memory = new_disk()
        records_on(memory).installations.add(installation(), TOKEN)
        ended = document("ended", "integration-configuration.removed", {"id": "icfg_a1"})
        Inbox(DATA, memory).keep(parse(ended, NOW_MS), Limits())
        disk, acknowledged = FailingDisk(memory, at, code, is_permanent=is_permanent), set[str]()
        records: PlatformRecords | None = None
        for names in ("a", "ac", "d"):
            disk.is_healed = names == "d"
            with suppress(OSError):
                # A store process that cannot start is started again.
                records = records or records_on(disk)
            for name in names:
                with suppress(OSError):
                    keep(Inbox(DATA, disk), name, "project.created")
                    acknowledged.add(name)
            if records:
                applier = Applier(Inbox(DATA, disk), records, lambda: NOW_MS / 1_000)
                for step in (records.complete, applier.apply_waiting, partial(applier.forget_old, DAY_MS)):
                    with suppress(OSError):
                        step()

        assert records is not None
        for known in (records, records_on(memory)):
            assert acknowledged <= {project.id for project in known.projects.all()}
            assert [each.state for each in known.installations.all()] == ["removed"]
            assert not known.installations.has_token("icfg_a1")
        assert Inbox(DATA, memory).waiting() == []
        if disk.calls < at:
            return
    pytest.fail("the fault was reached at every call")
