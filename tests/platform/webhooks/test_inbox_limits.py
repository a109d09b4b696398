"""Tests of the limits of the inbox: waiting webhooks, and notes about applied ones."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from receiver.errors import InboxFull
from receiver.platform.webhooks import inbox as inbox_module
from receiver.platform.webhooks.inbox import Inbox, Note
from receiver.platform.webhooks.webhook import parse
from receiver.settings import Webhook as Limits
from tests.platform.webhooks.test_inbox import DATA, keep, new_applier, new_disk
from tests.support.memory_disk import MemoryDisk
from tests.support.webhooks import NOW_MS, document


class ListingDisk(MemoryDisk):
    """A disk that counts the listings of directories."""

    listing_count = 0

    def names(self, path: Path) -> list[str]:
        self.listing_count += 1
        return super().names(path)


def fill(inbox: Inbox, limits: Limits, prefix: str) -> None:
    """Keep webhooks until the inbox is full."""
    with suppress(InboxFull):
        for number in range(1_000):
            keep(inbox, f"{prefix}_{number:03}", limits=limits)
        pytest.fail("the inbox has no limit")


def waiting_sizes(disk: MemoryDisk) -> list[int]:
    names = [name for name in disk.names(DATA / "webhooks") if name.endswith(".json")]
    return [disk.size_bytes(DATA / "webhooks" / name) or 0 for name in names]


def test_limits_of_waiting_webhooks_do_not_count_applied_ones() -> None:
    disk = new_disk()
    inbox, limits = Inbox(DATA, disk), Limits(waiting_max=2)
    keep(inbox, "a", limits=limits)
    keep(inbox, "b", limits=limits)
    with pytest.raises(InboxFull, match="2 webhooks wait to be applied; the limit is 2"):
        keep(inbox, "c", limits=limits)
    new_applier(disk).apply_waiting()

    assert keep(inbox, "c", limits=limits)
    with pytest.raises(InboxFull, match="of webhooks wait to be applied; the limit is 1024 bytes"):
        inbox.keep(parse(document("d" * 200, "x" * 900), NOW_MS), Limits(waiting_bytes_max=1_024))


def test_waiting_webhooks_are_listed_once_for_a_sixteenth_of_the_free_space() -> None:
    disk = ListingDisk()
    disk.make_directory(DATA)
    inbox, limits = Inbox(DATA, disk), Limits(waiting_max=321)

    for number in range(21):
        keep(inbox, f"wh_{number}", limits=limits)
    assert disk.listing_count == 1

    keep(inbox, "next", limits=limits)
    assert disk.listing_count == 2


def test_each_further_intake_exceeds_the_number_by_a_sixteenth_at_most() -> None:
    disk, limits = new_disk(), Limits(waiting_max=160)
    inbox, other = Inbox(DATA, disk), Inbox(DATA, disk)
    keep(other, "first", limits=limits)

    fill(inbox, limits, "a")
    assert len(waiting_sizes(disk)) == 160

    fill(other, limits, "b")
    assert 160 < len(waiting_sizes(disk)) <= 170


def test_each_further_intake_exceeds_the_size_by_a_sixteenth_at_most() -> None:
    disk, limits = new_disk(), Limits(waiting_bytes_max=32_000)
    inbox, other = Inbox(DATA, disk), Inbox(DATA, disk)
    keep(other, "first", limits=limits)

    fill(inbox, limits, "a")
    sizes = waiting_sizes(disk)
    assert 32_000 - max(sizes) < sum(sizes) <= 32_000

    fill(other, limits, "b")
    assert 32_000 < sum(waiting_sizes(disk)) <= 34_000


def note_of(webhook_id: str, received_at_ms: int, body: bytes = b"{}") -> tuple[Note, object]:
    webhook = parse(document(webhook_id), received_at_ms)
    return (
        Note(webhook_id, webhook.type, 0, received_at_ms, received_at_ms, "unknown", msgspec.Raw(body)),
        webhook,
    )


@pytest.mark.parametrize(
    ("limit", "value"),
    [pytest.param("NOTES_MAX", 3, id="number"), pytest.param("NOTES_BYTES_MAX", 500, id="bytes")],
)
def test_oldest_notes_above_the_limits_are_forgotten(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, limit, value)
    disk = new_disk()
    inbox = Inbox(DATA, disk)
    keep(inbox, "waiting")
    for number in range(6):
        note, webhook = note_of(f"wh_{number}", NOW_MS + number)
        inbox.note(note, webhook)  # type: ignore[arg-type]  # a webhook

    assert inbox.forget(0) == 3
    assert [note.id for note in inbox.notes()] == ["wh_5", "wh_4", "wh_3"]


def test_default_limits_of_notes() -> None:
    assert (inbox_module.NOTES_MAX, inbox_module.NOTES_BYTES_MAX) == (20_000, 67_108_864)
