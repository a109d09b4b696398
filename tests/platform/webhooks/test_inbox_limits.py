"""Tests of the limits of the inbox: waiting webhooks, and notes about applied ones."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from receiver.errors import InboxFull
from receiver.platform.webhooks import inbox as inbox_module
from receiver.platform.webhooks.inbox import Inbox, Note
from receiver.platform.webhooks.webhook import Webhook, parse
from receiver.settings import Webhook as Limits
from tests.platform.webhooks.test_inbox import DATA, keep, new_applier, new_disk
from tests.support.cases import each_case
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


@each_case(
    ("limits", "measure", "limit"),
    [
        pytest.param(Limits(waiting_max=160), len, 160, id="number"),
        pytest.param(Limits(waiting_bytes_max=32_000), sum, 32_000, id="size"),
    ],
)
def test_each_further_intake_exceeds_a_limit_by_a_sixteenth_at_most(
    limits: Limits, measure: Callable[[list[int]], int], limit: int
) -> None:
    disk = new_disk()
    inbox, other = Inbox(DATA, disk), Inbox(DATA, disk)
    keep(other, "first", limits=limits)

    fill(inbox, limits, "a")
    sizes = waiting_sizes(disk)
    assert limit - max(sizes) < measure(sizes) <= limit

    fill(other, limits, "b")
    assert limit < measure(waiting_sizes(disk)) <= limit * 17 // 16


def note_of(webhook: Webhook) -> Note:
    received_ms = webhook.received_at_ms
    return Note(webhook.id, webhook.type, 0, received_ms, received_ms, "unknown", msgspec.Raw(b"{}"))


@pytest.mark.parametrize(
    ("limit", "value"),
    [pytest.param("NOTES_MAX", 3, id="number"), pytest.param("NOTES_BYTES_MAX", 500, id="bytes")],
)
def test_oldest_notes_above_the_limits_are_deleted(
    limit: str, value: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inbox_module, limit, value)
    disk = new_disk()
    inbox = Inbox(DATA, disk)
    keep(inbox, "waiting")
    for number in range(6):
        webhook = parse(document(f"wh_{number}"), NOW_MS + number)
        inbox.note(note_of(webhook), webhook)

    assert inbox.forget(0) == 3
    assert [note.id for note in inbox.notes()] == ["wh_5", "wh_4", "wh_3"]
