"""Installations as the API and the commands list them."""

from __future__ import annotations

import msgspec

from receiver.platform.installations.installations import Installations
from receiver.platform.installations.records import Installation
from receiver.time_range import instant_text


class InstallationEntry(msgspec.Struct, frozen=True):
    """A line of the list. Times are in UTC, ISO 8601."""

    id: str
    state: str
    since: str
    team: str
    """Empty: a personal account."""
    user: str
    scopes: tuple[str, ...] | None
    """`None`: the platform has not listed them."""
    installed_at: str
    """Empty: not known."""
    deleted_at: str
    """When the platform deletes it; empty unless it is disabled."""
    token: str
    """`plain` or `encrypted`: how it is stored; `damaged`; empty: there is none."""


def entries(installations: Installations) -> list[InstallationEntry]:
    """Return all installations, the newest first. Blocks."""
    return [_entry(installations, record) for record in installations.all()]


def _entry(installations: Installations, record: Installation) -> InstallationEntry:
    return InstallationEntry(
        record.id,
        record.state,
        instant_of(record.since_s),
        record.team_id,
        record.user_id,
        record.scopes,
        instant_of(record.installed_at_s),
        instant_of(record.deleted_at_s),
        installations.token_kind(record.id),
    )


def instant_of(at_s: float | None) -> str:
    """Return a time to the second; empty if it is not known."""
    return "" if at_s is None else instant_text(at_s)
